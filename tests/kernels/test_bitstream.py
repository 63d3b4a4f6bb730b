"""Packing: a little-endian bit stream a line, and back."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.errors import ShapeError
from autoq.kernels.cpu.bitstream import packer, unpacker
from autoq.kernels.cpu.slice import pack_lines, unpack_lines


def line_bytes(n: int, bits: int) -> int:
    return -(-n * bits // 32) * 4


def stream(codes: np.ndarray, bits: int) -> np.ndarray:
    """The bytes by the definition: value k at bit k * bits, low bits first."""
    digits = codes[..., None] >> np.arange(bits, dtype=np.uint8) & 1
    flat = digits.reshape(len(codes), -1)
    padded = np.pad(flat, [(0, 0), (0, -flat.shape[1] % 32)])
    return np.packbits(padded, axis=1, bitorder="little")


@pytest.mark.parametrize("n", [1, 5, 32, 33, 70, 4096 + 39])
@pytest.mark.parametrize("bits", [2, 4, 6, 8])
def test_pack_is_the_bit_stream_and_unpack_its_inverse(bits: int, n: int) -> None:
    codes = np.random.default_rng(n).integers(0, 1 << bits, (3, n), dtype=np.uint8)
    words = np.full((3, line_bytes(n, bits)), 0xAA, np.uint8)
    pack_lines(codes, bits, words)
    np.testing.assert_array_equal(words, stream(codes, bits))
    back = np.full_like(codes, 0xAA)
    unpack_lines(words, bits, n, back)
    np.testing.assert_array_equal(back, codes)


@pytest.mark.parametrize("bits", [1, 3, 5, 7])
def test_other_widths_pack_to_the_bit_stream_too(bits: int) -> None:
    codes = np.random.default_rng(bits).integers(0, 1 << bits, 41, dtype=np.uint8)
    words = np.zeros(line_bytes(41, bits), np.uint8)
    packer(bits)(np.pad(codes, (0, 23)), words)
    np.testing.assert_array_equal(words, stream(codes[None], bits)[0])
    back = np.zeros(41, np.uint8)
    unpacker(bits)(words, back)
    np.testing.assert_array_equal(back, codes)


def test_lines_too_short_for_the_codes_are_refused() -> None:
    codes, words = np.zeros((2, 9), np.uint8), np.zeros((2, 4), np.uint8)
    with pytest.raises(ShapeError, match="packing"):
        pack_lines(codes, 4, words)
    with pytest.raises(ShapeError, match="packing"):
        unpack_lines(words, 4, 9, codes)
    with pytest.raises(ShapeError, match="packing"):
        pack_lines(codes[:1], 4, words)
