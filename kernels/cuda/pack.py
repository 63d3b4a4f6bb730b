"""Raw codes to words and back on the device: value k of a line at bit ``k * bits``, low bits first."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...errors import ShapeError
from ..bind import scalar
from ..scalar.bits import ZERO, U
from .compile import uses_cuda
from .dequantize_kernels import QUAD, WORD_BITS, fetcher
from .launch import SIMULATED, Kernel, grid, kernel, library
from .walk import quotient

Array = Any
cuda: Any = None
uses_cuda(globals())

THREADS = 256


def pack(codes: Array, bits: int, words: Array) -> None:
    """Pack codes into words along the last axis; what is left of a line is zero.

    Args:
        codes: uint8, each below ``2**bits``, any strides.
        bits: Bits a code, 1 to 8.
        words: uint32, ``codes.shape[:-1] + (words a line,)``, written.

    Raises:
        ShapeError: If a line of codes doesn't fit into one of words.
    """
    _check(codes, bits, words)
    if not codes.size:
        return
    source, target = library().ascontiguousarray(codes), words
    if not words.flags.c_contiguous:
        target = library().empty(words.shape, np.uint32)
    lines, n, line_words = _lines(source, bits, target)
    items = lines * line_words
    pack_kernel(bits)(grid(items, THREADS), THREADS, source, target, n, line_words, items)
    if target is not words:
        words[...] = target


def unpack(words: Array, bits: int, codes: Array) -> None:
    """Unpack words into codes, the inverse of ``pack``.

    Args:
        words: uint32, ``codes.shape[:-1] + (words a line,)``, any strides.
        bits: Bits a code, 1 to 8.
        codes: uint8, written.

    Raises:
        ShapeError: If a line of words doesn't hold a line of codes.
    """
    _check(codes, bits, words)
    if not codes.size:
        return
    source, target = library().ascontiguousarray(words), codes
    if not codes.flags.c_contiguous or _address(codes) % QUAD:
        target = library().empty(codes.shape, np.uint8)
    lines, n, line_words = _lines(target, bits, source)
    quads = -(-n // QUAD)
    _unpacker(bits, n % QUAD == 0)(
        grid(lines * quads, THREADS), THREADS, source, _bytes(target, n), n, line_words, quads, lines * quads
    )
    if target is not codes:
        codes[...] = target


def _check(codes: Array, bits: int, words: Array) -> None:
    n = codes.shape[-1] if codes.ndim else 1
    if words.shape[:-1] != codes.shape[:-1] or words.shape[-1] * WORD_BITS < n * bits:
        raise ShapeError(
            f"packing: codes {codes.shape} of {bits} bits, words {words.shape}",
            "as many lines in both, each with room for the codes",
            "Allocate ceil(n * bits / 32) words a line.",
        )


def _lines(codes: Array, bits: int, words: Array) -> tuple[int, int, int]:
    """(lines, codes a line, words a line); lines without padding are one."""
    n, line_words = codes.shape[-1] if codes.ndim else 1, words.shape[-1]
    if n * bits == line_words * WORD_BITS:
        return 1, codes.size, words.size
    return prod(words.shape[:-1]), n, line_words


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0] if SIMULATED else array.data.ptr)


def _bytes(codes: Array, n: int) -> Array:
    """Codes as the simulator takes them: four at once where lines are whole fours."""
    return codes.reshape(-1).view(np.uint32) if SIMULATED and n % QUAD == 0 else codes


def _unpacker(bits: int, whole: bool) -> Kernel:
    return unpack_whole_kernel(bits) if whole else unpack_kernel(bits)


@kernel
def pack_kernel(bits: int):
    """A word a thread: the codes that have bits in it."""
    most = (WORD_BITS + bits - 2) // bits + 1

    def pack_words(codes, words, n, line_words, items):
        item = np.int64(cuda.grid(1))
        while item < items:
            line = quotient(item, line_words)
            begin = (item - line * line_words) * WORD_BITS
            first, word = begin // bits, ZERO
            for k in range(most):
                place = first + k
                at = place * bits - begin
                if place < n and at < WORD_BITS:
                    code = U(codes[line * n + place])
                    word = U(word | (U(code << U(at)) if at >= 0 else U(code >> U(-at))))
            words[item] = word
            item += cuda.gridsize(1)

    return pack_words, ("uint8*", "uint32*", "int64", "int64", "int64")


@kernel
def unpack_whole_kernel(bits: int):
    """Four codes a thread, written at once."""
    fetch, spread = fetcher(bits, QUAD), spreader(bits)

    def unpack_fours(words, codes, n, line_words, quads, items):
        item = np.int64(cuda.grid(1))
        while item < items:
            line = quotient(item, quads)
            place = item - line * quads
            codes[item] = spread(fetch(words, line * line_words, np.int64(1), place, QUAD))
            item += cuda.gridsize(1)

    return unpack_fours, ("uint32*", "uint32*", "int64", "int64", "int64", "int64")


@kernel
def unpack_kernel(bits: int):
    """Four codes a thread, of lines that end within four."""
    fetch, spread = fetcher(bits, QUAD), spreader(bits)

    def unpack_parts(words, codes, n, line_words, quads, items):
        item = np.int64(cuda.grid(1))
        while item < items:
            line = quotient(item, quads)
            place = item - line * quads
            count = min(QUAD, n - place * QUAD)
            four = spread(fetch(words, line * line_words, np.int64(1), place, count))
            for k in range(count):
                codes[line * n + place * QUAD + k] = U(U(four >> U(8 * k)) & U(0xFF))
            item += cuda.gridsize(1)

    return unpack_parts, ("uint32*", "uint8*", "int64", "int64", "int64", "int64")


def spreader(bits: int):
    """``spread(chunk)``: four codes side by side to four bytes."""
    mask = U((1 << bits) - 1)
    one, two, three = U(bits), U(2 * bits), U(3 * bits)

    @scalar
    def spread(chunk):
        low = U(U(chunk & mask) | U(U(U(chunk >> one) & mask) << U(8)))
        high = U(U(U(chunk >> two) & mask) | U(U(U(chunk >> three) & mask) << U(8)))
        return U(low | U(high << U(16)))

    return spread
