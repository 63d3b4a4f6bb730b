"""Burn's cases of operations on quantized tensors, run on autoq's functions.

An expression is a prefix tree ``["op", operand, args…]`` over the case's tensors; `OPS` translates Burn's
methods.
"""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

import autoq as aq
from autoq.errors import AutoqError
from tests.ops.nearby import check_product_encoded

CASES = json.loads((Path(__file__).parent.parent / "data/cases/block_quantization_cases.json").read_text())
CASES = {case["name"]: case for case in CASES if case["name"].startswith("ops/")}
PER_TENSOR, PER_BLOCK = aq.QuantScheme("int8", None), aq.QuantScheme("int8", (16,))


def split_by_size(t, size, axis):
    return aq.split(t, list(range(size, t.shape[axis], size)) if size and axis < t.ndim else size, axis=axis)


def narrow(t, axis, start, length):
    # A slice would stop at the end of the axis: an index beyond it doesn't.
    if axis < t.ndim and start + length <= t.shape[axis]:
        return t[(slice(None),) * axis + (slice(start, start + length),)]
    return aq.take(t, np.arange(start, start + length), axis=axis)


def expand(t, shape):
    missing = len(shape) - t.ndim
    return aq.broadcast_to(
        t, [t.shape[i - missing] if n == -1 and i >= missing else n for i, n in enumerate(shape)]
    )


def slices(index):
    def one(text):
        start, _, stop = text.partition("..")
        return slice(int(start) if start else None, int(stop) if stop else None)

    return tuple(one(text) for text in index["slice"])


def calibrated_again(t, change):
    """Burn measures the scale of the whole tensor again, where ours stays: so what changes is decoded."""
    return aq.quantize(change(t.dequantize()), t.dtype)


def added(scatter):
    """Burn's assignments in the only mode that it has: adding."""

    def assign(t, axis, indices, values, mode):
        assert mode == "add"
        return calibrated_again(t, lambda x: scatter(x, indices, values, axis))

    return assign


def sorted_with_indices(t, axis, descending=False):
    return aq.sort(t, axis=axis, descending=descending), aq.argsort(t, axis=axis, descending=descending)


def repeated(t, axis, times):
    return aq.tile(t, [times if i == axis else 1 for i in range(t.ndim)])


