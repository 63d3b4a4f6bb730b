"""Chunks of a row: neighbours that one thread reads into registers; chunk_writers.py writes them.

A chunk is 4 float32, 8 values where one side has 16 bits, and 16 where one side is packed: whole words of
codes of any even width. Values beyond the end of the row are read as ``fill`` and not written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..bind import scalar
from ..codec import Codec
from ..scalar.bits import ZERO, F, U, real
from .block import needs_more
from .decode import decoding, quad_decoder, scale_decoder, scale_type
from .intrinsics import from_half, load2, load4
from .operand import Packed, float_kind, float_reader, pointer_of

Function = Callable[..., Any]
PACKED, QUAD, LANES = 16, 4, 32
WIDTHS = (2, 4, 6, 8)
# How a chunk is accessed: 16 bytes at once; value by value but whole; value by value, with an end of the row.
WIDE, WHOLE, ANY = "wide", "whole", "any"
LOW_HALF, HIGH_HALF, HALF = U(0xFFFF), U(0xFFFF0000), U(16)
NOTHING = F(0.0)


class Codes(NamedTuple):
    """A packed side of a kernel.

    Attributes:
        codec: Of the codes and scales.
        block: Values of a row that share a scale; 0 where the whole tensor does.
        tile: Rows that share a scale.
    """

    codec: Codec
    block: int
    tile: int = 1


Kind = Any  # "float32", "float16", "bfloat16" or Codes


def chunk_size(*kinds: Kind) -> int:
    """Values of a chunk of a kernel with these sides.

    Example:
        >>> chunk_size("float32", "float32"), chunk_size("float32", "bfloat16")
        (4, 8)
    """
    if any(isinstance(kind, Codes) for kind in kinds):
        return PACKED
    return QUAD if all(kind == "float32" for kind in kinds) else 2 * QUAD


def kind_of(x: Any) -> Kind | None:
    """The kind of an operand; None where chunks can't be read of it.

    Example:
        >>> import numpy as np
        >>> kind_of(np.zeros(3, np.float32))
        'float32'
    """
    if not isinstance(x, Packed):
        return float_kind(x)
    if x.codec.element.bits not in WIDTHS or x.order is not None or not x.shape:
        return None
    extents = x.extents
    if not any(extents):
        return Codes(decoding(x.codec), 0, 0)
    across = extents[-2] if len(extents) > 1 else 1
    if any(extent != 1 for extent in extents[:-2]) or extents[-1] % QUAD or not extents[-1] or not across:
        return None
    return Codes(decoding(x.codec), extents[-1], across)


def result_kind(out: Any) -> Kind | None:
    """The kind of a result; None where rows can't be encoded to it: single-level blocks within rows can."""
    if not isinstance(out, Packed):
        return float_kind(out)
    return Codes(out.codec, out.extents[-1]) if can_encode(out.codec, out.extents) else None


def can_encode(codec: Codec, extents: tuple[int, ...]) -> bool:
    """Whether a row's result can be encoded in registers."""
    lanes = extents[-1] // PACKED if extents else 0
    return (
        codec.element.bits in WIDTHS
        and not codec.two_level
        and not needs_more(codec)
        and all(extent == 1 for extent in extents[:-1])
        and lanes in (1, 2, 4, 8, 16, 32)
        and extents[-1] % PACKED == 0
    )


def input_types(kind: Kind, access: str) -> tuple[str, ...]:
    """Parameters of an operand: data, scales, tensor scale, step from row to row, rows of a plane."""
    if isinstance(kind, Codes):
        return "uint32*", f"{scale_type(kind.codec)}*", "float32*", "int64", "int64"
    return data_pointer(kind, access), "uint8*", "float32*", "int64", "int64"


def output_types(kind: Kind, access: str) -> tuple[str, ...]:
    """Parameters of a result: data, scales, step from row to row."""
    if isinstance(kind, Codes):
        return "uint32*", f"{scale_type(kind.codec)}*", "int64"
    return data_pointer(kind, access), "uint8*", "int64"


def data_pointer(kind: str, access: str) -> str:
    """What floats are read as: 16-bit ones by twos where they are read 16 bytes at once."""
    return "uint32*" if access == WIDE and kind != "float32" else pointer_of(kind)


def loader(kind: Kind, size: int, access: str, full: bool, converts: bool, fill: float) -> Function:
    """``load(source, row, j, n, a, at)``: the chunk of a row from ``j`` on into ``a[at:]``.

    ``source`` is a tuple of the operand's parameters.

    With ``full`` nothing of any chunk lies beyond the end of the row.
    """
    inside = packed_loader(kind, access, converts) if isinstance(kind, Codes) else None
    if inside is None:
        inside = {
            ANY: float_loader(kind, size), WHOLE: float_loader(kind, size),
            WIDE: wide_loader(size) if kind == "float32" else halves_loader(kind, size),
        }[access]  # fmt: skip
    nothing, bounded = F(fill), access == ANY

    @scalar
    def load(source, row, j, n, a, at):
        if full or j < n:
            inside(source, row, j, n, a, at)
            if bounded:
                for i in range(size):
                    if j + i >= n:
                        a[at + i] = nothing
        else:
            for i in range(size):
                a[at + i] = nothing

    return load


