"""Special cases in the words of the standard, with values that owe nothing to another library."""

from __future__ import annotations

import math

import numpy as np
import pytest

import autoq as aq

INF, NAN, PI = math.inf, math.nan, math.pi
BINARY = {
    "pow": [
        (NAN, 0.0, 1.0), (2.0, -0.0, 1.0), (1.0, NAN, 1.0), (NAN, 2.0, NAN), (2.0, INF, INF), (0.5, INF, 0.0),
        (-1.0, INF, 1.0), (2.0, -INF, 0.0), (0.5, -INF, INF), (INF, 2.0, INF), (INF, -2.0, 0.0),
        (-INF, 3.0, -INF), (-INF, 2.0, INF), (-INF, -3.0, -0.0), (-INF, -2.0, 0.0), (0.0, 3.0, 0.0),
        (0.0, -3.0, INF), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, -3.0, -INF), (-0.0, -2.0, INF),
        (-2.0, 0.25, NAN),
    ],
    "atan2": [
        (NAN, 1.0, NAN), (1.0, NAN, NAN), (1.0, 0.0, PI / 2), (1.0, -0.0, PI / 2), (0.0, 1.0, 0.0),
        (0.0, 0.0, 0.0), (0.0, -0.0, PI), (0.0, -1.0, PI), (-0.0, 1.0, -0.0), (-0.0, 0.0, -0.0),
        (-0.0, -0.0, -PI), (-0.0, -1.0, -PI), (-1.0, 0.0, -PI / 2), (1.0, INF, 0.0), (1.0, -INF, PI),
        (-1.0, INF, -0.0), (-1.0, -INF, -PI), (INF, 1.0, PI / 2), (-INF, 1.0, -PI / 2), (INF, INF, PI / 4),
        (INF, -INF, 3 * PI / 4), (-INF, INF, -PI / 4), (-INF, -INF, -3 * PI / 4),
    ],
    "hypot": [
        (INF, NAN, INF), (-INF, 1.0, INF), (NAN, -INF, INF), (NAN, 1.0, NAN), (1.0, NAN, NAN),
        (0.0, -0.0, 0.0), (3e30, 4e30, 5e30),
    ],
    "copysign": [(1.0, -0.0, -1.0), (-1.0, 0.0, 1.0), (0.0, -3.0, -0.0), (NAN, 1.0, NAN), (INF, -1.0, -INF)],
    "divide": [
        (INF, INF, NAN), (0.0, 0.0, NAN), (1.0, 0.0, INF), (1.0, -0.0, -INF), (-1.0, 0.0, -INF),
        (0.0, -2.0, -0.0), (-INF, 2.0, -INF), (2.0, -INF, -0.0),
    ],
    "add": [(INF, -INF, NAN), (-0.0, -0.0, -0.0), (-0.0, 0.0, 0.0), (INF, 1.0, INF), (NAN, 1.0, NAN)],
    "multiply": [(INF, 0.0, NAN), (-0.0, 2.0, -0.0), (-INF, -INF, INF), (INF, -1.0, -INF)],
    "remainder": [(0.0, -2.0, -0.0), (-0.0, 2.0, 0.0), (INF, 2.0, NAN), (5.0, -3.0, -1.0), (2.0, INF, 2.0),
                  (1.0, 0.0, NAN), (1.0, NAN, NAN)],
    "floor_divide": [(5.0, -3.0, -2.0), (1.0, INF, 0.0), (INF, INF, NAN), (0.0, 0.0, NAN), (1.0, 0.0, INF)],
    "maximum": [(NAN, 1.0, NAN), (1.0, NAN, NAN), (INF, 1.0, INF)],
    "minimum": [(NAN, 1.0, NAN), (1.0, NAN, NAN), (-INF, 1.0, -INF)],
    "logaddexp": [(NAN, 1.0, NAN), (INF, 1.0, INF), (-INF, -INF, -INF), (-INF, 1.0, 1.0)],
    "nextafter": [(0.0, -0.0, -0.0), (-0.0, 0.0, 0.0), (NAN, 1.0, NAN), (1.0, NAN, NAN), (INF, INF, INF)],
}  # fmt: skip
UNARY = {
    "acos": [(2.0, NAN), (-2.0, NAN), (1.0, 0.0)],
    "acosh": [(0.5, NAN), (1.0, 0.0), (INF, INF)],
    "asin": [(2.0, NAN), (-0.0, -0.0)],
    "asinh": [(-0.0, -0.0), (-INF, -INF)],
    "atan": [(-0.0, -0.0), (INF, PI / 2), (-INF, -PI / 2)],
    "atanh": [(1.0, INF), (-1.0, -INF), (1.5, NAN), (-0.0, -0.0)],
    "ceil": [(-0.5, -0.0), (INF, INF), (-0.0, -0.0)],
    "floor": [(-0.5, -1.0), (-INF, -INF), (-0.0, -0.0)],
    "trunc": [(-0.5, -0.0), (-0.0, -0.0), (INF, INF)],
    "round": [(0.5, 0.0), (1.5, 2.0), (-0.5, -0.0), (2.5, 2.0), (-INF, -INF)],
    "cos": [(0.0, 1.0), (INF, NAN)],
    "sin": [(-0.0, -0.0), (INF, NAN)],
    "tan": [(-0.0, -0.0), (-INF, NAN)],
    "cosh": [(0.0, 1.0), (-INF, INF)],
    "sinh": [(-0.0, -0.0), (-INF, -INF)],
    "tanh": [(-0.0, -0.0), (INF, 1.0), (-INF, -1.0)],
    "exp": [(-INF, 0.0), (INF, INF), (-0.0, 1.0)],
    "expm1": [(-INF, -1.0), (-0.0, -0.0), (INF, INF)],
    "log": [(0.0, -INF), (-0.0, -INF), (-1.0, NAN), (1.0, 0.0), (INF, INF)],
    "log1p": [(-1.0, -INF), (-2.0, NAN), (-0.0, -0.0), (INF, INF)],
    "log2": [(0.0, -INF), (-1.0, NAN), (8.0, 3.0)],
    "log10": [(0.0, -INF), (-1.0, NAN), (100.0, 2.0)],
    "sqrt": [(-1.0, NAN), (-0.0, -0.0), (INF, INF)],
    "sign": [(-0.0, 0.0), (NAN, NAN), (-INF, -1.0), (INF, 1.0)],
    "abs": [(-0.0, 0.0), (-INF, INF), (NAN, NAN)],
    "reciprocal": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -0.0)],
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [aq.float32, aq.float64], ids=str)
@pytest.mark.parametrize("name", [*BINARY, *UNARY])
def test_special_cases(name, dtype):
    for *operands, expected in BINARY.get(name) or UNARY[name]:
        got = getattr(aq, name)(*[aq.asarray([x], dtype=dtype) for x in operands]).numpy()[0]
        np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=f"{name}{tuple(operands)}")
        if expected == 0 and name != "sign":  # of whose zero the standard says no sign
            assert np.signbit(got) == np.signbit(expected), f"{name}{tuple(operands)}"


def test_signbit_sees_the_sign_of_zeros_and_nans():
    values = [0.0, -0.0, INF, -INF, -1.0, math.copysign(NAN, -1.0), math.copysign(NAN, 1.0)]
    assert aq.signbit(values).tolist() == [False, True, False, True, True, True, False]


def test_logical_functions_read_bools():
    a, b = aq.asarray([True, True, False, False]), aq.asarray([True, False, True, False])
    assert aq.logical_xor(a, b).tolist() == [False, True, True, False]
    assert (a ^ b).tolist() == [False, True, True, False]
