"""What quantizing asks of a block: its stored scale, the limit of its codes, and the code of a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..codec import Codec
from ..scalar.bits import FLOAT_MAX, INFINITY, MAGNITUDE, SIGN, ZERO, F, U, bits, bits_of, real
from ..scalar.element import element_functions, stored_magnitudes
from ..scalar.rules import block_rule, divides, te_rule
from ..scalar.scale import scale_functions

Function = Callable[..., Any]
NOTHING, UNIT = F(0.0), F(1.0)


def chooser(codec: Codec) -> Function:
    """``choose(measured, given, p, q, tensor_scale) -> (stored, factor, limit)``: the rule on one block.

    ``measured`` is as rules expect it; ``limit`` leaves out codes that would decode to infinity.
    """
    return limited(codec, block_rule(codec))


def whole_chooser(codec: Codec) -> Function:
    """``choose(measured, given) -> (found, stored, factor, limit)``: the rule on a tensor that is one block.

    ``measured`` points to the two words of measure.py; ``found`` is what the rule was given of them.
    """
    choose, combine, given_scales = chooser(codec), combiner(codec), codec.given

    @scalar
    def whole(measured, given):
        found = combine(U(measured[0]), U(measured[1]))
        real_scale = given[0] if given_scales else NOTHING
        stored, factor, limit = choose(found, real_scale, UNIT, UNIT, UNIT)
        return found, stored, factor, limit

    return whole


def limited(codec: Codec, rule: Function) -> Function:
    """A rule whose limit leaves out codes that would decode to infinity."""
    functions = element_functions(codec.element)
    largest = largest_finite(codec)
    # Up to this scale even the largest code decodes to a finite value, with room for roundings.
    safe = bits_of(min(float(FLOAT_MAX), float(FLOAT_MAX) / float(real(functions.top)) * 0.999))

    @scalar
    def choose(measured, given, p, q, tensor_scale):
        stored, factor, scale, limit = rule(measured, given, p, q, tensor_scale)
        if bits(scale) > safe:
            limit = min(limit, largest(scale))
        return stored, factor, limit

    return choose


def largest_finite(codec: Codec) -> Function:
    """``largest(scale)``: bits of the largest magnitude whose product with the scale is finite.

    A float32 product is infinite exactly where the exact one lies half a step above the largest float32.
    """
    magnitudes = stored_magnitudes(codec.element)
    patterns, last = magnitudes.view(np.uint32), len(magnitudes) - 1

    @scalar
    def largest(scale):
        at = last
        while at > 0 and bits(F(magnitudes[at] * scale)) >= INFINITY:
            at -= 1
        return patterns[at] if bits(F(magnitudes[at] * scale)) < INFINITY else ZERO

    return largest


def combiner(codec: Codec) -> Function:
    """``measured(most, highest)``: what rules expect, of the finite and of all magnitudes."""
    if codec.nonfinite == "saturate":

        @scalar
        def measured(most, highest):
            return U(most | SIGN) if highest >= INFINITY else most

    else:

        @scalar
        def measured(most, highest):
            return INFINITY if highest >= INFINITY else most

    return measured


def encoder(codec: Codec) -> Function:
    """``encode(x, factor, limit, random)``: the code of a value of a block."""
    code, scaled = element_functions(codec.element, codec.rounding, codec.nonfinite).encode, scaler(codec)

    @scalar
    def encode(x, factor, limit, random):
        return code(scaled(x, factor), limit, random)

    return encode


def scaler(codec: Codec) -> Function:
    """``scaled(x, factor)``: a value divided by the block's factor or multiplied by it, rounded once."""
    if divides(codec):
        return quotient
    return product_or_zero if codec.rule == "torchao" else product


@scalar
def quotient(x, factor):
    """x / factor."""
    return F(x / factor)


@scalar
def product(x, factor):
    """x * factor."""
    return F(x * factor)


@scalar
def product_or_zero(x, factor):
    """x * factor; 0 where a zero meets torchao's infinite reciprocal of a tiny tensor scale."""
    return F(x * factor) if x != NOTHING or factor <= FLOAT_MAX else NOTHING


def six_and_four(codec: Codec) -> tuple[Function, Function]:
    """The two rules that four_over_six chooses from: the block's maximum at 6, and at 4."""
    return limited(codec, te_rule(codec, 1.0)), limited(codec, te_rule(codec, 1.5))


def difference(codec: Codec) -> Function:
    """``squared(x, scale, factor, limit, S, random)``: (code * scale - x * S)**2, every step rounded."""
    functions = element_functions(codec.element, codec.rounding, codec.nonfinite)
    encode, decode = functions.encode, functions.decode

    @scalar
    def squared(x, scale, factor, limit, whole, random):
        decoded = F(decode(encode(F(x * factor), limit, random)) * scale)
        off = F(decoded - F(x * whole))
        return F(off * off)

    return squared


def stored_value(codec: Codec) -> Function:
    """``value(stored) -> float32``: a block's stored scale."""
    return scale_functions(codec.scale, codec.rule).decode


@scalar
def magnitude(x):
    """The bits of a magnitude: infinity and NaN come out on top."""
    return U(bits(x) & MAGNITUDE)
