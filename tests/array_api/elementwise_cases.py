"""Element-wise functions over every dtype, over special values, and over pairs of dtypes."""

from __future__ import annotations

import itertools
from typing import Any

import array_api_strict as strict
import numpy as np

from tests.array_api.cases import (
    FLOATS,
    INTEGERS,
    NUMERIC,
    SIGNED,
    SPECIAL,
    UNSIGNED,
    array,
    case,
    data,
    over,
)

FLOAT_UNARY = (
    "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 sin sinh sqrt tan tanh "
    "reciprocal signbit"
)
NUMERIC_UNARY = "abs ceil floor isfinite isinf isnan negative positive round sign square trunc real"
FLOAT_BINARY = "atan2 copysign divide hypot logaddexp nextafter"
NUMERIC_BINARY = "add floor_divide maximum minimum multiply pow remainder subtract"
COMPARISONS = "equal greater greater_equal less less_equal not_equal"
BITWISE = "bitwise_and bitwise_or bitwise_xor"
SHIFTS = "bitwise_left_shift bitwise_right_shift"
LOGICAL = "logical_and logical_or logical_xor"


def unary(function: Any, xp: Any, dtype: str) -> Any:
    return function(array(xp, data(dtype), dtype)), function(array(xp, data(dtype, (0, 2)), dtype))


def special(function: Any, xp: Any, dtype: str) -> Any:
    return function(array(xp, SPECIAL, dtype))


def special_pairs(function: Any, xp: Any, dtype: str) -> Any:
    return function(array(xp, SPECIAL[:, None], dtype), array(xp, SPECIAL, dtype))


def binary(function: Any, xp: Any, dtype: str) -> Any:
    a, b = data(dtype, (2, 1, 3)), data(dtype, (4, 1), seed=1)
    if dtype in INTEGERS:
        b = np.abs(b) + (b == 0)  # no division by 0, no negative powers
    return function(array(xp, a, dtype), array(xp, b, dtype))


def with_numbers(function: Any, xp: Any, dtype: str) -> Any:
    x = array(xp, np.abs(data(dtype)) + 1, dtype)
    return function(x, 2), function(2, x), *([function(x, 0.5)] if dtype in FLOATS else [])


def mixed(function: Any, xp: Any, dtype: str) -> Any:
    """Every other dtype of the kind; integers of both signs but for uint64, which has no wider one."""
    others = FLOATS if dtype in FLOATS else INTEGERS
    pairs = [o for o in others if not ("uint64" in (o, dtype) and (o in SIGNED or dtype in SIGNED))]
    return [function(array(xp, [1, 2], dtype), array(xp, [2, 1], other)) for other in pairs]


def shifted(function: Any, xp: Any, dtype: str) -> Any:
    return function(array(xp, data(dtype), dtype), array(xp, [0, 1, 3], dtype))


over(FLOAT_UNARY, FLOATS, unary)
over(FLOAT_UNARY, FLOATS, special)
over(NUMERIC_UNARY.replace(" sign ", " "), NUMERIC, unary)
over("sign", NUMERIC, unary)
over(NUMERIC_UNARY, FLOATS, special)
over(FLOAT_BINARY + " " + NUMERIC_BINARY + " " + COMPARISONS, FLOATS, binary)
over(FLOAT_BINARY + " " + NUMERIC_BINARY + " " + COMPARISONS, FLOATS, special_pairs)
over(FLOAT_BINARY, FLOATS, mixed)
over(FLOAT_BINARY.replace(" nextafter", ""), FLOATS, with_numbers)
over(NUMERIC_BINARY + " " + COMPARISONS, INTEGERS, binary)
over(NUMERIC_BINARY + " " + COMPARISONS, NUMERIC, mixed)
over(NUMERIC_BINARY + " " + COMPARISONS, NUMERIC, with_numbers)
over("equal not_equal", ("bool",), binary)
over(BITWISE, (*INTEGERS, "bool"), lambda f, xp, d: f(array(xp, data(d), d), array(xp, data(d, seed=1), d)))
over(BITWISE, INTEGERS, mixed)
over(BITWISE, INTEGERS, with_numbers)
over("bitwise_invert", (*INTEGERS, "bool"), unary)
over(SHIFTS, INTEGERS, shifted)
over(SHIFTS, INTEGERS, with_numbers)
over(LOGICAL, ("bool",), lambda f, xp, d: f(array(xp, [[True], [False]], d), array(xp, [True, False], d)))
over("logical_not", ("bool",), unary)

for bounds in itertools.product((None, -1, 1), (None, 2)):
    over("clip", (*SIGNED, *FLOATS), lambda f, xp, d, low, high: f(array(xp, data(d), d), low, high),
         {"low": bounds[0], "high": bounds[1]})  # fmt: skip
over("clip", UNSIGNED, lambda f, xp, d: f(array(xp, data(d), d), 2, 5))
over("clip", FLOATS, lambda f, xp, d: f(array(xp, SPECIAL, d), array(xp, -1.0, d), array(xp, 2.0, d)))
over("clip", FLOATS, lambda f, xp, d: f(array(xp, data(d, (2, 3)), d), None, array(xp, [[0.5], [-0.5]], d)))


@case("clip")
def clip_by_one_tensor(xp: Any) -> Any:
    x = array(xp, data("int16"), "int16")
    return xp.clip(x, array(xp, [-2, 0, 2], "int16"), None), xp.clip(x, max=array(xp, 3, "int16"))


def of_real_numbers(function: Any, xp: Any, dtype: str) -> Any:
    """Of the strict implementation, which refuses real numbers, what it says of complex ones."""
    x = array(xp, SPECIAL[3:], dtype)
    if xp is not strict:
        return function(x)
    found = function(strict.astype(x, strict.complex128))
    return strict.astype(found if function is strict.imag else strict.real(found), x.dtype)


over("conj imag", FLOATS, of_real_numbers)
