"""Expressions of functions: every element-wise op has one, with NumPy's results, or a reason why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda.functions import OPERATIONS
from autoq.kernels.cuda.trace import Traced, parameters_of, source_of, traced
from autoq.ops.on_device.elementwise import forward_expression, plain_key, rule_expression
from autoq.tape.op import REGISTRY

WHOLE = "works on the bits of integers"
UNTRACED = {
    "bitwise_and": WHOLE,
    "bitwise_or": WHOLE,
    "bitwise_xor": WHOLE,
    "bitwise_left_shift": WHOLE,
    "bitwise_right_shift": WHOLE,
    "bitwise_invert": WHOLE,
}
ELEMENTWISE = [op for op in REGISTRY.values() if op.elementwise]


def evaluated(found: Traced, *operands: Any) -> Any:
    """An expression computed value by value in the interpreter."""
    text, names = source_of(found.expression)
    exec(text, names)
    wanted = {f"x{i}": x for i, x in enumerate(operands)} | {f"p{j}": p for j, p in enumerate(found.numbers)}
    arrays = np.broadcast_arrays(*[wanted[name] for name in parameters_of(found.expression)])
    with np.errstate(all="ignore"):
        values = [names["compute"](*each) for each in zip(*[a.reshape(-1) for a in arrays], strict=True)]
    return np.array(values).reshape(arrays[0].shape)


def edges() -> tuple[np.ndarray, np.ndarray]:
    """Pairs of values at which functions are special, and some random ones."""
    single = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 3e38, 1e-20]
    a, b = np.meshgrid(np.array(single, np.float32), np.array(single, np.float32))
    rng = np.random.default_rng(0)
    more = rng.standard_normal((2, 200)).astype(np.float32) * 4
    return np.concatenate([a.reshape(-1), more[0]]), np.concatenate([b.reshape(-1), more[1]])


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_every_elementwise_op_has_an_expression_or_a_reason_why_not(op: Any) -> None:
    kinds = "b" * (op.name == "where") + "f" * (len(op.operands) - (op.name == "where"))
    found = forward_expression(op, kinds, plain_key(dict(op.defaults)) or ())
    assert (found is None) == (op.name in UNTRACED)


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if op.differentiable], ids=lambda op: op.name)
def test_every_gradient_rule_has_an_expression(op: Any) -> None:
    for rule in filter(None, op.rules):
        fixed = {at: op.defaults[read.key] for at, read in enumerate(rule.reads) if read.source == "static"}
        key, kinds = plain_key(fixed), "f"
        assert key is not None
        for at, read in enumerate(rule.reads):
            kinds += "n" if at in fixed else "b" if op.operands[read.key] == "condition" else "f"
        assert rule_expression(rule, kinds, key) is not None


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if op.name not in UNTRACED], ids=lambda op: op.name)
def test_expressions_have_the_results_of_numpy_at_the_edges(op: Any) -> None:
    a, b = edges()
    operands = {1: (a,), 2: (a, b), 3: (a > 0, a, b)}[len(op.operands)]
    found = forward_expression(
        op, "fff"[: len(operands)] if len(operands) < 3 else "bff", plain_key(dict(op.defaults))
    )
    assert found is not None
    with np.errstate(all="ignore"):
        expected = np.asarray(op.forward(*operands, **op.defaults))
    result = evaluated(found, *operands)
    np.testing.assert_allclose(result, expected, rtol=4e-6, atol=1e-44)


EXACT = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "sqrt": np.sqrt,
    "square": np.square, "absolute": np.absolute, "negative": np.negative, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "rint": np.rint, "copysign": np.copysign, "nextafter": np.nextafter, "fmod": np.fmod,
    "remainder": np.remainder, "floor_divide": np.floor_divide, "sign": np.sign, "reciprocal": np.reciprocal,
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_exact_operations_have_the_bits_of_numpy(name: str) -> None:
    a, b = edges()
    operands = (a, b) if len(OPERATIONS[name].takes) == 2 else (a,)
    found = traced(EXACT[name], "f" * len(operands))
    assert found is not None
    with np.errstate(all="ignore"):
        expected = EXACT[name](*operands)
    result, nan = evaluated(found, *operands), np.isnan(expected)
    assert np.array_equal(np.isnan(result), nan)
    assert result[~nan].tobytes() == expected[~nan].tobytes()


@pytest.mark.parametrize("exponent", [2, 0.5, -1, 1, 3, 0, 2.5])
def test_powers_that_numpy_has_arithmetic_for(exponent: float) -> None:
    a, _ = edges()
    found = traced(np.power, "fn")
    assert found is not None
    with np.errstate(all="ignore"):
        result = evaluated(found._replace(numbers=(np.float32(exponent),)), a)
        np.testing.assert_allclose(result, a**exponent, rtol=3e-6)


def test_equal_functions_have_one_expression() -> None:
    one, two = traced(lambda x: x * 0.3 + 0.7, "f"), traced(lambda x: x * 0.4 + 0.8, "f")
    assert one is not None
    assert two is not None
    assert one.expression is two.expression
    assert one.numbers == pytest.approx((0.3, 0.7))
    assert traced(lambda x: x * 2.0, "f").expression is not traced(lambda x: x * 0.5, "f").expression  # type: ignore[union-attr]


def test_zeros_of_both_signs_are_two_constants() -> None:
    plus, minus = traced(lambda x: np.maximum(0.0, x), "f"), traced(lambda x: np.maximum(-0.0, x), "f")
    assert plus is not None
    assert minus is not None
    assert plus.expression is not minus.expression
    assert np.signbit(evaluated(minus, np.array([-0.0], np.float32)))[0]


def test_what_is_computed_once_is_written_once() -> None:
    found = traced(lambda x: np.exp(x) / (1.0 + np.exp(x)), "f")
    assert found is not None
    assert sum(step[0] == "exp" for step in found.expression.steps) == 1


def test_in_place_operators_change_what_the_name_stands_for() -> None:
    def function(x: Any) -> Any:
        y = x * 2.0
        z = y
        y += 1.0
        return z * y

    found = traced(function, "f")
    assert found is not None
    x = np.array([3.0], np.float32)
    assert evaluated(found, x) == function(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x if x > 0 else -x,
        lambda x: x - x.mean(),
        lambda x: x * np.sum(x),
        lambda x: np.sort(x),
        lambda x: float(x) + x,
        lambda x: x.astype(np.float64),
        lambda x: x * np.float64(3.0),
        lambda x: x + np.ones(3),
        lambda x: 1.0,
        lambda x: list(x),
        lambda x: np.add(x, x, where=x > 0),
        lambda x: (x > 0) - (x < 0),
    ],
)
def test_what_is_no_expression_is_none(function: Callable[..., Any]) -> None:
    assert traced(function, "f") is None


def test_truth_values_are_numbers_in_arithmetic() -> None:
    found = traced(lambda x: x * (x > 1.0) * np.less(x, 3.0), "f")
    assert found is not None
    x = np.array([0.5, 2.0, 4.0], np.float32)
    assert evaluated(found, x).tolist() == [0.0, 2.0, 0.0]


def test_a_custom_op_has_an_expression() -> None:
    @aq.custom_op(vjp={"x": lambda F, g, x: g * (3.0 * x * x)}, elementwise=True)
    def cubed(x: Any) -> Any:
        return x * x * x

    found = forward_expression(cubed.op, "f", ())  # type: ignore[attr-defined]
    assert found is not None
    assert [step[0] for step in found.expression.steps] == ["operand", "multiply", "multiply"]
