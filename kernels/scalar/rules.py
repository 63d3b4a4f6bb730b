"""Scale rules: from what was measured of a block to its stored scale and what encodes its values.

Every rule is a function ``rule(measured, given, p, q, tensor_scale) -> (stored, factor, scale, limit)``:

- ``measured``: float32 bits of amax (or the mean magnitude), from infinity's on where the block isn't
  finite. Under ``saturate`` the top bit says that non-finite values were left out.
- ``given``: the given scale, 0 where none is.
- ``p, q, tensor_scale``: what ``tensor_factors`` made of the tensor's amax.
- ``stored``: bits of the stored scale. ``factor``: values are multiplied (or divided) by it.
- ``scale``: the float32 that codes are multiplied by in decoding.
- ``limit``: bits of the largest magnitude to store, 0 where all codes are 0.

Sources: OCP MX v1.0 §6.3; NVIDIA, "Pretraining Large Language Models with NVFP4" (te).
"""

from __future__ import annotations

import numpy as np

from ..bind import scalar
from ..codec import Codec
from .bits import FIELD, FLOAT_MAX, INFINITY, MAGNITUDE, SMALLEST_NORMAL, ZERO, F, U, bits, bits_of, real
from .scale import I32, SUBNORMAL_ONE, TOP_EXPONENT, exponent_rule, scale_functions

UNIT = F(1.0)
NONE = F(0.0)
INFINITE = F(np.inf)
LEAST_TORCHAO = F(2.0**-6)


def divides(codec: Codec) -> bool:
    """Whether values are divided by the factor, rather than multiplied by it."""
    return codec.scale != "ue8m0" and codec.rule not in ("te", "torchao", "four_over_six")


def block_rule(codec: Codec):
    """The rule of ``codec``, as the first lines of this file describe it."""
    if codec.scale == "ue8m0":
        return ue8m0_rule(codec)
    if codec.rule in ("te", "four_over_six"):
        return te_rule(codec, 1.0)
    if codec.rule == "torchao":
        return torchao_rule(codec)
    return quotient_rule(codec)


def top_bits(codec: Codec) -> np.uint32:
    """Bits of the largest magnitude of the element format."""
    return bits_of(max(codec.element.maximum, -codec.element.minimum))


def chooser(codec: Codec):
    """``choose(calibrated, given, measured)``: the scale to round; 1 where only non-finite values were."""
    if codec.given:

        @scalar
        def choose(calibrated, given, measured):
            return given

    elif codec.nonfinite == "saturate":

        @scalar
        def choose(calibrated, given, measured):
            return UNIT if measured > MAGNITUDE and U(measured & MAGNITUDE) == ZERO else calibrated

    else:

        @scalar
        def choose(calibrated, given, measured):
            return calibrated

    return choose


def ue8m0_rule(codec: Codec):
    """MX: a power of two."""
    exponent, choose = exponent_rule(codec.rule, codec.element.precision), chooser(codec)
    emax = int(np.frexp(codec.element.maximum)[1]) - 1
    quotient, half = codec.rule == "round_up", F(codec.element.half_range)
    top, given_scales, nan = top_bits(codec), codec.given, U(0xFF)
    offset, none = I32(emax), I32(0)

    @scalar
    def rule(measured, given, p, q, tensor_scale):
        a = U(measured & MAGNITUDE)
        bad = a >= INFINITY
        a = ZERO if bad else a
        wanted = F(real(a) / half) if quotient else real(a)
        chosen = choose(wanted, given, measured)
        # A given scale, or 1, is not an amax: nothing is subtracted from its exponent.
        down = none if given_scales or bits(chosen) != bits(wanted) else offset
        e = exponent(bits(chosen), down)
        factor = real(SUBNORMAL_ONE) if e == TOP_EXPONENT else real(U(U(TOP_EXPONENT - e) << FIELD))
        scale = real(SUBNORMAL_ONE) if e == ZERO else real(U(e << FIELD))
        limit = ZERO if bad or (given_scales and given == NONE) else top
        return (nan if bad else e), factor, scale, limit

    return rule


