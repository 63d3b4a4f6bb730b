"""Packed weights as pairs of bfloat16 in registers, eight codes at a time, for the vector product.

A unit is eight codes of a row: one word of 4-bit codes or two of 8-bit ones. It becomes four uint32 of two
bfloat16 each, in an order of the codes that suits the shifts; `Form.order` tells it, so that the vector is
laid out alike. A minifloat's exponent and mantissa are shifted into bfloat16's, which gives its value times
a power of two, for subnormal codes too; products of bfloat16, which are exact here, bring it back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from ..bind import scalar
from ..codec import Codec, ElementCodec
from ..scalar.bits import F, U, real
from ..scalar.scale import scale_functions
from .decode import is_e4m3, to_bfloats
from .quantize_instructions import permute
from .vector_instructions import fused_bfloats

Function = Callable[..., Any]
BOTH = 0x00010001
SIGNS = U(0x80008000)
MINUS_ZERO = U(0x80008000)
FOUR, EIGHT = U(4), U(8)
# Weights in registers are smaller by this power of two, so that no product with a scale overflows.
SHRINK = 8
UNIT = 8
BFLOAT_BIAS, BFLOAT_MANTISSA = 127, 7


class Form(NamedTuple):
    """How the vector product reads a packed weight.

    Attributes:
        bits: Bits a code, 4 or 8.
        block: Codes that share a scale.
        folded: Whether scales are multiplied into the weights, without a rounding; else 32 codes are summed
            and the sum is scaled.
        order: The codes of a unit in the order of the bfloat16 they become.
        unit: ``unit(word, next word) -> four uint32``.
        shrink: What ``unit`` leaves the weights smaller by, as a power of two.
        scale: ``scale(stored)``: where folded two pairs of equal bfloat16, for the first and the second half
            of a thread's codes; else a float32.
        bad: ``bad(stored) -> uint32``, not 0 for a NaN; of folded scales alone, which don't hold it.
        bad_codes: ``bad_codes(word) -> uint32``, not 0 where a code is NaN; None where none is.
    """

    bits: int
    block: int
    folded: bool
    order: tuple[int, ...]
    unit: Function
    shrink: int
    scale: Function
    bad: Function
    bad_codes: Function | None


@cache
def form_of(codec: Codec, block: int) -> Form | None:
    """The form of a codec whose blocks run along the summed axis; None for codecs without one.

    Kept, since its functions are marked for the compiler.
    """
    element, folded = codec.element, codec.scale in ("ue8m0", "ue4m3")
    if block % (16 if folded else 32) or (folded and block > 32):
        return None
    order: tuple[int, ...] = (0, 4, 1, 5, 2, 6, 3, 7)
    if is_e2m1(element) and folded:
        unit, shrink = nibbles_e2m1(codec.scale == "ue8m0"), SHRINK
    elif is_e4m3(element) and codec.scale != "ue4m3":
        order, unit, shrink = (0, 2, 1, 3, 4, 6, 5, 7), bytes_e4m3, SHRINK
    elif is_integer(element, 4) and not folded:
        unit, shrink = nibbles_int4, 0
    elif is_integer(element, 8) and not folded:
        order, unit, shrink = tuple(range(UNIT)), bytes_int8, 0
    else:
        return None
    scale, bad = folded_scale(codec.scale) if folded else (summed_scale(codec), never_bad)
    bad_codes = bad_e4m3 if is_e4m3(element) else None
    return Form(element.bits, block, folded, order, unit, shrink, scale, bad, bad_codes)


def is_e2m1(element: ElementCodec) -> bool:
    """Whether it is the E2M1 of OCP Microscaling Formats."""
    return (element.kind, element.bits, element.mantissa, element.bias, element.max_code) == (
        "minifloat", 4, 1, 1, 7,
    )  # fmt: skip


def is_integer(element: ElementCodec, bits: int) -> bool:
    """Whether codes are whole numbers, two's complement."""
    return (element.kind, element.bits, element.step) == ("integer", bits, 1.0)


def power(exponent: int) -> Any:
    """A pair of bfloat16 that are this power of two."""
    return U(BOTH * ((BFLOAT_BIAS + exponent) << BFLOAT_MANTISSA))


# The first or the second nibble of each half; and what puts it where its sign is a bfloat16's, and once more
# where its magnitude is one's.
FIRST, SECOND, TO_BFLOAT = U(BOTH * 0xF), U(BOTH * 0xF0), U(BOTH * 0x81C0)
FROM_FIRST, FROM_SECOND = U((1 << 12) + (1 << 6)), U((1 << 8) + (1 << 2))


def nibbles_e2m1(grow: bool) -> Function:
    """``unit`` of E2M1, smaller by ``SHRINK`` with ``grow``; else by 126, which the scale makes good."""
    up = power(126 - SHRINK)

    @scalar
    def shifted(word, other):
        high = U(word >> EIGHT)
        a = U(U(U(word & FIRST) * FROM_FIRST) & TO_BFLOAT)
        b = U(U(U(word & SECOND) * FROM_SECOND) & TO_BFLOAT)
        c = U(U(U(high & FIRST) * FROM_FIRST) & TO_BFLOAT)
        d = U(U(U(high & SECOND) * FROM_SECOND) & TO_BFLOAT)
        return a, b, c, d

    @scalar
    def grown(word, other):
        a, b, c, d = shifted(word, other)
        return times(a, up), times(b, up), times(c, up), times(d, up)

    return grown if grow else shifted