def float_loader(kind: str, size: int) -> Function:
    """Value by value, none beyond the row."""
    read = float_reader(kind)

    @scalar
    def load(source, row, j, n, a, at):
        data, step = source[0], source[3]
        for i in range(size):
            a[at + i] = read(data, row * step + min(j + i, n - 1))

    return load


def wide_loader(size: int) -> Function:
    """float32, four at once."""

    @scalar
    def load(source, row, j, n, a, at):
        data, step = source[0], source[3]
        for q in range(size // QUAD):
            found = load4(data, row * step + j + QUAD * q)
            for k in range(QUAD):
                a[at + QUAD * q + k] = found[k]

    return load


def halves_loader(kind: str, size: int) -> Function:
    """16-bit floats, eight at once."""
    half = kind == "float16"

    @scalar
    def load(source, row, j, n, a, at):
        data, step = source[0], source[3]
        for q in range(size // (2 * QUAD)):
            words = load4(data, ((row * step + j) >> 1) + QUAD * q)
            for k in range(QUAD):
                w, place = words[k], at + 2 * QUAD * q + 2 * k
                a[place] = from_half(U(w & LOW_HALF)) if half else real(U(w << HALF))
                a[place + 1] = from_half(U(w >> HALF)) if half else real(U(w & HIGH_HALF))

    return load


def packed_loader(kind: Codes, access: str, converts: bool) -> Function:
    """Codes of sixteen values, decoded four at a time."""
    bits, block = kind.codec.element.bits, kind.block
    decode, effective = quad_decoder(kind.codec.element, converts), scale_decoder(kind.codec)
    take, chunk, scale_at = word_reader(bits, access), chunk_of(bits), scale_place(kind)
    shared, two_level = block % PACKED == 0, kind.codec.two_level

    @scalar
    def load(source, row, j, n, a, at):
        data, scales, tensor, step, lines = source
        words = take(data, row * step + ((j * bits) >> 5), ((n - j) * bits - 1) >> 5)
        factor = tensor[0] if two_level else F(1.0)
        scale = effective(scales[scale_at(row, j, n, lines)], factor)
        for q in range(PACKED // QUAD):
            if not shared and j + QUAD * q < n:
                scale = effective(scales[scale_at(row, j + QUAD * q, n, lines)], factor)
            found = decode(chunk(words, q))
            for k in range(QUAD):
                a[at + QUAD * q + k] = F(found[k] * scale)

    return load


def scale_place(kind: Codes) -> Function:
    """``place(row, j, n, lines)``: the index of the scale of value ``j`` of a row."""
    block, tile = kind.block, kind.tile

    @scalar
    def whole(row, j, n, lines):
        return 0

    @scalar
    def within(row, j, n, lines):
        return row * ((n + block - 1) // block) + j // block

    @scalar
    def across(row, j, n, lines):
        plane, line = row // lines, row % lines
        above = plane * ((lines + tile - 1) // tile) + line // tile
        return above * ((n + block - 1) // block) + j // block

    return whole if block == 0 else within if tile == 1 else across


def word_reader(bits: int, access: str) -> Function:
    """``take(words, first, last) -> tuple``: the words of sixteen codes; after ``last`` anything."""
    wide, bounded = access == WIDE, access == ANY

    @scalar
    def place(first, k, last):
        return first + min(k, last) if bounded else first + k

    @scalar
    def take8(words, first, last):
        if wide:
            return load4(words, first)
        return (
            words[first], words[place(first, 1, last)],
            words[place(first, 2, last)], words[place(first, 3, last)],
        )  # fmt: skip

    @scalar
    def take6(words, first, last):
        return words[first], words[place(first, 1, last)], words[place(first, 2, last)]

    @scalar
    def take4(words, first, last):
        return load2(words, first) if wide else (words[first], words[place(first, 1, last)])

    @scalar
    def take2(words, first, last):
        return words[first], words[first]

    return {8: take8, 6: take6, 4: take4, 2: take2}[bits]


def chunk_of(bits: int) -> Function:
    """``chunk(words, q)``: four codes from the lowest bits on, of the words of sixteen; others lie above."""

    @scalar
    def chunk8(words, q):
        return words[q]

    @scalar
    def chunk6(words, q):
        low = words[0] if q == 0 else words[0] >> U(24) if q == 1 else words[1] >> HALF
        low = U(words[2] >> U(8)) if q == 3 else U(low)
        high = U(words[1] << U(8)) if q == 1 else U(words[2] << HALF) if q == 2 else ZERO
        return U(low | high)

    @scalar
    def chunk4(words, q):
        return U(words[q >> 1] >> U((q & 1) * 16))

    @scalar
    def chunk2(words, q):
        return U(words[0] >> U(8 * q))

    return {8: chunk8, 6: chunk6, 4: chunk4, 2: chunk2}[bits]
