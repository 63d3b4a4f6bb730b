"""Codes of neighbours of a block at once: four or eight values to their bits.

The scalar source decides every code. Blocks whose limit is the format's own, which are nearly all, may take a
quicker way to the same bits; all others go by the scalar source.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..bind import scalar
from ..codec import Codec, ElementCodec
from ..scalar.bits import EXPONENT, ZERO, F, U, bits, bits_of, real
from ..scalar.philox import HALF, HALF_MASK
from ..scalar.rules import divides
from .quantize_block import encoder, scaler
from .quantize_instructions import four_e4m3, four_e5m2, permute, plus_whole
from .quotient import divisible, over, reciprocal

Function = Callable[..., Any]
# The first compute capability whose conversions to eight-bit floats are in PTX 8.0.
CONVERTS = (9, 0)
# Of two words: the low bytes of both in the low half; the low halves of both.
LOW_BYTES, BOTH_HALVES = U(0x0040), U(0x5410)
E4M3 = ("minifloat", 8, 3, 7, 448.0, -448.0, 0x7F)
E5M2 = ("minifloat", 8, 2, 15, 57344.0, -57344.0, 0x7F)
E2M1 = ("minifloat", 4, 1, 1, 6.0, -6.0, -1)


def is_format(element: ElementCodec, wanted: tuple[Any, ...]) -> bool:
    """Whether an element format is that minifloat."""
    found = (element.kind, element.bits, element.mantissa, element.bias, element.maximum, element.minimum)
    return (*found, element.nan_code) == wanted


def is_converted(element: ElementCodec) -> bool:
    """Whether devices that can convert do it for this format."""
    return is_format(element, E4M3) or is_format(element, E5M2)


def four_encoder(codec: Codec) -> Function:
    """``four(values, factor, limit, r0, r1) -> chunk``: the codes of four values, the first lowest.

    ``r0`` and ``r1`` hold the draws of stochastic rounding, two a word.
    """
    code = encoder(codec)
    one, two, three = U(codec.element.bits), U(2 * codec.element.bits), U(3 * codec.element.bits)

    @scalar
    def four(values, factor, limit, r0, r1):
        a = code(values[0], factor, limit, U(r0 & HALF_MASK))
        b = code(values[1], factor, limit, U(r0 >> HALF))
        c = code(values[2], factor, limit, U(r1 & HALF_MASK))
        d = code(values[3], factor, limit, U(r1 >> HALF))
        return U(U(a | U(b << one)) | U(U(c << two) | U(d << three)))

    return four


def eight_encoder(codec: Codec) -> Function:
    """``eight(values, factor, limit, draws) -> (low, high)``: the codes of eight values.

    They are all in ``low`` where eight fit a word, else four are in each.
    """
    four, join = four_encoder(codec), joiner(codec.element.bits)

    @scalar
    def eight(values, factor, limit, draws):
        low = four(values[0:4], factor, limit, draws[0], draws[1])
        return join(low, four(values[4:8], factor, limit, draws[2], draws[3]))

    return eight


def joiner(width: int) -> Function:
    """``join(low, high)``: two chunks of four codes as what eight are."""
    shift = U(min(4 * width, 31))

    @scalar
    def together(low, high):
        return U(low | U(high << shift)), ZERO

    @scalar
    def apart(low, high):
        return low, high

    return together if width <= 4 else apart


def quick_four(codec: Codec, converts: bool) -> Function | None:
    """``four(values, factor, r0, r1) -> chunk`` of blocks of the format's own limit, or None.

    It holds where ``certain`` says so. Tables have none, nor have formats that keep NaN in their blocks and
    aren't converted by the device.
    """
    is_nearest = codec.rounding == "nearest"
    if converts and is_nearest and is_converted(codec.element):
        return converting(codec)
    if is_nearest and codec.calibration == "abs_mean":
        return None  # what is measured says nothing of the largest value, which may need clamping
    if codec.element.kind == "integer" and is_nearest and codec.nonfinite != "saturate":
        return four_integers(codec)
    if codec.element.kind != "minifloat" or codec.element.mantissa == 0 or codec.nonfinite == "saturate":
        return None
    return four_codes(codec, nearest_code(codec.element) if is_nearest else drawn_code(codec))


def quick_eight(codec: Codec, converts: bool) -> Function | None:
    """``eight(values, factor, draws) -> (low, high)``, as ``quick_four``."""
    four = quick_four(codec, converts)
    if four is None:
        return None
    if is_format(codec.element, E2M1) and codec.rounding == "nearest":
        return eight_e2m1(codec)
    join = joiner(codec.element.bits)

    @scalar
    def eight(values, factor, draws):
        return join(
            four(values[0:4], factor, draws[0], draws[1]), four(values[4:8], factor, draws[2], draws[3])
        )

    return eight


def four_codes(codec: Codec, code: Function) -> Function:
    """``four`` by ``code(t, r)`` of a scaled value."""
    scaled = scaler(codec)
    one, two, three = U(codec.element.bits), U(2 * codec.element.bits), U(3 * codec.element.bits)

    @scalar
    def four(values, factor, r0, r1):
        a = code(scaled(values[0], factor), U(r0 & HALF_MASK))
        b = code(scaled(values[1], factor), U(r0 >> HALF))
        c = code(scaled(values[2], factor), U(r1 & HALF_MASK))
        d = code(scaled(values[3], factor), U(r1 >> HALF))
        return U(U(a | U(b << one)) | U(U(c << two) | U(d << three)))

    return four


def nearest_code(element: ElementCodec) -> Function:
    """``code(t, r)``: a minifloat to nearest even, without clamping; as scalar/minifloat.py explains."""
    m, sign_bit = element.mantissa, 1 << (element.bits - 1)
    shift, lowest = U(23 - m), U((128 - element.bias) << 23)
    carry = U(((23 - m) << 23) + (1 << 22) - ((128 - element.bias) << m))
    sign_shift, sign, places = U(32 - element.bits), U(sign_bit), U(sign_bit - 1)

    @scalar
    def code(t, r):
        e = max(U(bits(t) & EXPONENT), lowest)
        rounded = bits(F(abs(t) + real(U(e + carry))))
        place = U(U(rounded + U(e >> shift)) & places)
        return U(place | U(U(bits(t) >> sign_shift) & sign))

    return code


def drawn_code(codec: Codec) -> Function:
    """``code(t, r)``: a minifloat rounded by a 16-bit draw, as scalar/minifloat.py does.

    Whole places come of the float adder rounding down, and the carry out of the draw's sum is whether the
    magnitude is rounded up.
    """
    element, draws = codec.element, 8 if codec.rounding == "stochastic8" else 16
    m, bias, sign_bit = element.mantissa, element.bias, 1 << (element.bits - 1)
    shift, lowest, inverse = U(23 - m), U((128 - bias) << 23), U((254 + m) << 23)
    span, whole, full, spare = F(1 << draws), F(2.0**23), U(draws), U(16 - draws)
    # What stands above the low bits of the three terms, and the place of the first binade.
    base = int(bits_of(2.0**23)) + (int(bits_of(2.0**23)) >> draws) + ((128 - bias) << m)
    offset, highest = U(base), F(element.maximum)
    sign_shift, sign = U(32 - element.bits), U(sign_bit)

    @scalar
    def code(t, r):
        a = min(abs(t), highest)
        e = max(U(bits(a) & EXPONENT), lowest)
        places = F(a * real(U(inverse - e)))
        below = plus_whole(places)
        fraction = F(places - F(below - whole))
        chance = bits(F(F(fraction * span) + whole))
        away = U(U(chance + U(r >> spare)) >> full)
        place = U(U(U(bits(below) + away) + U(e >> shift)) - offset)
        return U(place | U(U(bits(t) >> sign_shift) & sign))

    return code


def four_integers(codec: Codec) -> Function:
    """``four`` of integers to nearest even: the float adder leaves them in the low bits, two's complement."""
    width, by_quotients, scaled = codec.element.bits, divides(codec), scaler(codec)
    magic, mask = F(1.5 * 2.0**23 * codec.element.step), U((1 << codec.element.bits) - 1)
    one, two, three = U(width), U(2 * width), U(3 * width)

    @scalar
    def low(t):
        return bits(F(t + magic))

    @scalar
    def joined(a, b, c, d):
        if width == 8:
            return permute(permute(a, b, LOW_BYTES), permute(c, d, LOW_BYTES), BOTH_HALVES)
        return U(U(U(a & mask) | U(U(b & mask) << one)) | U(U(U(c & mask) << two) | U(U(d & mask) << three)))

    @scalar
    def by_product(values, factor, r0, r1):
        a, b = scaled(values[0], factor), scaled(values[1], factor)
        return joined(low(a), low(b), low(scaled(values[2], factor)), low(scaled(values[3], factor)))

    @scalar
    def by_quotient(values, factor, r0, r1):
        inverse, left = reciprocal(factor)
        a, b = over(values[0], factor, inverse, left), over(values[1], factor, inverse, left)
        c, d = over(values[2], factor, inverse, left), over(values[3], factor, inverse, left)
        return joined(low(a), low(b), low(c), low(d))

    return by_quotient if by_quotients else by_product


