"""Values that were silently wrong: bools and integers that wrapped, Python floats cut to float32."""

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError

BOOLS = aq.tensor([True, True, False])


def test_a_python_float_keeps_its_bits_where_float64_is_asked_for():
    assert aq.tensor(0.1, dtype=aq.float64).item() == 0.1
    assert aq.tensor([1e300], dtype=float).tolist() == [1e300]
    assert aq.tensor(16777217.0, dtype=aq.int64).item() == 16777217
    assert aq.arange(0, 1, 0.1, dtype=aq.float64).tolist()[1] == 0.1
    x = aq.zeros((1,), aq.float64)
    x.assign([0.1])
    assert x.item() == 0.1
    y = aq.tensor(np.ones(1), requires_grad=True)
    (y * 1).backward([0.1])
    assert y.grad.item() == 0.1


def test_bools_count():
    assert BOOLS.sum().item() == 2
    assert BOOLS.sum().dtype == aq.int64
    assert (BOOLS * 2).tolist() == [2, 2, 0]
    assert aq.add(True, 2).item() == 3
    assert (BOOLS @ BOOLS).item() == aq.vecdot(BOOLS, BOOLS).item() == aq.einsum("i->", BOOLS).item() == 2


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_sums_of_small_integers_do_not_wrap_and_products_keep_their_dtype(dtype):
    x = aq.tensor(np.full(100, 100, dtype))
    assert x.sum().item() == 10_000
    assert (x @ x).dtype == dtype  # as the array API says


def test_integers_beyond_float32_stay_exact():
    x = aq.tensor([2**53 + 1])
    assert (x @ aq.tensor([1])).item() == 2**53 + 1
    assert aq.add(x, 0, out_dtype=aq.int64).item() == 2**53 + 1
    assert aq.sum(x, out_dtype=aq.int64).item() == 2**53 + 1
    with aq.precision("exact"):
        assert x.sum().item() == 2**53 + 1


@pytest.mark.parametrize("name", ["exp", "log1p", "sigmoid", "softplus", "sqrt", "tanh", "gelu"])
def test_float_functions_of_bools_are_those_of_float32(name):
    function = getattr(aq, name)
    assert function(BOOLS).dtype == aq.float32
    np.testing.assert_array_equal(function(BOOLS).numpy(), function(BOOLS.astype(aq.float32)).numpy())


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "layer_norm"])
def test_normalizations_take_bools(name):
    function = getattr(aq, name)
    np.testing.assert_array_equal(function(BOOLS).numpy(), function(BOOLS.astype(aq.float32)).numpy())


def test_clip_of_integers_keeps_to_whole_bounds_and_to_their_range():
    x = aq.tensor([-5, 2**62 + 1])
    assert x.clip(0, np.inf).tolist() == [0, 2**62 + 1]
    assert aq.tensor([7], dtype=aq.uint8).clip(-3, 300).tolist() == [7]
    with pytest.raises(ArgumentError, match=r"min=0.5 of int64"):
        x.clip(0.5)
    with pytest.raises(ArgumentError):
        BOOLS.clip(0, 1)