def quotient_rule(codec: Codec):
    """Blocks whose rounded scale divides: amax / half range, under a tensor scale over that."""
    formats, choose = scale_functions(codec.scale, codec.rule), chooser(codec)
    encode, decode, nan, smallest = formats.encode, formats.decode, formats.nan, formats.smallest
    half, top, two_level = F(codec.element.half_range), top_bits(codec), codec.two_level
    given_scales = codec.given

    @scalar
    def rule(measured, given, p, q, tensor_scale):
        a = U(measured & MAGNITUDE)
        bad = a >= INFINITY
        a = ZERO if bad else a
        wanted = F(real(a) / half)
        if two_level:
            wanted = F(wanted / p)
        chosen = choose(wanted, given, measured)
        # No scale is stored below a zero block's, except that a given 0 stays.
        least = ZERO if given_scales and chosen == NONE else smallest
        stored = max(encode(chosen), least)
        scale = decode(stored)
        if two_level:
            scale = F(p * scale)
        limit = top if scale > NONE and not bad else ZERO
        factor = scale if scale > NONE else UNIT
        return (nan if bad else stored), factor, scale, limit

    return rule


def te_rule(codec: Codec, boost: float):
    """NVFP4 as NVIDIA's training kernels compute it; ``boost`` 1.5 maps the block's maximum to 4."""
    formats, choose = scale_functions("ue4m3", "nearest"), chooser(codec)
    encode, decode, nan, top = formats.encode, formats.decode, formats.nan, top_bits(codec)
    boosted = F(boost)

    @scalar
    def rule(measured, given, p, q, tensor_scale):
        a = U(measured & MAGNITUDE)
        bad = a >= INFINITY
        a = ZERO if bad else a
        wanted = F(min(F(real(a) * p), FLOAT_MAX) * boosted)
        stored = encode(choose(wanted, given, measured))
        value = decode(stored)
        inverse = F(value * q)
        factor = min(F(UNIT / (inverse if inverse > NONE else UNIT)), FLOAT_MAX)
        limit = ZERO if bad or stored == ZERO else top
        return (nan if bad else stored), factor, F(value * tensor_scale), limit

    return rule


def torchao_rule(codec: Codec):
    """NVFP4 as torchao computes it: block scales never below 2**-6."""
    formats, choose = scale_functions("ue4m3", "nearest"), chooser(codec)
    encode, decode, nan, top = formats.encode, formats.decode, formats.nan, top_bits(codec)
    half, given_scales = F(codec.element.half_range), codec.given

    @scalar
    def rule(measured, given, p, q, tensor_scale):
        a = U(measured & MAGNITUDE)
        bad = a >= INFINITY
        a = ZERO if bad else a
        whole = FLOAT_MAX if a != ZERO else NONE
        wanted = F(F(real(a) / half) / p) if p > NONE else whole
        stored = encode(max(choose(wanted, given, measured), LEAST_TORCHAO))
        value = decode(stored)
        limit = ZERO if bad or (given_scales and given == NONE) else top
        return (nan if bad else stored), F(q / value), F(value * tensor_scale), limit

    return rule


def tensor_factors(codec: Codec):
    """``factors(amax) -> (p, q, tensor_scale, S)``: the tensor's part of a two-level rule.

    ``S`` is what rule ``te`` multiplies the tensor by, 1 in other rules.
    """
    if not codec.two_level:
        return single_level
    largest = F(codec.element.maximum)
    formats = scale_functions(codec.scale, codec.rule)
    product = F(codec.element.maximum * formats.maximum)
    part, half, maximum = F(1 / largest), F(codec.element.half_range), F(formats.maximum)

    @scalar
    def te(amax):
        scale = min(F(product / amax), FLOAT_MAX) if amax > NONE else UNIT
        scale = UNIT if scale == NONE else scale
        return F(scale * part), F(UNIT / scale), F(amax / product), scale

    @scalar
    def torchao(amax):
        g = F(amax / product)
        return g, (F(UNIT / g) if g > NONE else INFINITE), g, UNIT

    @scalar
    def quotient(amax):
        g = max(F(F(amax / half) / maximum), SMALLEST_NORMAL)
        return g, UNIT, g, UNIT

    return {"te": te, "four_over_six": te, "torchao": torchao}.get(codec.rule, quotient)


@scalar
def single_level(amax):
    """No tensor scale."""
    return UNIT, UNIT, UNIT, UNIT
