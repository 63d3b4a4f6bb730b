"""A block of an op's result while it is in registers: what is measured of it, its codes four at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..codec import Codec
from ..scalar.bits import INFINITY, MAGNITUDE, SIGN, ZERO, U, bits, real
from .decode import is_e4m3
from .intrinsics import assembly
from .quantize_block import encoder, scaler
from .quantize_instructions import four_e4m3, four_e5m2

Function = Callable[..., Any]


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
    """``encode(a, b, c, d, factor, limit) -> chunk``: four codes, the first in the lowest bits.

    Args:
        codec: Of the result.
        converts: Whether the device converts to E4M3 and E5M2.
    """
    convert = conversion(codec) if converts else None
    if convert is not None:
        return converter(codec, convert)
    encode, width = encoder(codec), codec.element.bits
    one, two, three = U(width), U(2 * width), U(3 * width)

    @scalar
    def encode_quad(a, b, c, d, factor, limit):
        low = U(encode(a, factor, limit, ZERO) | U(encode(b, factor, limit, ZERO) << one))
        high = U(U(encode(c, factor, limit, ZERO) << two) | U(encode(d, factor, limit, ZERO) << three))
        return U(low | high)

    return encode_quad


def conversion(codec: Codec) -> Function | None:
    """The instructions that give four codes of an element format, if there are any."""
    element = codec.element
    if codec.nonfinite == "saturate" or element.kind != "minifloat" or element.bits != 8:
        return None
    if is_e4m3(element):
        return four_e4m3
    return four_e5m2 if (element.mantissa, element.bias, element.max_code) == (2, 15, 0x7B) else None


def converter(codec: Codec, convert: Function) -> Function:
    """``encode(a, b, c, d, factor, limit)`` by instructions, which round as the scalar source does.

    They saturate at the largest value: a smaller limit is for ``cutting_encoder``. A block that isn't finite
    has the limit 0: whatever becomes of its NaN, its codes are 0.
    """
    scaled = scaler(codec)

    @scalar
    def encode_quad(a, b, c, d, factor, limit):
        chunk = convert(scaled(a, factor), scaled(b, factor), scaled(c, factor), scaled(d, factor))
        return chunk if limit != ZERO else ZERO

    return encode_quad


def cutting_encoder(codec: Codec, converts: bool) -> Function | None:
    """The same for blocks whose limit is lower, which are rare; None where ``quad_encoder`` does them all."""
    convert = conversion(codec) if converts else None
    if convert is None:
        return None
    scaled = scaler(codec)

    @scalar
    def encode_quad(a, b, c, d, factor, limit):
        reach = real(limit)
        return convert(
            within(scaled(a, factor), reach),
            within(scaled(b, factor), reach),
            within(scaled(c, factor), reach),
            within(scaled(d, factor), reach),
        )

    return encode_quad


@assembly(
    "{ .reg .f32 n, t; neg.f32 n, $2; min.f32 t, $1, $2; max.f32 $0, t, n; }",
    ("float32",),
    ("float32", "float32"),
)
def within(x, reach):
    """``x`` limited to a magnitude."""
    return np.float32(min(max(x, -reach), reach))