OPS = {
    "abs": aq.abs, "add": aq.add, "add_scalar": aq.add, "mul_scalar": aq.mul, "div": aq.div,
    "div_scalar": aq.div, "neg": aq.neg, "exp": aq.exp, "log": aq.log, "erf": aq.erf, "tanh": aq.tanh,
    "powf": aq.pow, "powf_scalar": aq.pow, "matmul": aq.matmul, "reshape": aq.reshape,
    "permute": aq.permute_dims,
    "mean": lambda t: aq.mean(t).reshape((1,)),
    "sum_dim": lambda t, axis: aq.sum(t, axis=axis, keepdims=True),
    "min_dim": lambda t, axis: aq.min(t, axis=axis, keepdims=True),
    "max_dim_with_indices": lambda t, axis: (aq.max(t, axis=axis, keepdims=True), None),
    "argmax": lambda t, axis: aq.argmax(t, axis=axis, keepdims=True),
    "argmin": lambda t, axis: aq.argmin(t, axis=axis, keepdims=True),
    "all": lambda t: aq.all(t).reshape((1,)), "any": lambda t: aq.any(t).reshape((1,)),
    "any_dim": lambda t, axis: aq.any(t, axis=axis, keepdims=True),
    "cat": lambda parts, axis: aq.concat(parts, axis=axis),
    "stack": lambda parts, axis: aq.stack(parts, axis=axis),
    "split": split_by_size,
    "chunk": lambda t, n, axis: split_by_size(t, -(-t.shape[axis] // n) if axis < t.ndim else n, axis),
    # Burn leaves empty parts out.
    "split_with_sizes": lambda t, sizes, axis: aq.split(t, list(accumulate(filter(None, sizes)))[:-1], axis),
    "clamp": lambda t, low, high: aq.clip(t, low, high),
    "clamp_min": lambda t, low: aq.clip(t, low, None), "clamp_max": lambda t, high: aq.clip(t, None, high),
    "max_pair": aq.maximum, "min_pair": aq.minimum,
    "expand": expand, "narrow": narrow, "slice": lambda t, index: t[slices(index)],
    "flip": lambda t, axes: aq.flip(t, axis=tuple(axes)),
    "transpose": aq.matrix_transpose,
    "swap_dims": lambda t, a, b: aq.permute_dims(t, swapped(t.ndim, a, b)),
    "select": lambda t, axis, indices: aq.take(t, indices, axis=axis),
    "gather": lambda t, axis, indices: aq.take_along_axis(t, indices, axis=axis),
    "equal": aq.equal, "not_equal": aq.not_equal, "greater": aq.greater, "lower": aq.less,
    "greater_equal": aq.greater_equal, "greater_equal_elem": aq.greater_equal,
    "mask_where": lambda t, mask, value: aq.where(mask, value, t),
    "ceil": aq.ceil, "floor": aq.floor, "round": aq.round, "sinh": aq.sinh,
    "remainder": aq.remainder, "remainder_scalar": aq.remainder,
    "prod_dim": lambda t, axis: aq.prod(t, axis=axis, keepdims=True),
    "sort": lambda t, axis: aq.sort(t, axis=axis), "argsort": lambda t, axis: aq.argsort(t, axis=axis),
    "sort_descending": lambda t, axis: aq.sort(t, axis=axis, descending=True),
    "sort_with_indices": sorted_with_indices,
    "sort_descending_with_indices": lambda t, axis: sorted_with_indices(t, axis, descending=True),
    "topk": lambda t, k, axis: aq.topk(t, k, axis)[0], "topk_with_indices": aq.topk,
    "scatter": added(aq.scatter_add), "select_assign": added(aq.index_add),
    "slice_assign": lambda t, index, values: calibrated_again(t, lambda x: x.at[slices(index)].set(values)),
    "repeat_dim": repeated,
    "out0": lambda outputs: outputs[0], "out1": lambda outputs: outputs[1],
}  # fmt: skip


def swapped(rank, a, b):
    axes = list(range(rank))
    axes[a], axes[b] = axes[b], axes[a]
    return axes


def tensor(spec):
    data = np.array(spec["data"])
    if spec["kind"] == "int":
        return aq.tensor(data)
    if spec["kind"] == "bool":
        return aq.tensor(data.astype(bool))
    value = aq.tensor(data.astype(np.float32))
    schemes = {"q8s_per_tensor_f32_native": PER_TENSOR, "q8s_block16_f32_native": PER_BLOCK}
    return value if spec["kind"] == "f32" else aq.quantize(value, schemes[spec["kind"]])


def evaluate(expression, tensors):
    if isinstance(expression, str):
        return tensors.get(expression, expression)
    if (
        isinstance(expression, list)
        and expression
        and isinstance(expression[0], str)
        and expression[0] in OPS
    ):
        with np.errstate(divide="ignore"):  # log(0) is -inf, as expected
            return OPS[expression[0]](*(evaluate(argument, tensors) for argument in expression[1:]))
    if isinstance(expression, list):
        return [evaluate(part, tensors) for part in expression]
    return expression


def methods(expression):
    """Names of the ops in an expression."""
    if not isinstance(expression, list):
        return set()
    own = {expression[0]} if expression and isinstance(expression[0], str) else set()
    return own.union(*map(methods, expression))


def needed(case):
    names = methods(case["inputs"]["expr"])
    if isinstance(case["expected"], dict):
        names |= methods(next(iter(case["expected"].values())))
    return {name for name in names if name not in case["inputs"]["tensors"] and not name.startswith("out")}


def close(actual, expected, tolerance):
    """Equal, or nearer than the larger of an absolute and a relative bound."""
    if tolerance == "exact":
        tolerance = {"rel": 0.0, "abs": 0.0}
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.dtype.kind in "bi":
        return np.array_equal(actual, expected)
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        bound = np.maximum(tolerance["abs"], tolerance["rel"] * np.maximum(np.abs(actual), np.abs(expected)))
        near = (
            (actual == expected)
            | (np.abs(actual - expected) < bound)
            | (np.isnan(actual) & np.isnan(expected))
        )
    return actual.shape == expected.shape and bool(near.all())


def assert_matches(actual, expected, case):
    numbers = np.array(expected, dtype=object).astype(np.float64)
    assert close(actual.numpy(), numbers, case["tolerance"]), (actual.numpy(), numbers)


def assert_float_result_encoded(actual, tensors, case):
    """Where the stated bound can't hold once encoded: it does before, and encoding adds at most a step."""
    dense = {key: t.dequantize() if isinstance(t.dtype, aq.QuantScheme) else t for key, t in tensors.items()}
    result = evaluate(case["inputs"]["expr"], dense)
    assert_matches(result, case["expected"], case)
    if isinstance(actual.dtype, aq.QuantScheme):
        encoded = aq.quantize(result, actual.dtype)
        once = len(methods(case["inputs"]["expr"]) - set(tensors)) == 1
        if once and actual.device != "cpu" and "matmul" in methods(case["inputs"]["expr"]):
            check_product_encoded(actual, aq.matmul, list(dense.values()))
        else:
            assert not once or actual.qtensor.same_bits(encoded.qtensor)
        np.testing.assert_allclose(
            actual.numpy(), encoded.numpy(), atol=1.01 * float(encoded.qtensor.scales.max())
        )
    else:
        np.testing.assert_array_equal(actual.numpy(), result.numpy())


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    case = CASES[name]
    tensors = {key: tensor(spec) for key, spec in case["inputs"]["tensors"].items()}
    expression, expected = case["inputs"]["expr"], case["expected"]
    if expected == "error":
        with pytest.raises(AutoqError) as error:
            evaluate(expression, tensors)
        assert error.value.given
        return
    actual = evaluate(expression, tensors)
    if not (case.get("numpy_ref") or {}).get("requantized_output", True):
        assert_float_result_encoded(actual, tensors, case)
    elif isinstance(expected, list):
        parts = zip(actual, expected, strict=True) if isinstance(actual, tuple) else [(actual, expected)]
        for one, values in parts:
            assert_matches(one, values, case)
    elif "shape" in expected:
        assert list(actual.shape) == expected["shape"]
    elif "bytes_equal_to_expr" in expected:
        assert actual.qtensor.same_bits(evaluate(expected["bytes_equal_to_expr"], tensors).qtensor)
    else:
        other = evaluate(expected["same_as_expr"], tensors)
        assert close(actual.numpy(), other.numpy(), case["tolerance"])


def test_every_case_runs():
    assert len(CASES) == 153
    for name, case in CASES.items():
        assert needed(case) <= set(OPS), name
