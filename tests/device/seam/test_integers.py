"""Integers and bools on a device: the CPU's dtypes, values and refusals, of every element-wise op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.errors import AutoqError
from autoq.tape.apply import apply
from autoq.tape.op import REGISTRY
from tests.ops import registry

NAMES = sorted(name for name, op in REGISTRY.items() if op.elementwise and not op.variadic)
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint32")
VALUES = np.array([[0, 1, 2, 3], [5, 1, 0, 100]])
DIVISORS = np.array([1, 2, 3, 7])


def outcome(name: str, first: str, second: str, device: str) -> Any:
    """The result, or the class of the error."""
    op = REGISTRY[name]
    static = next(static for _, static in registry.samples(name))
    given = [VALUES.astype(first)] + [DIVISORS.astype(second)] * (len(op.operands) - 1)
    if name == "where":
        given[0] = VALUES.astype(bool)
    try:
        return apply(name, *[aq.tensor(x, device=device) for x in given], **static)
    except AutoqError as error:
        return type(error)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_integers_give_what_they_give_on_the_cpu(name: str, first: str, device: str) -> None:
    for second in (first, "bool", "int32") if len(REGISTRY[name].operands) > 1 else (first,):
        expected, found = outcome(name, first, second, "cpu"), outcome(name, first, second, device)
        if isinstance(expected, type):
            assert found is expected, second
            continue
        assert found.dtype == expected.dtype, second
        if expected.dtype.kind in "biu":
            np.testing.assert_array_equal(found.numpy(), expected.numpy(), err_msg=second)
        else:
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=3e-6, atol=1e-6, err_msg=second)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign", "abs", "neg", "square"])
def test_integers_of_64_bits_stay_exact(name: str, device: str) -> None:
    x = np.array([2**53 + 1, -(2**53) - 1, 2**30 + 1, 7])
    function = getattr(aq, name)
    found, expected = function(aq.tensor(x, device=device)), function(aq.tensor(x, device="cpu"))
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
@pytest.mark.parametrize("divisor", [3, -3, 2**53 - 1, -(2**40) - 1])
def test_what_64_bits_leave_over_is_exact(name: str, divisor: int, device: str) -> None:
    x = np.array([2**53 + 1, -(2**53) - 1, 2**62 + 3, -(2**62) - 5, 7, -7, 9, -9, 0])
    function = getattr(aq, name)
    for b in (divisor, np.full(9, divisor)):
        other = [b if isinstance(b, int) else aq.tensor(b, device=place) for place in (device, "cpu")]
        found, expected = (
            function(aq.tensor(x, device=device), other[0]),
            function(aq.tensor(x, device="cpu"), other[1]),
        )
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