def converting(codec: Codec) -> Function:
    """By the device's conversion: to nearest even; what lies beyond the format's largest becomes it."""
    scaled, convert = scaler(codec), four_e4m3 if is_format(codec.element, E4M3) else four_e5m2

    @scalar
    def four(values, factor, r0, r1):
        return convert(
            scaled(values[0], factor),
            scaled(values[1], factor),
            scaled(values[2], factor),
            scaled(values[3], factor),
        )

    return four


def certain(codec: Codec, converts: bool) -> Function:
    """``certain(peak, factor)``: whether the quick way holds for a block whose largest magnitude is ``peak``.

    To nearest it does where nothing rounds beyond the format's largest, so that nothing needs clamping.
    """
    clamps = codec.rounding != "nearest" or (converts and is_converted(codec.element))
    is_integer = codec.element.kind == "integer"
    if clamps or not (is_integer or codec.element.kind == "minifloat"):
        return always
    scaled, step = scaler(codec), codec.element.step if is_integer else last_step(codec.element)
    bound, by_quotients = F(codec.element.maximum + step / 2), is_integer and divides(codec)

    @scalar
    def within(peak, factor):
        return scaled(peak, factor) < bound

    @scalar
    def divisible_within(peak, factor):
        return divisible(factor) and scaled(peak, factor) < bound

    return divisible_within if by_quotients else within


