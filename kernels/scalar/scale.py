"""Scale formats: a real scale to its stored bits, and back.

Source: OCP Microscaling Formats (MX) v1.0 §5.4 (ue8m0); IEEE 754 (f16).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..bind import scalar
from . import minifloat
from .bits import EXPONENT, FIELD, MANTISSA, NAN, ONE, ZERO, U, bits, bits_of, real

HALF_BITS = U(16)
SUBNORMAL_ONE = U(0x00400000)
TOP_EXPONENT = U(254)
ALL_ONES = U(0xFF)
I32 = np.int32
LOWEST, HIGHEST = I32(0), I32(254)
SMALLEST_NORMAL_BITS = U(0x00800000)
NORMAL_UP, SUBNORMAL_UP = U(0x007FFFFF), U(0x003FFFFF)


class ScaleFunctions(NamedTuple):
    """A scale format.

    Attributes:
        encode: ``(s float32 >= 0) -> stored uint32`` by the rule; upwards for ue8m0.
        decode: ``(stored uint32) -> float32``.
        nan: What a NaN scale stores.
        smallest: What a zero block stores.
        maximum: Largest finite scale.
        dtype: Unsigned type of the stored bits.
    """

    encode: Callable[..., Any]
    decode: Callable[..., Any]
    nan: np.uint32
    smallest: np.uint32
    maximum: float
    dtype: type


def scale_functions(name: str, rule: str) -> ScaleFunctions:
    """The functions of the scale format ``name``, rounding up under ``round_up``, else to nearest."""
    up = rule == "round_up"
    if name == "ue8m0":
        return ScaleFunctions(encode_ue8m0, decode_ue8m0, ALL_ONES, ZERO, 2.0**127, np.uint8)
    if name == "ue4m3":
        return ScaleFunctions(
            small_encoder(3, 7, 448.0, up), small_decoder(3, 7, 0x7F), U(0x7F), ZERO, 448.0, np.uint8
        )
    if name == "f16":
        return ScaleFunctions(
            small_encoder(10, 15, 65504.0, up),
            small_decoder(10, 15, 0x7C00),
            U(0x7E00),
            ONE,
            65504.0,
            np.uint16,
        )
    if name == "bf16":
        top = float(real(U(0x7F7F0000)))
        return ScaleFunctions(bf16_encoder(up), decode_bf16, U(0x7FC0), U(0x0080), top, np.uint16)
    return ScaleFunctions(bits, real, NAN, U(0x00800000), float(np.finfo(np.float32).max), np.uint32)


@scalar
def encode_ue8m0(s):
    """The smallest power of two at least ``s``."""
    return round_up(bits(s), LOWEST)


@scalar
def decode_ue8m0(code):
    """``2**(code - 127)``; 2**-127 is a float32 subnormal; 255 is NaN."""
    if code == ZERO:
        return real(SUBNORMAL_ONE)
    return real(NAN) if code == ALL_ONES else real(U(code << FIELD))


def small_encoder(mantissa: int, bias: int, maximum: float, up: bool):
    """A function rounding to an unsigned minifloat, clipped to its largest value."""
    if up:
        return minifloat.steps_up(mantissa, bias, maximum)
    nearest, limit = minifloat.nearest(mantissa, bias), bits_of(maximum)

    @scalar
    def encode(s):
        return nearest(min(bits(s), limit))

    return encode


def small_decoder(mantissa: int, bias: int, first_special: int):
    """A function decoding an unsigned minifloat; codes from ``first_special`` on are NaN."""
    value, special = minifloat.magnitude(mantissa, bias), U(first_special)

    @scalar
    def decode(code):
        return real(NAN) if code >= special else value(code)

    return decode


def bf16_encoder(up: bool):
    """A function rounding to bfloat16, clipped to its largest value."""
    most, half, top = U(0xFFFF), U(0x7FFF), U(0x7F7F)

    @scalar
    def encode(s):
        u = bits(s)
        added = most if up else U(half + U(U(u >> HALF_BITS) & ONE))
        return min(U(U(u + added) >> HALF_BITS), top)

    return encode


@scalar
def decode_bf16(code):
    """The float32 whose upper half is ``code``."""
    return real(U(code << HALF_BITS))


@scalar
def round_up(d, down):
    """The exponent rule ``round_up``: ``d`` holds the bits of a quotient; ``down`` isn't used."""
    added = NORMAL_UP if d >= SMALLEST_NORMAL_BITS else SUBNORMAL_UP
    return min(U(U(d + added) >> FIELD), TOP_EXPONENT)


def exponent_rule(rule: str, precision: int):
    """``exponent(b, down)``: the ue8m0 code of a magnitude, by integers on its float32 bits.

    ``b`` holds the bits of a finite magnitude; ``down``, int32, is the exponent of the largest element and
    subtracted. ``round_up`` regards a quotient and takes ``down = 0``; the others regard amax itself.

    Source: OCP MX v1.0 §6.3 (floor); NVIDIA TransformerEngine (round_up).
    """
    half_step = U(1 << (22 - precision))

    @scalar
    def clipped(field, down):
        return U(min(max(I32(I32(field) - down), LOWEST), HIGHEST))

    @scalar
    def floor(b, down):
        return clipped(U(b >> FIELD), down)

    @scalar
    def ceil(b, down):
        return clipped(U(U(b >> FIELD) + U(U(b & MANTISSA) != ZERO)), down)

    @scalar
    def even(b, down):
        return floor(U(U(b + half_step) & EXPONENT), down)

    return {"floor": floor, "ceil": ceil, "even": even, "round_up": round_up}[rule]
