"""Running sums, products and extrema, and recurrences, in the simulator: the CPU's bits."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.ops.on_device import scans
from autoq.schemes import scheme
from autoq.storage import QTensor
from autoq.tape.accelerated import _forwards
from autoq.tape.op import REGISTRY
from autoq.types import float32

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
SCANS = ("cumulative_sum", "cumulative_prod", "cummax", "cummin", "extremum_so_far")
AXES = ((2, 11, 3), 1), ((5, 4), 0), ((3, 9), -1), ((7,), 0), ((1, 1), 0), ((0, 3), 0), ((2, 0), 1)


def values(*shape, seed=0):
    """Numbers with repeats, subnormal ones among them, and a NaN in the middle of larger arrays."""
    x = np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32) / 3
    x.reshape(-1)[::5] = 1e-40
    if x.size > 20:
        x.reshape(-1)[x.size // 2] = np.nan
    return x


def found(name, *operands, **static):
    return _forwards[name](REGISTRY[name], operands, static, float32, float32)


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    np.testing.assert_array_equal(a, b)
    return True


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize(("shape", "axis"), AXES)
def test_lines_are_those_of_the_cpu(name, shape, axis):
    x = values(*shape)
    static = {"largest": False} if name == "extremum_so_far" else {}
    assert same(found(name, x, axis=axis, **static), REGISTRY[name].forward(x, axis=axis, **static))


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize("static", [{}, {"include_initial": True}, {"axis": 0, "include_initial": True}])
def test_flattened_lines_and_lines_with_their_first_value(name, static):
    x = values(3, 6)
    assert same(found(name, x, **static), REGISTRY[name].forward(x, **static))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_recurrences_are_those_of_the_cpu(axis):
    a, b = values(3, 4, 5, seed=1), values(3, 4, 5, seed=2)
    forward = REGISTRY["linear_recurrence"].forward
    assert same(found("linear_recurrence", a, b, axis=axis), forward(a, b, axis=axis))


def test_views_halves_and_packed_tensors_are_read():
    x = values(6, 8)[::2, ::-1].T
    assert same(found("cumulative_sum", x, axis=0), np.add.accumulate(x, 0))
    half = values(3, 4).astype(np.float16)
    assert same(found("cummax", half, axis=0), np.maximum.accumulate(half.astype(np.float32), 0))
    q = QTensor.quantize(np.ones((2, 32), np.float32), scheme("mxfp8"))
    assert same(found("cumulative_sum", q, axis=1), np.add.accumulate(q.dequantize(), 1))


@pytest.mark.parametrize("name", ["cumulative_sum", "cummax", "cummin"])
@pytest.mark.parametrize("shape", [(1, 23, 1), (2, 16, 3), (1, 70, 1)])
def test_long_lines_are_taken_in_pieces(name, shape, monkeypatch):
    monkeypatch.setattr(scans, "PIECE", 8)
    x = np.random.default_rng(3).integers(-9, 9, shape).astype(np.float32)  # whole numbers add up exactly
    assert same(found(name, x, axis=1), REGISTRY[name].forward(x, axis=1))


def test_a_product_with_a_zero_stays_zero_whatever_follows(monkeypatch):
    monkeypatch.setattr(scans, "PIECE", 2)
    x = np.array([0.0, 1e30, 1e30, 1e30], np.float32)
    assert same(found("cumulative_prod", x, axis=0), np.zeros(4, np.float32))


def test_what_no_kernel_computes_is_left_to_the_forward():
    assert found("cumulative_sum", np.arange(3), axis=0) is NotImplemented
    assert found("cummax", values(3), axis=2) is NotImplemented
    for name in ("cummax", "cummin", "extremum_so_far"):  # sums and products take all values as one line
        assert found(name, values(2, 3), axis=None) is NotImplemented
    forward = _forwards["cummax"]
    wide = np.dtype(np.float64)
    assert forward(REGISTRY["cummax"], (np.ones(3),), {"axis": 0}, wide, wide) is NotImplemented


@pytest.mark.parametrize("axis", [True, 2, -3, (0,)])
def test_axes_that_there_are_not_are_left_to_the_op(axis):
    assert not scans.fits(axis, 2)
