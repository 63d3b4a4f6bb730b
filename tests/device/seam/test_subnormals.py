"""Numbers below float32's normal ones are none of them 0: truth, order and extrema are the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autoq as aq
from autoq.devices import to_host

TINY = np.float32(2.0**-133)  # a number of bfloat16 too
VALUES = np.array([[0, 1, -0.0, 3, -1], [-0.0, 0, -1, -3, -2], [9, 1, -9, 0, 1]], np.float32) * TINY
FLOATS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float64": np.float64}
WHOLE = np.array([0, 1, 0, 2, 0])
CALLS: dict[str, Callable[[Any], Any]] = {
    **{name: lambda x, name=name: getattr(aq, name)(x) for name in ("any", "all", "count_nonzero")},
    **{f"{name} of rows": lambda x, name=name: getattr(aq, name)(x, axis=1) for name in ("any", "all")},
    "count_nonzero of rows": lambda x: aq.count_nonzero(x, axis=1),
    "nonzero": lambda x: aq.nonzero(x)[1],
    "not": aq.logical_not,
    "and": lambda x: aq.logical_and(x, x[0]),
    "or": lambda x: aq.logical_or(x, x[0]),
    "xor": lambda x: aq.logical_xor(x, x[0]),
    "or integers": lambda x: aq.logical_or(x, aq.tensor(WHOLE, device=x.device)),
    "above integers": lambda x: x > aq.tensor(WHOLE, device=x.device),
    "equal to integers": lambda x: x == aq.tensor(WHOLE, device=x.device),
    "above 0": lambda x: x > 0,
    "equal": lambda x: x == x[:1],
    "sign": aq.sign,
    "bool": lambda x: x.astype(aq.bool_),
    "where": lambda x: aq.where(x < 0.0, x, -x),
    "where of one": lambda x: aq.where(True, x, 0.0),
    "max": lambda x: aq.max(x),
    "max of rows": lambda x: aq.max(x, axis=1, keepdims=True),
    "min of columns": lambda x: aq.min(x, axis=0),
    "argmax": lambda x: aq.argmax(x),
    "argmax of rows": lambda x: aq.argmax(x, axis=1, keepdims=True),
    "argmin of columns": lambda x: aq.argmin(x, axis=0),
    "max of one": lambda x: aq.max(x[0, 1]),
    "argmin of one": lambda x: aq.argmin(x[0, 1]),
    "maximum": lambda x: aq.maximum(x, x[1]),
    "cummax": lambda x: aq.cummax(x, axis=1),
    "sort": lambda x: aq.sort(x, axis=1),
    "argsort": lambda x: aq.argsort(x, axis=1, descending=True),
    "topk": lambda x: aq.topk(x, 2, axis=1)[1],
    "searchsorted": lambda x: aq.searchsorted(aq.sort(x[0]), x),
    "unique": lambda x: aq.unique_values(x),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CALLS)
def test_they_count_as_the_numbers_they_are(name: str, dtype: str, device: str) -> None:
    x = VALUES.astype(FLOATS[dtype])
    found = CALLS[name](aq.tensor(x, device=device))
    expected = CALLS[name](aq.tensor(x, device="cpu"))
    assert found.device in (device, "cpu")
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.numpy(), expected.numpy())  # zeros of either sign are equal


@pytest.mark.parametrize("name", ["max", "min"])
def test_the_gradient_of_an_extremum_is_where_it_is(name: str, device: str) -> None:
    found = []
    for place in (device, "cpu"):
        x = aq.tensor(VALUES, device=place, requires_grad=True)
        getattr(aq, name)(x, axis=1).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_array_equal(*found)


def test_nan_is_the_extremum_and_its_place(device: str) -> None:
    x = VALUES.copy()
    x[0, 3] = x[2, 1] = np.nan
    for axis in (None, 0, 1):
        for name in ("max", "min", "argmax", "argmin"):
            found = getattr(aq, name)(aq.tensor(x, device=device), axis=axis)
            expected = getattr(aq, name)(aq.tensor(x, device="cpu"), axis=axis)
            np.testing.assert_array_equal(found.numpy(), expected.numpy(), err_msg=name)


@pytest.mark.parametrize("name", ["nvfp4", "nvfp4_2d", "mxfp8", "mxfp4", "int8", "fp8_e4m3"])
@pytest.mark.parametrize("size", [2.0**-126, 2.0**-118, 2.0**-110, 1.0])
def test_entries_of_a_packed_tensor_of_small_numbers_are_set(name: str, size: float, device: str) -> None:
    x = (np.random.default_rng(3).standard_normal((32, 64)) * size).astype(np.float32)
    found = []
    for place in (device, "cpu"):
        t = aq.tensor(x, device=place).quantize(name).at[3, 5:9].set(0.75 * size)
        found.append(t.to("cpu").qtensor)
    assert found[0].same_bits(found[1])
    q = aq.tensor(x, device=device).quantize(name).qtensor
    np.testing.assert_array_equal(to_host(q.effective_scales()), q.to("cpu").effective_scales())


def assigned(x: Any, value: Any, *index: Any) -> Any:
    with aq.no_grad():
        x[index or ...] = value
    return x


ZEROS: dict[str, Any] = {
    "tensor": lambda device: aq.tensor(-0.0, device=device),
    "tensor of an array": lambda device: aq.tensor(np.full((), -0.0, np.float32), device=device),
    "tensor of a NumPy number": lambda device: aq.tensor(np.float64(-0.0), device=device),
    "to": lambda device: aq.tensor(-0.0, device="cpu").to(device),
    "full": lambda device: aq.full((), -0.0, device=device),
    "full of three": lambda device: aq.full(3, -0.0, device=device),
    "full_like": lambda device: aq.full_like(aq.ones(3, device=device), -0.0),
    "x[...] =": lambda device: assigned(aq.ones(3, device=device), -0.0),
    "x[1] =": lambda device: assigned(aq.ones(3, device=device), -0.0, 1),
    "x[:, 1] =": lambda device: assigned(aq.ones((2, 3), device=device), -0.0, slice(None), 1),
    "x[mask] =": lambda device: assigned(
        aq.ones(3, device=device), -0.0, aq.tensor([True, False, True], device=device)
    ),
    "at.set": lambda device: aq.ones(3, device=device).at[1].set(-0.0),
    "at.set of rows": lambda device: aq.ones((3, 2), device=device).at[[0, 2]].set(-0.0),
    "masked_fill": lambda device: aq.masked_fill(
        aq.ones(2, device=device), aq.tensor([True, False], device=device), -0.0
    ),
    "where": lambda device: aq.where(
        aq.tensor([True, False], device=device), -0.0, aq.ones(2, device=device)
    ),
    "atan2 of two numbers": lambda device: aq.atan2(aq.tensor(-0.0, device=device), -0.0),
    "a sum of nothing": lambda device: aq.sum(aq.zeros((2, 0), device=device), axis=1),
    "max with an initial value": lambda device: aq.maximum(aq.full(2, -0.0, device=device), -1.0),
}


@pytest.mark.parametrize("how", ZEROS)
def test_minus_zero_stays(how: str) -> None:
    found = [ZEROS[how](device).numpy() for device in ("cpu", "cuda")]
    assert found[0].tobytes() == found[1].tobytes()
