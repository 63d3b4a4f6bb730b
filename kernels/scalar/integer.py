"""Integers: two's complement codes times a step, encoded by the float adder's rounding."""

from __future__ import annotations

from ..bind import scalar
from ..codec import ElementCodec
from .bits import ZERO, F, U, bits, real


def encoder(element: ElementCodec, rounding: str, keep_nan: bool):
    """``encode(t, limit, r)``: the code of a scaled value, clamped, then rounded half to even.

    ``limit`` holds the bits of the largest magnitude to store, 0 for a block without codes.
    """
    low, high = F(element.minimum), F(element.maximum)
    mask = U((1 << element.bits) - 1)
    # Adding 1.5 * 2**23 steps leaves the number of steps in the low bits, two's complement.
    magic = F(1.5 * 2.0**23 * element.step)
    place = rounder(element, rounding)

    @scalar
    def encode(t, limit, r):
        reach = real(limit)
        top, bottom = min(high, reach), max(low, F(-reach))
        x = top if t > top else t
        x = bottom if x < bottom else x
        kept = mask if limit != ZERO else ZERO
        return U(bits(F(place(x, r) + magic)) & kept)

    if not keep_nan:
        return encode

    @scalar
    def encode_nan(t, limit, r):
        return encode(t if t == t else F(0.0), limit, r)

    return encode_nan


def rounder(element: ElementCodec, rounding: str):
    """``place(x, r)``: what the adder is given, already whole under stochastic rounding."""
    if rounding != "nearest":
        return stochastic(element, rounding)

    @scalar
    def place(x, r):
        return x

    return place


def stochastic(element: ElementCodec, rounding: str):
    """A function rounding to a whole number of steps, away from zero with the probability of the fraction."""
    draw_bits = 8 if rounding == "stochastic8" else 16
    per_step, step, span = F(1 / element.step), F(element.step), F(1 << draw_bits)
    whole, spare, full = F(1 << 23), U(16 - draw_bits), F(1 << draw_bits)

    @scalar
    def round_steps(t, r):
        # NaN only reaches a block without codes, but its integer would be undefined.
        x = t if t == t else F(0.0)
        steps = F(abs(x) * per_step)
        below = F(U(steps))
        chance = F(F(F(F(steps - below) * span) + whole) - whole)
        away = F(1.0) if F(chance + F(U(r >> spare))) >= full else F(0.0)
        rounded = F(F(below + away) * step)
        return F(-rounded) if x < F(0.0) else rounded

    return round_steps


def decoder(element: ElementCodec):
    """``decode(code)``: the float32 value of a two's complement code."""
    flip = U(1 << (element.bits - 1))
    # 2**23 + n in float32 has n in its low bits; the offset undoes the flip of the sign bit.
    exponent, offset = U(0x4B000000), F(float(2**23 + (1 << (element.bits - 1))))
    mask, step = U((1 << element.bits) - 1), F(element.step)

    @scalar
    def decode(c):
        return F(F(real(U(U(U(c & mask) ^ flip) | exponent)) - offset) * step)

    return decode
