"""Pack and unpack lines of raw codes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ...errors import ShapeError
from ..bind import compile_cpu
from .bitstream import packer, unpacker
from .pool import PARALLEL_VALUES, ranges, run, threads
from .signatures import array, signature
from .tiles import TILE, padded
from .views import register

Array = np.ndarray


def pack_lines(codes: Array, bits: int, words: Array) -> None:
    """Pack codes line by line: value k at bit ``k * bits``, low bits first, the rest zero.

    Args:
        codes: uint8 (lines, n), C-contiguous, each below ``2**bits``.
        bits: Bits a code.
        words: uint8 (lines, line bytes), written.

    Raises:
        ShapeError: If a line of codes doesn't fit into one of words.

    Example:
        >>> words = np.zeros((1, 4), np.uint8)
        >>> pack_lines(np.array([[1, 2, 3]], np.uint8), 4, words)
        >>> words.tolist()
        [[33, 3, 0, 0]]
    """
    _spread(pack_kernel(bits), codes, words, codes.size)


def unpack_lines(words: Array, bits: int, n: int, codes: Array) -> None:
    """Unpack ``n`` codes a line, the inverse of ``pack_lines``.

    Args:
        words: uint8 (lines, line bytes), C-contiguous.
        bits: Bits a code.
        n: Codes a line.
        codes: uint8 (lines, n), written.

    Raises:
        ShapeError: If a line of words doesn't hold ``n`` codes.
    """
    if codes.shape[1] != n:
        raise _misfit(words, codes)
    _spread(unpack_kernel(bits), words, codes, codes.size)


def _spread(kernel: Callable[..., int], source: Array, target: Array, values: int) -> None:
    if source.shape[0] != target.shape[0]:
        raise _misfit(source, target)

    def piece(start: int, stop: int) -> int:
        return kernel(source[start:stop], target[start:stop])

    parts = threads() if values >= PARALLEL_VALUES else 1
    if any(run(piece, ranges(len(source), parts))):
        raise _misfit(source, target)


def _misfit(source: Array, target: Array) -> ShapeError:
    return ShapeError(
        f"packing: from {source.shape} to {target.shape}",
        "as many lines in both, each with room for the codes",
        "Allocate ceil(n * bits / 32) words a line.",
    )


@cache
def pack_kernel(bits: int) -> Callable[..., int]:
    """The compiled ``kernel(codes, words) -> misfit`` of a width."""
    register()
    pack = packer(bits)

    def kernel(codes, words):
        n, line_bytes = codes.shape[1], words.shape[1]
        if line_bytes * 8 < n * bits:
            return 1
        scratch = np.empty(TILE, np.uint8)
        for line in range(codes.shape[0]):
            words[line, (n * bits + 7) // 8 :] = 0
            for start in range(0, n, TILE):
                size = min(TILE, n - start)
                scratch[:size] = codes[line, start : start + size]
                scratch[size : padded(size)] = 0
                last = start * bits // 8 + (size * bits + 7) // 8
                pack(scratch[: padded(size)], words[line, start * bits // 8 : last])
        return 0

    return compile_cpu(kernel, signature("int64", array("uint8", 2, False), array("uint8", 2)))


@cache
def unpack_kernel(bits: int) -> Callable[..., int]:
    """The compiled ``kernel(words, codes) -> misfit`` of a width."""
    register()
    unpack = unpacker(bits)

    def kernel(words, codes):
        if words.shape[1] * 8 < codes.shape[1] * bits:
            return 1
        for line in range(codes.shape[0]):
            unpack(words[line], codes[line])
        return 0

    return compile_cpu(kernel, signature("int64", array("uint8", 2, False), array("uint8", 2)))
