"""What every op record is checked for; a new record gets all of it for free.

For each record in the registry and each of its samples (``tests/ops/test_registry.py`` runs these):

- ``check_gradient``: in float64, the gradient of every operand against central differences, along random
  directions.
- ``check_second_gradient``: the gradient of the gradient against central differences of the first.
- ``check_quantized_operands``: packed operands give, bit for bit, the op on the decoded values, then
  encoded (or, for layout ops, the op on the values themselves; or, for products on a GPU, those values but
  for the order of their sums); for each of several schemes, all operands packed and one at a time.
- ``check_type_rule``: the dtype and flag that come out for dense, half, packed, mixed and inhibiting
  operands.
- ``check_quantized_gradient``: gradients by packed operands are those at the decoded values, and nothing
  else.
- ``check_public_function``: a docstring, a signature that says what it takes, ``out_dtype=``.
- ``check_empty_and_0d``: no crash on what has no values or no axes: a result like NumPy's, or an
  ``autoq.errors`` class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import autoq as aq
from autoq.tape.apply import apply
from autoq.tape.op import REGISTRY, Op
from tests.ops.nearby import ORDER, check_product_encoded

PRODUCTS = ("matmul", "linear")
SCHEMES = ("mxfp8", "mxfp6_e2m3", "mxfp4", "nvfp4", "int8", "int4")
STEP = 1e-6


def samples(name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The record's samples, the same in every run."""
    op = REGISTRY[name]
    return op.sample(np.random.default_rng(0)) if op.sample else []


def tracked(operands: tuple[Any, ...], op: Op) -> list[Any]:
    """Float operands that have a rule as leaves, the others as they are."""
    return [
        aq.tensor(x, requires_grad=True) if is_differentiable(x, op, i) else x for i, x in enumerate(operands)
    ]


def is_differentiable(x: Any, op: Op, i: int) -> bool:
    """Whether the operand is a float array that the op has a rule for."""
    floats = isinstance(x, np.ndarray | np.generic) and np.asarray(x).dtype.kind == "f"
    return floats and (op.variadic or op.rules[i] is not None)


def run(op: Op, operands: Any, static: dict[str, Any]) -> aq.Tensor:
    """Call the op; NumPy's 0-d results, which don't vote and would be read as numbers, as 0-d arrays."""
    return apply(op, *[np.asarray(x) if isinstance(x, np.generic) else x for x in operands], **static)


def gradients(op: Op, operands: tuple[Any, ...], static: dict[str, Any], cotangent: np.ndarray) -> list[Any]:
    """Gradients of <cotangent, op(operands)> by each operand, None where there is none."""
    inputs = tracked(operands, op)
    out = run(op, inputs, static)
    if out.requires_grad:
        out.backward(cotangent)
    return [x.grad if isinstance(x, aq.Tensor) else None for x in inputs]


def directions(operands: tuple[Any, ...], op: Op, seed: int) -> list[np.ndarray | None]:
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal(np.shape(x)) if is_differentiable(x, op, i) else None
        for i, x in enumerate(operands)
    ]


def moved(operands: tuple[Any, ...], direction: list[Any], step: float) -> tuple[Any, ...]:
    return tuple(x if d is None else x + step * d for x, d in zip(operands, direction, strict=True))


def inner(a: list[Any], b: list[Any]) -> float:
    return sum(
        float(np.sum(np.asarray(x) * y)) for x, y in zip(a, b, strict=True) if y is not None and x is not None
    )


def check_gradient(op: Op, operands: tuple[Any, ...], static: dict[str, Any]) -> None:
    with aq.no_grad():
        cotangent = np.random.default_rng(1).standard_normal(run(op, operands, static).shape)
    found = gradients(op, operands, static, cotangent)
    for seed in (2, 3):
        d = directions(operands, op, seed)
        ahead, behind = (run(op, moved(operands, d, s), static).numpy() for s in (STEP, -STEP))
        expected = float(np.sum(cotangent * (ahead - behind))) / (2 * STEP)
        got = inner([g.numpy() if g is not None else None for g in found], d)
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7, err_msg=f"{op.name} {static}")


