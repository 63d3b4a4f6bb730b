"""Packing in the simulator equals the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.errors import ShapeError
from autoq.kernels.cuda.pack import pack, unpack
from autoq.storage import packing
from autoq.storage.layout import words_shape

SHAPES = [(), (1,), (5,), (2, 32), (3, 33), (2, 3, 20)]


@pytest.mark.parametrize("bits", range(1, 9))
def test_every_width_there_and_back(bits: int) -> None:
    rng = np.random.default_rng(bits)
    for shape in SHAPES:
        codes = np.asarray(rng.integers(0, 1 << bits, shape), np.uint8)
        words = np.full(words_shape(shape, bits), 0xAAAAAAAA, np.uint32)
        pack(codes, bits, words)
        assert (words == packing.pack(codes, bits)).all()
        found = np.full(shape, 0xAA, np.uint8)
        unpack(words, bits, found)
        assert (found == codes).all()


def test_any_strides() -> None:
    codes = np.random.default_rng(0).integers(0, 16, (6, 40)).astype(np.uint8)
    words = np.zeros((6, 10), np.uint32)[:, ::2]
    pack(codes[:, ::-1], 4, words)
    assert (words == packing.pack(np.ascontiguousarray(codes[:, ::-1]), 4)).all()
    found = np.zeros((6, 41), np.uint8)[:, 1:]
    unpack(words[::2], 4, found[:3])
    assert (found[:3] == codes[::2, ::-1]).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match="packing"):
        pack(np.zeros((2, 9), np.uint8), 4, np.zeros((2, 1), np.uint32))
    with pytest.raises(ShapeError, match="packing"):
        unpack(np.zeros((3, 1), np.uint32), 4, np.zeros((2, 8), np.uint8))