def last_step(element: ElementCodec) -> float:
    """The distance of a minifloat's places beside its largest value.

    Example:
        >>> last_step(ElementCodec("e2m1", "minifloat", 4, 1, 1, 6.0, -6.0, 1.0, 7, False, -1))
        2.0
    """
    return 2.0 ** (math.frexp(element.maximum)[1] - 1 - element.mantissa)


@scalar
def always(peak, factor):
    """True."""
    return True


# E2M1's magnitudes are 0, 0.5, 1, 1.5, 2 | 3, 4 | 6: steps of 0.5 below 2, of 1 below 4, of 2 from there on.
# The float adder rounds to each of the three steps; the code is the least of the three results. What is added
# has the step as its last place; its offset counts the codes below the first that the line goes through.
STEP_HALF, STEP_ONE, STEP_TWO = F(1.5 * 2.0**22), F(1.5 * 2.0**23), F(1.5 * 2.0**24)
BASE = bits_of(1.5 * 2.0**22)
FROM_ONE = U(int(bits_of(1.5 * 2.0**23)) - int(BASE) - 2)
FROM_TWO = U(int(bits_of(1.5 * 2.0**24)) - int(BASE) - 4)
NIBBLES = tuple(U(4 * k) for k in range(8))
N1, N2, N3, N4, N5, N6, N7 = NIBBLES[1:]


def _together() -> Any:
    """What eight codes on top of BASE, shifted to their nibbles, have of BASE."""
    word = 0
    for k in range(8):
        word ^= int(BASE) << 4 * k & 0xFFFFFFFF
    return U(word)


BASES = _together()
EVEN_SIGNS, ODD_SIGNS = U(0x08080808), U(0x80808080)
# Of two words: the signs of both in the low bytes.
BOTH_SIGNS = U(0x00FB)


@scalar
def code_e2m1(t):
    """The code of |t| below 7, on top of BASE."""
    a = abs(t)
    ones = U(bits(F(a + STEP_ONE)) - FROM_ONE)
    twos = U(bits(F(a + STEP_TWO)) - FROM_TWO)
    return min(min(ones, bits(F(a + STEP_HALF))), twos)


def eight_e2m1(codec: Codec) -> Function:
    """Eight E2M1 to nearest, where every scaled magnitude is below 7: the signs by permutations of bytes."""
    scaled = scaler(codec)

    @scalar
    def eight(values, factor, draws):
        a, b = scaled(values[0], factor), scaled(values[1], factor)
        c, d = scaled(values[2], factor), scaled(values[3], factor)
        e, f = scaled(values[4], factor), scaled(values[5], factor)
        g, h = scaled(values[6], factor), scaled(values[7], factor)
        first = U(U(code_e2m1(a) ^ U(code_e2m1(b) << N1)) ^ U(code_e2m1(c) << N2))
        second = U(U(code_e2m1(d) << N3) ^ U(code_e2m1(e) << N4))
        third = U(U(U(code_e2m1(f) << N5) ^ U(code_e2m1(g) << N6)) ^ U(code_e2m1(h) << N7))
        word = U(U(U(first ^ second) ^ third) ^ BASES)
        even, odd = signs4(a, c, e, g), signs4(b, d, f, h)
        return U(U(word | U(even & EVEN_SIGNS)) | U(odd & ODD_SIGNS)), ZERO

    return eight


@scalar
def signs4(a, b, c, d):
    """A byte a number: all ones where it is negative."""
    low, high = permute(bits(a), bits(b), BOTH_SIGNS), permute(bits(c), bits(d), BOTH_SIGNS)
    return permute(low, high, BOTH_HALVES)