@scalar
def times(u, v):
    """The products of two pairs of bfloat16."""
    return fused_bfloats(u, v, MINUS_ZERO)


E4M3_MAGNITUDES, E4M3_UP = U(BOTH * (0x7F << 4)), power(120 - SHRINK)


@scalar
def pairs_e4m3(word):
    """Codes 0 and 2, then 1 and 3 of a word."""
    a = U(U(U(word << FOUR) & E4M3_MAGNITUDES) | U(U(word << EIGHT) & SIGNS))
    b = U(U(U(word >> FOUR) & E4M3_MAGNITUDES) | U(word & SIGNS))
    return times(a, E4M3_UP), times(b, E4M3_UP)


@scalar
def bytes_e4m3(word, other):
    """``unit`` of E4M3."""
    a, b = pairs_e4m3(word)
    c, d = pairs_e4m3(other)
    return a, b, c, d


ALL_SEVEN, EACH_ONE, EACH_TOP = U(0x7F7F7F7F), U(0x01010101), U(0x80808080)


@scalar
def bad_e4m3(word):
    """Not 0 where one of four codes is NaN: the only magnitude that one more makes 128."""
    return U(U(U(word & ALL_SEVEN) + EACH_ONE) & EACH_TOP)


# 128 + code + 8 as bfloat16, from a nibble whose sign bit is flipped; and what takes the 136 away.
NIBBLES, NIBBLE_MAGIC, NIBBLE_DOWN, ONES = U(BOTH * 0xF), U(BOTH * 0x4308), U(BOTH * 0xC308), power(0)
TWELVE = U(12)


@scalar
def nibble_int4(word):
    """Codes 0 and 4 of a word."""
    return fused_bfloats(U(U(word & NIBBLES) ^ NIBBLE_MAGIC), ONES, NIBBLE_DOWN)


@scalar
def nibbles_int4(word, other):
    """``unit`` of 4-bit integers."""
    return (
        nibble_int4(word),
        nibble_int4(U(word >> FOUR)),
        nibble_int4(U(word >> EIGHT)),
        nibble_int4(U(word >> TWELVE)),
    )


# 2**23 + code + 128 as float32, from a byte whose sign bit is flipped.
BYTE, BYTE_MAGIC, BYTE_DOWN = U(0xFF), U(0x4B000080), F(2.0**23 + 128)
SIXTEEN, TWENTY_FOUR = U(16), U(24)


@scalar
def byte_int8(byte):
    """The value of a byte."""
    return F(real(U(byte ^ BYTE_MAGIC)) - BYTE_DOWN)


@scalar
def pairs_int8(word):
    """Codes 0 and 1, then 2 and 3 of a word."""
    a, b = byte_int8(U(word & BYTE)), byte_int8(U(U(word >> EIGHT) & BYTE))
    c, d = byte_int8(U(U(word >> SIXTEEN) & BYTE)), byte_int8(U(word >> TWENTY_FOUR))
    return to_bfloats(a, b), to_bfloats(c, d)


@scalar
def bytes_int8(word, other):
    """``unit`` of 8-bit integers."""
    a, b = pairs_int8(word)
    c, d = pairs_int8(other)
    return a, b, c, d


def folded_scale(name: str) -> tuple[Function, Function]:
    """``scale`` and ``bad`` of one-byte scales: what a code of ``unit`` is multiplied by."""
    return (two_ue4m3, bad_ue4m3) if name == "ue4m3" else (one_ue8m0, bad_ue8m0)


E4M3_FIRST, E4M3_SECOND, HALF_UP = U(0x7F), U(0x7F00), power(119)
LOW_TWICE, HIGH_TWICE = U(0x1010), U(0x3232)
E4M3_STEP, E4M3_OVER = U(BOTH << 4), U(BOTH << 11)


@scalar
def side_by_side(stored):
    """Two E4M3 scales as bfloat16, smaller by 2**120: exponent and mantissa lie alike."""
    return U(U(U(stored & E4M3_FIRST) << FOUR) | U(U(stored & E4M3_SECOND) << TWELVE))


@scalar
def two_ue4m3(stored):
    """A block's scale and the next one's, each twice, larger by 2**118: the 126 of a code less ``SHRINK``."""
    both = times(times(side_by_side(stored), HALF_UP), HALF_UP)
    return permute(both, both, LOW_TWICE), permute(both, both, HIGH_TWICE)


@scalar
def bad_ue4m3(stored):
    """Not 0 where one of two scales is NaN: the only one that a step makes the next power of two."""
    return U(U(side_by_side(stored) + E4M3_STEP) & E4M3_OVER)


UE8M0_FULL, UE8M0_LEAST = U(BOTH << 7), U(BOTH << 6)
UE8M0_STEP, UE8M0_OVER = U(1), U(0x100)


@scalar
def one_ue8m0(stored):
    """A power of two, for both blocks; the smallest, 2**-127, is the subnormal that its code alone isn't."""
    found = max(U(stored * UE8M0_FULL), UE8M0_LEAST)
    return found, found


@scalar
def bad_ue8m0(stored):
    """Not 0 for NaN, whose code is 255."""
    return U(U(stored + UE8M0_STEP) & UE8M0_OVER)


def summed_scale(codec: Codec) -> Function:
    """``scale`` of sums: the scalar source's."""
    decode = scale_functions(codec.scale, codec.rule).decode

    @scalar
    def scale(stored):
        return decode(U(stored))

    return scale


@scalar
def never_bad(stored):
    """``bad`` of scales that hold their NaN."""
    return U(0)
