"""Custom operations behave like built-in ones: type rule, tape, gradients, tiles, errors (S18)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.tape.op import REGISTRY, Op
from autoq.tape.tensor import Tensor
from tests.ops import registry

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def product(a: Any, b: Any) -> Any:
    """a * b, as a custom op's forward."""
    return a * b


RULES = {"a": lambda F, g, b: g * b, "b": lambda F, g, a: g * a}
twin = aq.custom_op(product, vjp=RULES, elementwise=True, name="twin")
RNG = np.random.default_rng(0)


def pair(dtype_a: Any, dtype_b: Any, shape: tuple[int, ...] = (3, 64)) -> tuple[Tensor, Tensor]:
    x, y = (aq.tensor(RNG.standard_normal(shape).astype(np.float32)) for _ in range(2))
    return x.astype(dtype_a), y.astype(dtype_b)


DTYPES = [aq.float64, aq.float32, aq.float16, aq.bfloat16, aq.mxfp8, aq.nvfp4, aq.fp8_e4m3, aq.mxfp8_2d]


@pytest.mark.parametrize("b", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("a", DTYPES, ids=lambda d: d.name)
def test_type_and_bits_are_those_of_the_built_in(a: Any, b: Any) -> None:
    x, y = pair(a, b)
    mine, theirs = twin(x, y), aq.mul(x, y)
    assert mine.tensor_type is theirs.tensor_type
    assert np.array_equal(mine.numpy(), theirs.numpy())
    assert twin(x, y.inhibit()).tensor_type is aq.mul(x, y.inhibit()).tensor_type
    assert twin(x, y, out_dtype="int8").tensor_type is aq.mul(x, y, out_dtype="int8").tensor_type
    assert twin(x, y).sum().tensor_type is (x * y).sum().tensor_type


def test_strict_resolution_names_the_custom_op() -> None:
    x, y = pair(aq.mxfp8, aq.float32)
    with aq.dtype_resolution("strict"), pytest.raises(aq.errors.ResolutionError, match="twin"):
        twin(x, y)


@pytest.mark.parametrize("scheme", ["mxfp8", "nvfp4", "fp8_e4m3"])
def test_gradients_are_those_of_the_built_in_and_operands_stay_packed(scheme: str) -> None:
    x, y = pair(aq.float32, aq.float32)
    found = []
    for op in (twin, aq.mul):
        a, b = (aq.tensor(t, requires_grad=True) for t in (x, y))
        out = op(a.quantize(scheme), b.quantize(scheme))
        saved = aq.Tape.of(out).saved_bytes
        out.dequantize().sum().backward()
        found.append((a.grad.numpy(), b.grad.numpy(), saved))
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2] < x.size * 3


def test_registry_checks_hold_for_a_custom_op() -> None:
    op = twin.op
    operands = (RNG.standard_normal((3, 4)), RNG.standard_normal(4))
    registry.check_gradient(op, operands, {})
    registry.check_second_gradient(op, operands, {})
    registry.check_type_rule(op, operands, {}, aq.float16)
    registry.check_quantized_operands(op, operands, {}, "mxfp8")
    registry.check_quantized_gradient(op, operands, {}, "mxfp8")
    registry.check_empty_and_0d(op, operands, {})


def test_large_packed_operands_run_tile_by_tile() -> None:
    sizes: list[int] = []

    @aq.custom_op(vjp={"x": lambda F, g: g}, elementwise=True)
    def seen(x):
        sizes.append(x.size)
        return x + 0.0

    x = RNG.standard_normal((512, 512)).astype(np.float32)
    q = aq.tensor(x, device="cpu").quantize(aq.mxfp8)  # a GPU takes all at once
    assert seen(q).qtensor.same_bits((q + 0.0).qtensor)
    assert len(sizes) > 1
    assert max(sizes) <= 1 << 16


def test_arrays_and_static_arguments_reach_the_function_as_documented() -> None:
    got: dict[str, Any] = {}

    @aq.custom_op(vjp={"x": lambda F, g, scale, shift: g * scale, "y": "it is only looked at"})
    def affine(x, y, *, scale, shift=1.0):
        got.update(x=x.dtype, y=y.dtype, scale=scale, shift=shift)
        return x * scale + shift

    x = aq.tensor([1.0, 2.0], requires_grad=True)
    out = affine(x, np.array([1, 2]), 3.0)
    assert got == {"x": np.float32, "y": np.float32, "scale": 3.0, "shift": 1.0}
    out.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    affine(aq.tensor([1.0], dtype=aq.float64), aq.tensor([1.0]), scale=2.0)
    assert got["x"] == got["y"] == np.float64
    with pytest.raises(aq.errors.GradientError, match="only looked at"):
        affine(x.detach(), x, scale=1.0).sum().backward()


