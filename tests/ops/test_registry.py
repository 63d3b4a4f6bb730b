"""Every op record through the checks of ``tests/ops/registry.py``, a toy op included."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.tape.op import REGISTRY, Op, register
from tests.ops import registry

CASTS = {name for name, op in REGISTRY.items() if op.kind == "cast"}
NAMES = sorted(set(REGISTRY) - CASTS)
CASES = [pytest.param(n, i, id=f"{n}-{i}") for n in NAMES for i in range(len(registry.samples(n)))]
GRADIENTS = [c for c in CASES if REGISTRY[c.values[0]].differentiable]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def case(name, i):
    operands, static = registry.samples(name)[i]
    return REGISTRY[name], operands, static


@pytest.mark.parametrize("name", NAMES)
def test_a_record_has_samples(name):
    assert registry.samples(name)


@pytest.mark.parametrize(("name", "i"), GRADIENTS)
def test_gradient_agrees_with_central_differences(name, i):
    registry.check_gradient(*case(name, i))


@pytest.mark.parametrize(("name", "i"), GRADIENTS)
def test_second_gradient_agrees_with_central_differences(name, i):
    registry.check_second_gradient(*case(name, i))


@pytest.mark.parametrize("scheme", registry.SCHEMES)
@pytest.mark.parametrize("name", NAMES)
def test_packed_operands_give_the_op_on_decoded_values_then_encoded(name, scheme):
    for i in range(len(registry.samples(name))):
        registry.check_quantized_operands(*case(name, i), scheme)


@pytest.mark.parametrize("dtype", [aq.float64, aq.float32, aq.float16, aq.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("name", NAMES)
def test_type_rule(name, dtype):
    for i in range(len(registry.samples(name))):
        op, operands, static = case(name, i)
        if op.kind == "loss" and dtype == aq.float64:
            continue  # losses of float64 have a claim of their own in tests/tape/test_types.py
        registry.check_type_rule(op, operands, static, dtype)


@pytest.mark.parametrize("scheme", ["mxfp4", "nvfp4", "int8"])
@pytest.mark.parametrize("name", sorted({c.values[0] for c in GRADIENTS}))
def test_gradients_by_packed_operands_are_those_at_the_decoded_values(name, scheme):
    for i in range(len(registry.samples(name))):
        registry.check_quantized_gradient(*case(name, i), scheme)


@pytest.mark.parametrize("name", sorted(n for n in REGISTRY if hasattr(aq, n)))
def test_public_functions_are_documented(name):
    registry.check_public_function(name)


@pytest.mark.parametrize(
    "name", [n for n in NAMES if hasattr(aq, n) or n == "getitem"]
)  # not those for rules alone
def test_empty_and_0d_operands_give_a_result_or_an_error_of_ours(name):
    for i in range(len(registry.samples(name))):
        registry.check_empty_and_0d(*case(name, i))


def test_a_toy_op_is_one_record_and_gets_every_check():
    op = register(
        Op(
            "toy_cube",
            lambda x: x * x * x,
            {"x": lambda F, g, x: g * (3.0 * F.square(x))},
            elementwise=True,
            sample=lambda rng: [((rng.standard_normal((3, 4)),), {})],
        )
    )
    try:
        ((operands, static),) = registry.samples("toy_cube")
        registry.check_gradient(op, operands, static)
        registry.check_second_gradient(op, operands, static)
        registry.check_type_rule(op, operands, static, aq.float16)
        for scheme in registry.SCHEMES:
            registry.check_quantized_operands(op, operands, static, scheme)
            registry.check_quantized_gradient(op, operands, static, scheme)
        registry.check_empty_and_0d(op, operands, static)
    finally:
        del REGISTRY["toy_cube"]


def test_a_wrong_rule_is_caught():
    wrong = Op("wrong", np.exp, {"x": lambda F, g, x: g * x}, operands=("x",), elementwise=True)
    with pytest.raises(AssertionError):
        registry.check_gradient(wrong, (np.array([0.5, 1.0]),), {})


def test_an_op_without_a_gradient_says_so():
    x = aq.tensor([1.0, 2.0], requires_grad=True)
    steps = Op("steps", np.floor, "floor is flat almost everywhere", operands=("x",), elementwise=True)
    with pytest.raises(aq.errors.GradientError, match="flat almost everywhere"):
        registry.run(steps, (x,), {})
    assert registry.run(steps, (x.detach(),), {}).tolist() == [1.0, 2.0]
