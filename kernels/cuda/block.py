"""A block of an op's result while it is in registers: what is measured of it, its codes a chunk at a time.

A chunk is eight codes where they fit a word, else four. The scalar source decides every code; blocks that
are certain to have the format's own limit, which are nearly all, take a quicker way to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..codec import Codec, ElementCodec
from ..scalar.bits import INFINITY, MAGNITUDE, SIGN, ZERO, F, U, bits, bits_of, real
from ..scalar.rules import divides, top_bits
from .intrinsics import assembly
from .quantize_block import scaler
from .quantize_encode import always, certain, eight_encoder, four_encoder, quick_eight, quick_four
from .quotient import UNIT, divisible

Function = Callable[..., Any]
NO_DRAWS = (ZERO, ZERO, ZERO, ZERO)
WIDEST = 4  # bits of codes of which eight fit a word


def needs_more(codec: Codec) -> bool:
    """Whether a block's scale needs more than its largest magnitude, or the codes more than their values."""
    return codec.calibration != "abs_max" or codec.rule == "four_over_six"


def noter(codec: Codec) -> Function:
    """``note(most, highest, x) -> (most, highest)``: a value's part in what is measured of a block, as bits.

    ``highest`` is the largest magnitude, of NaN and infinity too; it is looked at under ``saturate`` alone,
    where ``most`` is the largest finite one.
    """
    if codec.nonfinite == "saturate":
        return note_finite

    @scalar
    def note(most, highest, x):
        return bits(larger_magnitude(real(most), x)), highest

    return note


@scalar
def note_finite(most, highest, x):
    """The largest finite magnitude, and the largest of all."""
    a = U(bits(x) & MAGNITUDE)
    return max(most, a if a < INFINITY else ZERO), max(highest, a)


def block_measure(codec: Codec) -> Function:
    """``measured(most, highest)`` of a block, as rules expect it."""
    if codec.nonfinite == "saturate":

        @scalar
        def measured(most, highest):
            return U(most | SIGN) if highest >= INFINITY else most

    else:

        @scalar
        def measured(most, highest):
            return most

    return measured


@assembly("{ .reg .f32 t; abs.f32 t, $2; max.NaN.f32 $0, $1, t; }", ("float32",), ("float32", "float32"))
def larger_magnitude(most, x):
    """The larger of a magnitude and that of ``x``; NaN if one is."""
    return np.float32(np.maximum(most, abs(x)))


def quad_encoder(codec: Codec, converts: bool) -> Function:
    """``encode(a, b, c, d, factor, limit) -> chunk``: four codes of any block, the first in the lowest bits.

    Args:
        codec: Of the result.
        converts: Whether the device converts to E4M3 and E5M2.
    """
    by_value, top = four_encoder(codec), top_bits(codec)
    quick = quick_four(codec, converts) if certain(codec, converts) is always else None
    has_quick, four = quick is not None, quick or never_quick

    @scalar
    def encode_quad(a, b, c, d, factor, limit):
        if has_quick and limit == top:
            return four((a, b, c, d), factor, ZERO, ZERO)
        return by_value((a, b, c, d), factor, limit, ZERO, ZERO)

    return encode_quad


@scalar
def never_quick(values, factor, r0, r1):
    """Never called: it stands where a codec has no quick way."""
    return ZERO


def chunk_codes(codec: Codec) -> int:
    """Codes of a chunk: the values that an encoder takes.

    Example:
        >>> from autoq.kernels.codec import Codec, ElementCodec
        >>> e2m1 = ElementCodec("e2m1", "minifloat", 4, 1, 1, 6.0, -6.0, 1.0, 7, False, -1)
        >>> chunk_codes(Codec(e2m1, "ue8m0", "floor"))
        8
    """
    return chunk_size(codec.element)


def chunk_size(element: ElementCodec) -> int:
    """The same of an element format."""
    return 8 if element.bits <= WIDEST else 4