def check_second_gradient(op: Op, operands: tuple[Any, ...], static: dict[str, Any]) -> None:
    with aq.no_grad():
        cotangent = np.random.default_rng(1).standard_normal(run(op, operands, static).shape)
    d, e = directions(operands, op, 4), directions(operands, op, 5)

    def slope(at: tuple[Any, ...]) -> float:
        found = gradients(op, at, static, cotangent)
        return inner([g.numpy() if g is not None else None for g in found], d)

    inputs = tracked(operands, op)
    out = run(op, inputs, static)
    out.backward(cotangent, create_graph=True)
    total = None
    for x, direction in zip(inputs, d, strict=True):
        if direction is not None:
            term = (x.grad * direction).sum()
            total = term if total is None else total + term
            x.grad = None
    second = [None] * len(inputs)
    if total.requires_grad:
        total.backward()
        second = [x.grad.numpy() if isinstance(x, aq.Tensor) and x.grad is not None else None for x in inputs]
    step = 1e-5
    expected = (slope(moved(operands, e, step)) - slope(moved(operands, e, -step))) / (2 * step)
    np.testing.assert_allclose(
        inner(second, e), expected, rtol=1e-5, atol=1e-6, err_msg=f"{op.name} {static}"
    )


def packed_operands(operands: tuple[Any, ...], scheme: Any, which: int | None = None) -> list[Any]:
    """Float operands with an axis as packed tensors: all of them, or the one at ``which``; others float32."""
    out = []
    for i, x in enumerate(operands):
        if not isinstance(x, np.ndarray | np.generic) or np.asarray(x).dtype.kind != "f":
            out.append(x)
        elif np.ndim(x) >= 1 and which in (None, i):
            out.append(aq.tensor(np.asarray(x, np.float32), dtype=scheme))
        else:
            out.append(aq.tensor(np.asarray(x, np.float32)))
    return out


def choices(operands: tuple[Any, ...]) -> list[int | None]:
    """All float operands packed, and each alone."""
    floats = [i for i, x in enumerate(operands) if np.asarray(x).dtype.kind == "f" and np.ndim(x)]
    return [None, *floats] if len(floats) > 1 else [None]


def check_quantized_operands(op: Op, operands: tuple[Any, ...], static: dict[str, Any], name: str) -> None:
    scheme = aq.scheme(name)
    for which in choices(operands):
        packed = packed_operands(operands, scheme, which)
        out = run(op, packed, static)
        check_encoded(op, packed, out, static)
        dense = [x.dequantize() if isinstance(x, aq.AutodiffQTensor) else x for x in packed]
        expected = run(op, dense, static)
        if type(out) is aq.AutodiffQTensor and op.kind == "update":
            check_updated(op, out, dense[0], expected)
        elif op.name in PRODUCTS and out.device != "cpu":
            check_product(op, out, dense, static)
        elif type(out) is aq.AutodiffQTensor and op.kind != "layout":
            assert out.qtensor.same_bits(expected.quantize(out.dtype).qtensor), (op.name, name, which, static)
        elif type(out) is aq.AutodiffQTensor:
            check_moved(op, out, expected, static)
        else:
            np.testing.assert_array_equal(out.numpy(), expected.numpy().astype(out.numpy().dtype))


def check_product(op: Op, out: aq.Tensor, dense: list[Any], static: dict[str, Any]) -> None:
    """On a GPU packed and decoded operands are added up in different orders."""
    if isinstance(out, aq.AutodiffQTensor):
        check_product_encoded(out, lambda *x: run(op, x, static), dense)
        return
    wide = [np.asarray(x.numpy(), np.float64) if isinstance(x, aq.Tensor) else x for x in dense]
    with aq.default_device("cpu"):
        exact, sizes = (
            run(op, wide, static),
            run(op, [None if x is None else np.abs(x) for x in wide], static),
        )
    error = np.abs(out.numpy().astype(np.float64) - exact.numpy())
    assert out.dtype == aq.float32
    assert (error <= ORDER * sizes.numpy()).all()


