"""The passes over a tile of blocks that quantizing is made of: measure, choose scales, encode.

Every pass is a loop over blocks around a loop over values whose limit is read from ``.shape``: with a
literal limit LLVM unrolls first and then doesn't vectorize.
"""

from __future__ import annotations

import numpy as np

from ..bind import scalar
from ..codec import Codec
from ..scalar.bits import FLOAT_MAX, INFINITY, MAGNITUDE, SIGN, ZERO, F, U, bits, bits_of, real
from ..scalar.element import element_functions
from ..scalar.rules import block_rule, divides, te_rule
from ..scalar.scale import scale_functions

DOUBLE = np.float64


def measure_pass(codec: Codec):
    """``measure(x, counts, measured)``: the float32 bits of what is taken from each block, as rules expect.

    ``counts`` holds the values that aren't padding, block by block; empty where all are.
    """
    if codec.calibration == "abs_mean":
        return measure_mean_saturating if codec.nonfinite == "saturate" else measure_mean
    return measure_amax_saturating if codec.nonfinite == "saturate" else measure_amax


@scalar
def measure_amax(x, counts, measured):
    """Largest magnitude, by integers: infinity and NaN come out on top."""
    for b in range(x.shape[0]):
        most = ZERO
        for i in range(x.shape[1]):
            most = max(most, U(bits(x[b, i]) & MAGNITUDE))
        measured[b] = most


@scalar
def measure_amax_saturating(x, counts, measured):
    """Largest finite magnitude; the sign bit where something wasn't finite."""
    for b in range(x.shape[0]):
        most, highest = ZERO, ZERO
        for i in range(x.shape[1]):
            a = U(bits(x[b, i]) & MAGNITUDE)
            highest = max(highest, a)
            most = max(most, a if a < INFINITY else ZERO)
        measured[b] = U(most | SIGN) if highest >= INFINITY else most


@scalar
def measure_mean(x, counts, measured):
    """Mean magnitude; infinity's bits where something isn't finite."""
    for b in range(x.shape[0]):
        total, highest = DOUBLE(0.0), ZERO
        for i in range(x.shape[1]):
            total += DOUBLE(abs(x[b, i]))
            highest = max(highest, U(bits(x[b, i]) & MAGNITUDE))
        count = counts[b] if counts.shape[0] else x.shape[1]
        mean = F(total / DOUBLE(count))
        measured[b] = INFINITY if highest >= INFINITY else bits(mean)


@scalar
def measure_mean_saturating(x, counts, measured):
    """Mean of the finite magnitudes; the sign bit where something wasn't finite."""
    for b in range(x.shape[0]):
        total, lost = DOUBLE(0.0), 0
        for i in range(x.shape[1]):
            if U(bits(x[b, i]) & MAGNITUDE) < INFINITY:
                total += DOUBLE(abs(x[b, i]))
            else:
                lost += 1
        count = counts[b] if counts.shape[0] else x.shape[1]
        mean = bits(F(total / DOUBLE(max(count - lost, 1))))
        measured[b] = U(mean | SIGN) if lost else mean


def scale_pass(codec: Codec):
    """``choose(x, measured, given, stored, factors, limits, draws, tensor)``: a rule on every block.

    ``measured`` holds the scales' bits afterwards, ``factors`` the bits of what encodes.
    ``given`` is empty where scales aren't given, ``draws`` where codes are rounded to nearest.
    """
    if codec.rule == "four_over_six" and not codec.given:
        return four_over_six_pass(codec)
    rule, functions, given_scales = block_rule(codec), element_functions(codec.element), codec.given
    largest_finite = functions.largest_finite
    # Up to this scale even the largest code decodes to a finite value, with room for roundings.
    safe = bits_of(min(float(FLOAT_MAX), float(FLOAT_MAX) / float(real(functions.top)) * 0.999))

    @scalar
    def choose(x, measured, given, stored, factors, limits, draws, tensor):
        p, q, tensor_scale, _ = tensor
        worst = ZERO
        for b in range(measured.shape[0]):
            real_scale = given[b] if given_scales else F(0.0)
            s, factor, scale, limit = rule(measured[b], real_scale, p, q, tensor_scale)
            stored[b], factors[b], limits[b], measured[b] = s, bits(factor), limit, bits(scale)
            worst = max(worst, bits(scale))
        # Only a block near the end of float32's range can have codes that decode to infinity.
        if worst > safe:
            for b in range(measured.shape[0]):
                limits[b] = min(limits[b], largest_finite(real(measured[b])))

    return choose