def test_numbers_and_arrays_of_the_host_that_a_forward_returns_are_beside_its_operands(device: str) -> None:
    x = aq.tensor([1.0, 2.0], device=device)
    for returned in (2.5, np.float32(2.5), np.full(2, 2.5, np.float32)):
        out = aq.custom_op(lambda x, returned=returned: returned, not_differentiable="a test", name="made")(x)
        assert out.device == device
        assert np.all(out.numpy() == 2.5)


def test_a_rule_calls_another_custom_op_to_any_order() -> None:
    @aq.custom_op(vjp={"x": lambda F, g, x: g * -F(sine)(x)}, elementwise=True)
    def cosine(x):
        return np.cos(x)

    @aq.custom_op(vjp={"x": lambda F, g, x: g * F(cosine)(x)}, elementwise=True)
    def sine(x):
        return np.sin(x)

    third = aq.grad(aq.grad(aq.grad(lambda x: sine(x).sum())))
    x = aq.tensor(np.float64(0.3))
    assert third(x).item() == pytest.approx(-np.cos(0.3), abs=1e-12)


def test_registered_ops_are_found_by_name_and_unregistered_ones_are_not() -> None:
    assert "twin" not in REGISTRY
    named = aq.custom_op(product, vjp=RULES, name="named_twin", registered=True)
    try:
        double = aq.custom_op(lambda x: 2.0 * x, vjp=lambda F, g: F.named_twin(g, 2.0), name="double")
        x = aq.tensor([1.0, 2.0], requires_grad=True)
        double(x).sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]
        assert REGISTRY["named_twin"] is named.op
        with pytest.raises(aq.errors.ArgumentError, match="registered already"):
            aq.custom_op(product, vjp=RULES, name="named_twin", registered=True)
    finally:
        del REGISTRY["named_twin"]


def test_a_reduction_follows_the_rule_for_statistics() -> None:
    @aq.custom_op(vjp={"x": lambda F, g, x: g * F.sign(x)}, reduction=True, accumulates=True)
    def absolute_sum(x, *, axis=None, keepdims=False):
        return np.abs(x).sum(axis=axis, keepdims=keepdims)

    q = pair(aq.mxfp8, aq.mxfp8)[0]
    statistics = absolute_sum(q, axis=-1, keepdims=True)
    assert statistics.dtype == aq.float32
    assert statistics.propagation is aq.Propagation.INHIBIT
    assert (q / statistics).dtype == aq.mxfp8
    assert absolute_sum(q, axis=0).dtype == aq.mxfp8


def test_the_function_keeps_its_name_its_docstring_and_its_signature() -> None:
    import inspect

    made = aq.custom_op(product, vjp=RULES)
    assert made.__name__ == "product"
    assert made.__doc__ == product.__doc__
    assert list(inspect.signature(made).parameters) == ["a", "b", "out_dtype"]
    assert isinstance(made.op, Op)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "neither vjp"),
        ({"vjp": RULES, "not_differentiable": "no"}, "both vjp"),
        ({"vjp": {"a": RULES["a"]}}, r"\['a'\]"),
        ({"vjp": {**RULES, "c": RULES["a"]}}, "'c'"),
        ({"vjp": RULES["a"]}, "one for each"),
    ],
)
def test_wrong_rules_are_refused_when_the_op_is_made(options: dict[str, Any], said: str) -> None:
    with pytest.raises(aq.errors.ArgumentError, match=said):
        aq.custom_op(product, **options)


@pytest.mark.parametrize("returned", [None, "text", [1.0], aq.tensor(1.0), np.array([None])])
def test_a_forward_that_returns_no_array_is_named(returned: Any) -> None:
    op = aq.custom_op(lambda x: returned, vjp=lambda F, g: g, name="strange")
    with pytest.raises(aq.errors.DTypeError, match="strange returned"):
        op(aq.tensor([1.0]))


def test_an_op_without_a_gradient_says_why() -> None:
    op = aq.custom_op(lambda x: np.floor(x), not_differentiable="it is flat", name="flat")
    x = aq.tensor([1.5], requires_grad=True)
    with pytest.raises(aq.errors.GradientError, match="it is flat"):
        op(x)
    assert op(x.detach()).tolist() == [1.0]