def check_encoded(op: Op, operands: list[Any], out: aq.Tensor, static: dict[str, Any]) -> None:
    """A float op whose float operands are all packed is encoded again, but for S13's exceptions."""
    floats = [x for x in operands if isinstance(x, aq.Tensor) and x.tensor_type.is_float]
    if op.kind != "float" or not all(isinstance(x, aq.AutodiffQTensor) for x in floats) or out.ndim == 0:
        return
    axis = static.get("axis")
    last = axis is None or any(a in (-1, floats[0].ndim - 1) for a in np.atleast_1d(axis))
    if op.reduction and static.get("keepdims") and last:
        assert out.dtype == aq.float32, (op.name, static)
        return
    assert out.dtype == floats[0].dtype.innermost(out.ndim), (op.name, static, out.dtype)


def check_moved(op: Op, out: aq.Tensor, expected: aq.Tensor, static: dict[str, Any]) -> None:
    """A layout op moves decoded values bit for bit, or encodes them once more where blocks were cut (S36)."""
    again = expected.quantize(out.dtype)
    exact = np.array_equal(out.numpy(), expected.numpy(), equal_nan=True)
    assert exact or out.qtensor.same_bits(again.qtensor), (op.name, static)


def check_updated(op: Op, out: aq.Tensor, target: aq.Tensor, expected: aq.Tensor) -> None:
    """Lines in which nothing changes keep their values; the others are encoded again (S12)."""
    changed = (expected.numpy() != target.numpy()).any(axis=-1)
    np.testing.assert_array_equal(out.numpy()[~changed], target.numpy()[~changed], err_msg=op.name)
    again = expected.quantize(out.dtype).numpy()
    if not out.dtype.tensor_scale:  # under two levels the tensor's scale stays that of the target
        np.testing.assert_array_equal(out.numpy()[changed], again[changed], err_msg=op.name)


def check_type_rule(op: Op, operands: tuple[Any, ...], static: dict[str, Any], dtype: Any) -> None:
    """Float ops give their inputs' dtype, index ops bool or int, losses float32; flags as S6 and S16 say."""
    x = [aq.tensor(v, dtype=dtype) if np.asarray(v).dtype.kind == "f" else v for v in operands]
    out = run(op, x, static)
    if op.kind == "index":
        assert out.dtype.kind in "biu"
        assert not out.requires_grad
        return
    assert out.dtype == (aq.float32 if op.kind == "loss" else dtype), op.name
    assert out.propagation is aq.Propagation.PROPAGATE
    inhibiting = [v.inhibit() if isinstance(v, aq.Tensor) else v for v in x]
    looked_up = "indices" in static or isinstance(static.get("index"), np.ndarray | tuple)
    if not (op.kind == "layout" and looked_up):
        assert run(op, inhibiting, static).propagation is aq.Propagation.INHIBIT


def check_quantized_gradient(op: Op, operands: tuple[Any, ...], static: dict[str, Any], name: str) -> None:
    packed = [
        x.detach() if isinstance(x, aq.Tensor) else x for x in packed_operands(operands, aq.scheme(name))
    ]
    decoded = [aq.tensor(x.numpy()) if isinstance(x, aq.Tensor) else x for x in packed]
    found = []
    for inputs in (packed, decoded):
        for i, x in enumerate(inputs):
            if isinstance(x, aq.Tensor) and (op.variadic or op.rules[i] is not None):
                x.requires_grad = True
        out = run(op, inputs, static)
        cotangent = np.random.default_rng(7).standard_normal(out.shape).astype(np.float32)
        out.backward(cotangent)
        found.append(
            [x.grad.numpy() if isinstance(x, aq.Tensor) and x.grad is not None else None for x in inputs]
        )
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a, b, err_msg=f"{op.name} {name} {static}")


def check_public_function(name: str) -> None:
    import inspect

    function = getattr(aq, name)
    assert function.__doc__, name
    assert "out_dtype" in inspect.signature(function).parameters or name in (
        "quantize",
        "quantize_grad",
        "astype",
    )


def check_empty_and_0d(op: Op, operands: tuple[Any, ...], static: dict[str, Any]) -> None:
    for shrink in (lambda x: x.reshape(-1)[:0], lambda x: np.array(x.reshape(-1)[0]) if x.size else x):
        changed = tuple(
            shrink(x) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in operands
        )
        try:
            with np.errstate(all="ignore"):
                out = run(op, changed, static)
        except aq.errors.AutoqError as error:
            out = error
        assert isinstance(out, aq.Tensor) or out.allowed, op.name
