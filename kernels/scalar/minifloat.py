"""Minifloats: sign, exponent and mantissa in at most 8 bits, encoded and decoded by float32 arithmetic.

Source: OCP 8-bit Floating Point v1.0; OCP Microscaling Formats (MX) v1.0 §5.3.
"""

from __future__ import annotations

from ..bind import scalar
from ..codec import ElementCodec
from .bits import EXPONENT, INFINITY, MAGNITUDE, NAN, ZERO, F, U, bits, bits_of, real


def nearest(mantissa: int, bias: int):
    """A function rounding a magnitude to the nearest code, ties to the even one.

    It takes and returns uint32: the bits of a magnitude that is at most the largest value, the code.
    Adding 1.5 times a power of two whose last place is the format's makes the float adder round, and leaves
    the number of places in the low bits, from which the added number has already taken the exponent's base.
    """
    shift, lowest = U(23 - mantissa), U((128 - bias) << 23)
    carry, low_bits = U(((23 - mantissa) << 23) + (1 << 22) - ((128 - bias) << mantissa)), U((1 << 22) - 1)

    @scalar
    def round_nearest(a):
        e = max(U(a & EXPONENT), lowest)
        rounded = bits(F(real(a) + real(U(e + carry))))
        return U(U(rounded + U(e >> shift)) & low_bits)

    return round_nearest


def stochastic(mantissa: int, bias: int, draw_bits: int):
    """A function rounding a magnitude up with the probability of its fraction of a step.

    Away from zero iff ``rne(fraction * 2**n) + r >= 2**n`` for the top ``n = draw_bits`` of a 16-bit draw.
    """
    shift, lowest, base = U(23 - mantissa), U((128 - bias) << 23), U((128 - bias) << mantissa)
    inverse = U((254 + mantissa) << 23)
    span, integer, spare = F(1 << draw_bits), bits_of(1 << 23), U(16 - draw_bits)
    whole, full = F(1 << 23), U(1 << draw_bits)

    @scalar
    def round_stochastic(a, r):
        e = max(U(a & EXPONENT), lowest)
        places = F(real(a) * real(U(inverse - e)))
        below = U(places)
        fraction = F(places - F(below))
        chance = U(bits(F(F(fraction * span) + whole)) - integer)
        away = U(U(chance + U(r >> spare)) >= full)
        return U(U(below + away) + U(U(e >> shift) - base))

    return round_stochastic


def rounder(element: ElementCodec, rounding: str):
    """``place(a, r)``: the code of a magnitude within the range, by the way of rounding."""
    if rounding != "nearest":
        return stochastic(element.mantissa, element.bias, 8 if rounding == "stochastic8" else 16)
    round_nearest = nearest(element.mantissa, element.bias)

    @scalar
    def place(a, r):
        return round_nearest(a)

    return place


def encoder(element: ElementCodec, rounding: str, keep_nan: bool):
    """``encode(t, limit, r)``: the code of a scaled value.

    ``limit`` holds the bits of the largest magnitude to store, 0 for a block without codes; ``r`` is a
    16-bit draw, ignored when rounding to nearest. With ``keep_nan``, NaN becomes the format's NaN or 0,
    whatever the limit.
    """
    sign_shift, sign_bit = U(32 - element.bits), U(1 << (element.bits - 1))
    nan_code = U(max(element.nan_code, 0))
    place = rounder(element, rounding)

    @scalar
    def encode(t, limit, r):
        u = bits(t)
        kept = sign_bit if limit != ZERO else ZERO
        return U(place(min(U(u & MAGNITUDE), limit), r) | U(U(u >> sign_shift) & kept))

    if not keep_nan:
        return encode

    @scalar
    def encode_nan(t, limit, r):
        return nan_code if U(bits(t) & MAGNITUDE) > INFINITY else encode(t, limit, r)

    return encode_nan


def decoder(element: ElementCodec):
    """``decode(code)``: the float32 value of a code.

    Normal codes are shifted into place; subnormal ones get the implicit one and lose it by a subtraction,
    so that no float32 subnormal is multiplied.
    """
    m, bias = element.mantissa, element.bias
    magnitude, sign_shift = U((1 << (element.bits - 1)) - 1), U(32 - element.bits)
    sign_bit, shift, normal = U(1 << (element.bits - 1)), U(23 - m), U(1 << m)
    offset, subnormal, least = U((127 - bias) << 23), U((128 - bias) << 23), F(2.0 ** (1 - bias))

    @scalar
    def decode(c):
        a = U(c & magnitude)
        v = U(a << shift)
        r = real(U(v + offset)) if a >= normal else F(real(U(v + subnormal)) - least)
        return real(U(bits(r) | U(U(c & sign_bit) << sign_shift)))

    top = U(element.max_code)
    if element.max_code == (1 << (element.bits - 1)) - 1:
        return decode
    # The codes above the largest: IEEE infinity and NaN keep their mantissa, otherwise all are NaN.
    special = EXPONENT if element.has_inf else NAN

    @scalar
    def decode_special(c):
        x = bits(decode(c))
        return real(U(x | special) if U(c & magnitude) > top else x)

    return decode_special


def steps_up(mantissa: int, bias: int, top: float):
    """A function rounding a real scale up: the smallest code of a value at least ``s``, at most ``top``'s."""
    round_nearest, limit = nearest(mantissa, bias), bits_of(top)
    value = magnitude(mantissa, bias)

    @scalar
    def round_up(s):
        a = min(bits(s), limit)
        code = round_nearest(a)
        return U(code + U(value(code) < real(a)))

    return round_up


def magnitude(mantissa: int, bias: int):
    """A function decoding an unsigned code, NaN and infinity not regarded."""
    shift, normal = U(23 - mantissa), U(1 << mantissa)
    offset, subnormal = U((127 - bias) << 23), U((128 - bias) << 23)
    least = F(2.0 ** (1 - bias))

    @scalar
    def value(code):
        v = U(code << shift)
        return real(U(v + offset)) if code >= normal else F(real(U(v + subnormal)) - least)

    return value
