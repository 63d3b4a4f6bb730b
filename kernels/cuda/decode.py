"""Codes to float32, four at a time, and stored scales to what codes are multiplied by.

The scalar source decides every value. Where a format lies inside float16, codes are shifted into place
there, two at once, multiplied by the power of two between the formats' biases, and converted; E4M3 has an
instruction of its own. Both are exact, so that they equal the scalar source on every code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..codec import Codec, ElementCodec
from ..scalar.bits import F, U
from ..scalar.element import element_functions
from ..scalar.scale import scale_functions
from .intrinsics import assembly

Function = Callable[..., Any]
HALF_BIAS, HALF_MANTISSA, HALF_MAXIMUM = 15, 10, 65504.0
SIGNS = 0x80008000
BOTH = 0x00010001
# The first compute capability whose conversions from E4M3 are in PTX 8.0.
CONVERTS = (9, 0)


def decoding(codec: Codec) -> Codec:
    """The codec without what decoding doesn't depend on: codecs that decode alike share kernels.

    Example:
        >>> from autoq.kernels.codec import Codec, ElementCodec
        >>> e2m1 = ElementCodec("e2m1", "minifloat", 4, 1, 1, 6.0, -6.0, 1.0, 7, False, -1)
        >>> decoding(Codec(e2m1, "ue8m0", "floor", rounding="stochastic")).rounding
        'nearest'
    """
    return Codec(codec.element, codec.scale, "nearest", codec.two_level)


def scale_decoder(codec: Codec) -> Function:
    """``effective(stored, tensor_scale) -> float32``: what a block's codes are multiplied by.

    ``stored`` holds the stored scale's bits, ``tensor_scale`` isn't looked at under one level.
    """
    value, two_level = scale_functions(codec.scale, codec.rule).decode, codec.two_level

    @scalar
    def effective(stored, tensor_scale):
        scale = value(U(stored))
        return F(scale * tensor_scale) if two_level else scale

    return effective


def scale_type(codec: Codec) -> str:
    """The unsigned type that a stored scale is read as."""
    return np.dtype(scale_functions(codec.scale, codec.rule).dtype).name


def quad_decoder(element: ElementCodec, converts: bool) -> Function:
    """``decode(chunk) -> four float32``: the values of four codes, the first in the lowest bits.

    Args:
        element: What the codes are; the bits of ``chunk`` above the fourth code may hold anything.
        converts: Whether the device converts from E4M3.
    """
    if converts and is_e4m3(element):
        return from_e4m3
    if inside_half(element):
        return half_decoder(element)
    decode, b = element_functions(element).decode, element.bits
    one, two, three = U(b), U(2 * b), U(3 * b)

    @scalar
    def decode_quad(chunk):
        return (
            decode(chunk),
            decode(U(chunk >> one)),
            decode(U(chunk >> two)),
            decode(U(chunk >> three)),
        )

    return decode_quad


def is_e4m3(element: ElementCodec) -> bool:
    """Whether it is the E4M3 of OCP 8-bit Floating Point, whose code of all ones is NaN."""
    return (element.kind, element.bits, element.mantissa, element.bias, element.max_code) == (
        "minifloat", 8, 3, 7, 0x7E,
    )  # fmt: skip


def inside_half(element: ElementCodec) -> bool:
    """Whether every code has its value, its infinity or its NaN in float16, a power of two away."""
    exponent_bits = element.bits - 1 - element.mantissa
    if element.kind != "minifloat" or element.mantissa == 0 or not 1 <= exponent_bits <= 5:
        return False
    all_finite = element.max_code == (1 << (element.bits - 1)) - 1
    is_half = exponent_bits == 5 and element.bias == HALF_BIAS and element.has_inf
    return is_half or (all_finite and 0 <= element.bias <= HALF_BIAS and element.maximum <= HALF_MAXIMUM)


def half_decoder(element: ElementCodec) -> Function:
    """``decode(chunk)`` by way of float16: its first and third code at once, then the others."""
    width = 2 * element.bits
    spare, low = U(16 - width), U((1 << width) - 1)
    high = U(int(low) << 16)
    first, second = half_pair(element, 0), half_pair(element, element.bits)

    @scalar
    def decode_quad(chunk):
        # Two codes in the low bits of each half.
        pairs = U(U(chunk & low) | U(U(chunk << spare) & high))
        a, c = from_halves(first(pairs))
        b, d = from_halves(second(pairs))
        return a, b, c, d

    return decode_quad


def half_pair(element: ElementCodec, at: int) -> Function:
    """``pair(u)``: the two float16 of the codes that begin at bit ``at`` of each half of ``u``."""
    b = element.bits
    sign, move = U(16 - b - at), HALF_MANTISSA - element.mantissa - at
    left, right, signs = U(max(move, 0)), U(max(-move, 0)), U(SIGNS)
    magnitudes = U(BOTH * (((1 << (b - 1)) - 1) << (HALF_MANTISSA - element.mantissa)))
    # 2**(15 - bias), twice, as float16.
    power = U(BOTH * ((2 * HALF_BIAS - element.bias) << HALF_MANTISSA))
    same_bias = element.bias == HALF_BIAS

    @scalar
    def pair(u):
        magnitude = U(U(U(u << left) >> right) & magnitudes)
        halves = U(magnitude | U(U(u << sign) & signs))
        return halves if same_bias else times_halves(halves, power)

    return pair


@assembly(
    "{ .reg .b16 l, h; mov.b32 {l, h}, $2; cvt.f32.f16 $0, l; cvt.f32.f16 $1, h; }",
    ("float32", "float32"),
    ("uint32",),
)
def from_halves(u):
    """The float32 equal to the two float16 with these bits, the low one first."""
    low, high = np.array([u], np.uint32).view(np.float16).astype(np.float32)
    return low, high


@assembly("mul.rn.f16x2 $0, $1, $2;", ("uint32",), ("uint32", "uint32"))
def times_halves(u, v):
    """The bits of the products of two pairs of float16."""
    a, b = np.array([u], np.uint32).view(np.float16), np.array([v], np.uint32).view(np.float16)
    return (a * b).view(np.uint32)[0]


@assembly("cvt.rn.f16x2.f32 $0, $2, $1;", ("uint32",), ("float32", "float32"))
def to_halves(a, b):
    """The bits of two float32 rounded to float16, the first in the low half."""
    with np.errstate(over="ignore"):
        return np.array([a, b], np.float32).astype(np.float16).view(np.uint32)[0]


@assembly("cvt.rn.bf16x2.f32 $0, $2, $1;", ("uint32",), ("float32", "float32"))
def to_bfloats(a, b):
    """The bits of two float32 rounded to bfloat16, the first in the low half."""
    import ml_dtypes

    return np.array([a, b], np.float32).astype(ml_dtypes.bfloat16).view(np.uint32)[0]


@assembly(
    "{ .reg .b16 l, h, a, b, c, d; .reg .b32 p, q; mov.b32 {l, h}, $4;"
    " cvt.rn.f16x2.e4m3x2 p, l; cvt.rn.f16x2.e4m3x2 q, h; mov.b32 {a, b}, p; mov.b32 {c, d}, q;"
    " cvt.f32.f16 $0, a; cvt.f32.f16 $1, b; cvt.f32.f16 $2, c; cvt.f32.f16 $3, d; }",
    ("float32", "float32", "float32", "float32"),
    ("uint32",),
)
def from_e4m3(chunk):
    """The float32 equal to the four E4M3 codes in the bytes of a word, the lowest first."""
    import ml_dtypes

    a, b, c, d = np.array([chunk], np.uint32).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return a, b, c, d
