"""Packing on the device equals the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoq.kernels.cuda.pack import pack, unpack
from autoq.storage import packing
from autoq.storage.layout import words_shape

pytestmark = pytest.mark.gpu

SHAPES = [(), (1,), (5,), (2, 32), (3, 33), (2, 3, 20), (1000, 257), (64, 4096)]


@pytest.mark.parametrize("bits", range(1, 9))
def test_every_width_there_and_back(cupy: Any, bits: int) -> None:
    rng = np.random.default_rng(bits)
    for shape in SHAPES:
        codes = np.asarray(rng.integers(0, 1 << bits, shape), np.uint8)
        words = cupy.full(words_shape(shape, bits), 0xAAAAAAAA, np.uint32)
        pack(cupy.asarray(codes), bits, words)
        assert (words.get() == packing.pack(codes, bits)).all()
        found = cupy.full(shape, 0xAA, np.uint8)
        unpack(words, bits, found)
        assert (found.get() == codes).all()


@pytest.mark.parametrize("bits", [3, 4, 6, 8])
def test_any_strides_and_alignments(cupy: Any, bits: int) -> None:
    codes = np.random.default_rng(0).integers(0, 1 << bits, (64, 96)).astype(np.uint8)
    moved = cupy.zeros((64, 97), np.uint8)[:, 1:]
    moved[...] = cupy.asarray(codes)
    line_words = words_shape(codes.shape, bits)[-1]
    words = cupy.zeros((64, 2 * line_words), np.uint32)[:, ::2]
    pack(moved, bits, words)
    assert (words.get() == packing.pack(codes, bits)).all()
    whole = cupy.zeros(64 * 96 + 1, np.uint8)
    for found in (
        cupy.zeros((64, 97), np.uint8)[:, 1:],
        whole[1:].reshape(64, 96),
        cupy.zeros((96, 64), "u1").T,
    ):
        unpack(words, bits, found)
        assert (found.get() == codes).all()