def four_over_six_pass(codec: Codec):
    """The scale pass that tries the block's maximum at 6 and at 4 and keeps the smaller squared error.

    Source: "Four Over Six: More Accurate NVFP4 Quantization with Adaptive Block Scaling".
    """
    six, four, squared_error = te_rule(codec, 1.0), te_rule(codec, 1.5), squared_error_of(codec)
    largest_finite = element_functions(codec.element).largest_finite

    @scalar
    def choose(x, measured, given, stored, factors, limits, draws, tensor):
        p, q, t, whole = tensor
        for b in range(measured.shape[0]):
            s, factor, scale, limit = six(measured[b], F(0.0), p, q, t)
            s4, factor4, scale4, limit4 = four(measured[b], F(0.0), p, q, t)
            limit, limit4 = min(limit, largest_finite(scale)), min(limit4, largest_finite(scale4))
            error = squared_error(x, draws, b, s, factor, limit, whole)
            better = squared_error(x, draws, b, s4, factor4, limit4, whole) < error
            stored[b] = s4 if better else s
            factors[b] = bits(factor4 if better else factor)
            limits[b] = limit4 if better else limit

    return choose


def squared_error_of(codec: Codec):
    """``error(x, draws, b, stored, factor, limit, S)``: float32 sum, in order, of (code * s - x * S)**2."""
    functions = element_functions(codec.element, codec.rounding, codec.nonfinite)
    encode, decode, drawn = functions.encode, functions.decode, codec.rounding != "nearest"
    value = scale_functions(codec.scale, codec.rule).decode

    @scalar
    def error(x, draws, b, stored, factor, limit, whole):
        total, scale = F(0.0), value(stored)
        for i in range(x.shape[1]):
            random = U(draws[b, i]) if drawn else ZERO
            decoded = F(decode(encode(F(x[b, i] * factor), limit, random)) * scale)
            difference = F(decoded - F(x[b, i] * whole))
            total = F(total + F(difference * difference))
        return total

    return error


def encode_pass(codec: Codec):
    """``encode(x, factors, limits, draws, codes)``: the code of every value of a tile."""
    encode = element_functions(codec.element, codec.rounding, codec.nonfinite).encode
    quotient, drawn = quotient_of(codec), codec.rounding != "nearest"
    if drawn:

        @scalar
        def encode_tile(x, factors, limits, draws, codes):
            for b in range(x.shape[0]):
                factor, limit = real(factors[b]), limits[b]
                for i in range(x.shape[1]):
                    codes[b, i] = encode(quotient(x[b, i], factor), limit, U(draws[b, i]))

    else:

        @scalar
        def encode_tile(x, factors, limits, draws, codes):
            for b in range(x.shape[0]):
                factor, limit = real(factors[b]), limits[b]
                for i in range(x.shape[1]):
                    codes[b, i] = encode(quotient(x[b, i], factor), limit, ZERO)

    return encode_tile


def quotient_of(codec: Codec):
    """How a value is scaled: divided by the block's factor, or multiplied by it."""
    if divides(codec):
        return quotient
    return product_or_zero if codec.rule == "torchao" else product


@scalar
def quotient(x, factor):
    """x / factor, rounded once."""
    return F(x / factor)


@scalar
def product(x, factor):
    """x * factor, rounded once."""
    return F(x * factor)


@scalar
def product_or_zero(x, factor):
    """x * factor; 0 where a zero meets torchao's infinite reciprocal of a tiny tensor scale."""
    return F(x * factor) if x != F(0.0) or factor <= FLOAT_MAX else F(0.0)
