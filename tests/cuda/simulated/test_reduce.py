"""Sums and scatters in the simulator: near float64's sums, in the order of NumPy's ``add.at``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoq.kernels.cuda import launch
from autoq.kernels.cuda.reduce import extremum
from autoq.kernels.cuda.scatter import add_at, add_rows
from autoq.tape.accelerated import forward_on_device
from autoq.tape.op import REGISTRY
from autoq.types import float32

from .mapping import decoded, floats, quantized

CASES: dict[str, tuple[Any, Any, int]] = {
    "rows": (floats(3, 40), 1, 1),
    "wide rows": (floats(2, 100), 1, 1),
    "columns": (floats(70, 5), 0, 2),
    "all": (floats(3, 40), None, 1),
    "a long row": (floats(1, 2100), 1, 1),
    "between": (floats(2, 70, 3), 1, 2),
    "around": (floats(2, 5, 3), (0, 2), 1),
    "packed rows": (quantized("mxfp4", 3, 64), 1, 1),
    "a packed transpose": (quantized("mxfp4", 64, 3).T, 1, 1),
    "packed columns": (quantized("mxfp6_e3m2", 3, 64), 0, 1),
    "two levels": (quantized("nvfp4", 3, 64), None, 1),
    "halves": (floats(3, 40).astype(np.float16), -1, 1),
    "strides": (floats(8, 40)[::2, ::3], 0, 1),
    "one place": (floats(4, 1), 1, 1),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums_are_those_of_float64(case: str, keepdims: bool) -> None:
    x, axis, launches = CASES[case]
    values = decoded(x).astype(np.float64)
    for name, function in (("sum", np.sum), ("mean", np.mean)):
        before = launch.launches
        static = {"axis": axis, "keepdims": keepdims}
        found = forward_on_device(REGISTRY[name], [x], static, float32, float32)
        assert launch.launches - before == launches
        expected = function(values, axis=axis, keepdims=keepdims)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("case", [name for name, given in CASES.items() if isinstance(given[0], np.ndarray)])
def test_extrema_are_those_of_numpy(case: str) -> None:
    x, axis, launches = CASES[case]
    axes = tuple(range(x.ndim)) if axis is None else tuple(a % x.ndim for a in np.atleast_1d(axis))
    x = x.astype(np.float32) if x.dtype != np.float32 else x
    for factor in (np.float32(1.0), np.float32(1e-40)):  # subnormal numbers too
        values = x * factor
        before = launch.launches
        assert extremum(values, axes, True).tobytes() == values.max(axis=axes).tobytes()
        assert launch.launches - before == launches
        assert extremum(values, axes, False).tobytes() == values.min(axis=axes).tobytes()
    assert extremum(x, axes, True, 9.0).tobytes() == x.max(axis=axes, initial=9.0).tobytes()
    assert extremum(x, axes, False, -np.inf).tobytes() == x.min(axis=axes, initial=-np.inf).tobytes()
    x = x.copy()
    x[0, -1], x[-1, 0] = np.nan, np.inf
    for largest, function in ((True, np.max), (False, np.min)):
        np.testing.assert_array_equal(extremum(x, axes, largest), function(x, axis=axes))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_extrema_and_their_places_are_those_of_decoded_values(case: str, keepdims: bool) -> None:
    x, axis, launches = CASES[case]
    values = np.array(decoded(x))
    for name in ("max", "min", "argmax", "argmin"):
        if name.startswith("arg") and isinstance(axis, tuple):
            continue
        before, static = launch.launches, {"axis": axis, "keepdims": keepdims}
        found = forward_on_device(REGISTRY[name], [x], static, float32, float32)
        assert launch.launches - before == launches + name.startswith("arg")
        expected = getattr(np, name)(values, axis=axis, keepdims=keepdims)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_nan_is_the_first_extremum() -> None:
    x = floats(4, 8)
    x[0, 3] = x[0, 5] = x[2, 0] = np.nan
    for name in ("max", "min", "argmax", "argmin"):
        for axis in (None, 0, 1):
            static = {"axis": axis, "keepdims": False}
            found = forward_on_device(REGISTRY[name], [x], static, float32, float32)
            np.testing.assert_array_equal(found, getattr(np, name)(x, axis=axis))


@pytest.mark.parametrize(
    "given", [{"dim": 1}, {"axis": True}, {"axis": (0, True)}, {"axis": 5}, {"keepdims": "yes"}]
)
@pytest.mark.parametrize("name", ["sum", "mean", "var", "norm", "max", "argmin"])
def test_what_the_op_refuses_is_left_to_it(name: str, given: dict[str, Any]) -> None:
    op = REGISTRY[name]
    static = {**op.defaults, **given}
    assert forward_on_device(op, [floats(3, 40)], static, float32, float32) is NotImplemented


@pytest.mark.parametrize("name", ["var", "std", "norm"])
def test_spreads_and_norms(name: str) -> None:
    op = REGISTRY[name]
    for operands, given in op.sample(np.random.default_rng(0)):
        static = {**op.defaults, **given}
        x = operands[0].astype(np.float32)
        found = forward_on_device(op, [x], static, float32, float32)
        if found is not NotImplemented:
            np.testing.assert_allclose(found, op.forward(x, **static), rtol=2e-6, atol=1e-6)


def test_what_the_forward_refuses_is_left_to_it() -> None:
    x = floats(2, 3)
    for axis in (2, (0, 0), "a", ()):
        static = {"axis": axis, "keepdims": False}
        assert forward_on_device(REGISTRY["sum"], [x], static, float32, float32) is NotImplemented
    static = {"axis": None, "keepdims": False}
    assert forward_on_device(REGISTRY["sum"], [floats(0, 3)], static, float32, float32) is NotImplemented


def test_rows_are_added_in_the_order_of_numpy() -> None:
    rng = np.random.default_rng(0)
    out, values = floats(2, 5, 3), floats(2, 23, 3, seed=1)
    rows = rng.integers(-5, 5, 23)
    rows[:9] = 2
    expected = out.copy()
    for part, added in zip(expected, values, strict=True):
        np.add.at(part, rows, added)
    add_rows(out, rows, values)
    assert out.tobytes() == expected.tobytes()


def test_entries_are_added_in_the_order_of_numpy() -> None:
    out, values = floats(7), floats(20, seed=1)
    places = np.random.default_rng(0).integers(0, 7, 20)
    expected = out.copy()
    np.add.at(expected, places, values)
    add_at(out, places, values)
    assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["scatter_add", "scatter_add_along_axis"])
def test_ops_that_scatter(name: str) -> None:
    op = REGISTRY[name]
    for operands, static in op.sample(np.random.default_rng(0)):
        x = operands[0].astype(np.float32)
        found = forward_on_device(op, [x], static, float32, float32)
        assert found.tobytes() == op.forward(x, **static).tobytes()