def chunk_encoder(codec: Codec) -> Function:
    """``encode(values, factor, limit) -> chunk``: any values of any block, the first lowest."""
    if chunk_codes(codec) == 4:
        four = four_encoder(codec)

        @scalar
        def encode(values, factor, limit):
            return four(values, factor, limit, ZERO, ZERO)

    else:
        eight = eight_encoder(codec)

        @scalar
        def encode(values, factor, limit):
            return eight(values, factor, limit, NO_DRAWS)[0]

    return encode


def quick_encoder(codec: Codec, converts: bool) -> Function | None:
    """``encode(values) -> chunk`` of values over the block's factor, where ``quick_test`` holds; or None.

    Args:
        codec: Of the result, which rounds to nearest.
        converts: Whether the device converts to E4M3 and E5M2.
    """
    if codec.element.kind == "integer":
        return whole_numbers(codec.element) if quick_integer(codec) else None
    if divides(codec) and codec.nonfinite == "saturate":
        return None  # the quotient of infinity isn't
    scaled = codec._replace(scale="ue8m0", rule="floor")  # nothing is left but a product with 1
    four, eight = quick_four(scaled, converts), quick_eight(scaled, converts)
    if four is None or eight is None:
        return None
    if chunk_codes(codec) == 4:

        @scalar
        def encode(values):
            return four(values, UNIT, ZERO, ZERO)

    else:

        @scalar
        def encode(values):
            return eight(values, UNIT, NO_DRAWS)[0]

    return encode


def quick_test(codec: Codec, converts: bool) -> Function:
    """``quickly(measured, factor, limit)``: whether ``quick_encoder`` holds for a block."""
    sure, top, by_quotients = certain(codec, converts), top_bits(codec), divides(codec)
    if codec.element.kind == "integer":
        sure = below_half_a_step(codec)

    @scalar
    def quickly(measured, factor, limit):
        if limit != top or (by_quotients and not divisible(factor)):
            return False
        return sure(real(measured), factor)

    return quickly


def quick_integer(codec: Codec) -> bool:
    """Whether integers have a quick way: as many of both signs, whole numbers once they are scaled."""
    element = codec.element
    return element.maximum == -element.minimum and codec.nonfinite == "propagate" and element.bits in (4, 8)


def below_half_a_step(codec: Codec) -> Function:
    """``sure(peak, factor)``: whether nothing rounds beyond the largest integer."""
    scaled, bound = scaler(codec), F(codec.element.maximum + codec.element.step / 2)

    @scalar
    def sure(peak, factor):
        return scaled(peak, factor) < bound

    return sure


def whole_numbers(element: ElementCodec) -> Function:
    """``encode(values)``: scaled values rounded to integers by the float adder, as scalar/integer.py does.

    What is added leaves the integer in the low bits, and half the codes on top, so that none is negative.
    The bits above are the same in all: shifted to their places and combined they are known, as ``rest``.
    """
    width, count = element.bits, chunk_size(element)
    half = 1 << (width - 1)
    magic = F((1.5 * 2.0**23 + half) * element.step)
    above, together = int(bits_of(float(magic))) - half, 0
    for k in range(count):
        # A code lacks half the codes by its top bit.
        together ^= (above ^ half) << (width * k) & 0xFFFFFFFF
    rest, shifts = U(together), tuple(U(width * k) for k in range(count))

    @scalar
    def code(t):
        return bits(F(t + magic))

    @scalar
    def of_four(v):
        low = U(code(v[0]) ^ U(code(v[1]) << shifts[1]))
        return U(U(low ^ U(code(v[2]) << shifts[2])) ^ U(U(code(v[3]) << shifts[3]) ^ rest))

    @scalar
    def of_eight(v):
        a = U(code(v[0]) ^ U(code(v[1]) << shifts[1]))
        b = U(U(code(v[2]) << shifts[2]) ^ U(code(v[3]) << shifts[3]))
        c = U(U(code(v[4]) << shifts[4]) ^ U(code(v[5]) << shifts[5]))
        d = U(U(code(v[6]) << shifts[6]) ^ U(code(v[7]) << shifts[7]))
        return U(U(U(a ^ b) ^ U(c ^ d)) ^ rest)

    return of_four if count == 4 else of_eight
