"""Products, running sums, norms and orderings: NumPy's results, and gradients at zeros and ties."""

from __future__ import annotations

import math

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, ShapeError

X = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
TIES = np.array([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, -1.0, 5.0]], np.float32)


def leaf(x):
    return aq.tensor(np.asarray(x, np.float64), requires_grad=True)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_running_sums_and_products_equal_numpy(axis):
    np.testing.assert_allclose(aq.cumsum(X, axis).numpy(), np.cumsum(X, axis), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(aq.cumprod(X, axis).numpy(), np.cumprod(X, axis), rtol=1e-5, atol=1e-7)
    assert aq.tensor(X).cumsum(axis).shape == np.cumsum(X, axis).shape


def test_include_initial_puts_the_identity_first():
    np.testing.assert_array_equal(
        aq.cumulative_sum(TIES, axis=1, include_initial=True).numpy()[:, 0], [0.0, 0.0]
    )
    longer = aq.cumulative_prod(TIES, axis=0, include_initial=True)
    assert longer.shape == (3, 4)
    np.testing.assert_array_equal(longer.numpy()[:2], [[1, 1, 1, 1], TIES[0]])


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "sort"])
def test_integers_stay_integers(name):
    x = aq.tensor(np.array([3, 1, 2]))
    assert getattr(aq, name)(x).dtype == aq.int64


def test_prod_has_the_exact_gradient_at_zeros():
    cases = {(2.0, 3.0, 4.0): [12, 8, 6], (2.0, 0.0, 4.0): [0, 8, 0], (0.0, 0.0, 4.0): [0, 0, 0]}
    for values, expected in cases.items():
        x = leaf(values)
        x.prod().backward()
        assert x.grad.tolist() == expected


def test_prod_differentiates_twice_at_zeros():
    x = leaf([2.0, 0.0, 0.0, 5.0])
    x.prod().backward(create_graph=True)
    first = x.grad
    x.grad = None
    first[1].backward()  # d(x0 x2 x3) / dx
    assert x.grad.tolist() == [0.0, 0.0, 10.0, 0.0]


def test_cumprod_has_the_exact_gradient_at_zeros():
    x, g = np.array([2.0, 0.0, 3.0, 0.0, 4.0]), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    t = leaf(x)
    t.cumprod().backward(g)
    n = len(x)
    expected = [
        sum(g[k] * np.prod([x[j] for j in range(k + 1) if j != i]) for k in range(i, n)) for i in range(n)
    ]
    assert t.grad.tolist() == expected


def test_prod_over_axes_and_of_nothing():
    np.testing.assert_allclose(aq.prod(X, axis=(0, -1)).numpy(), X.prod((0, -1)), rtol=1e-5)
    empty = leaf(np.zeros((0, 3)))
    y = empty.prod(axis=0)
    assert y.tolist() == [1.0, 1.0, 1.0]
    y.sum().backward()
    assert empty.grad.shape == (0, 3)


def test_a_running_extremum_gives_the_gradient_to_its_first_place():
    t = leaf(TIES)
    t.cummax(axis=1).sum().backward()
    assert t.grad.tolist() == [[1, 3, 0, 0], [3, 0, 0, 1]]
    t = leaf(TIES)
    t.cummin(axis=1).sum().backward()
    assert t.grad.tolist() == [[4, 0, 0, 0], [2, 0, 2, 0]]


def test_running_extrema_equal_numpy_and_carry_nan_on():
    x = np.array([1.0, np.nan, 3.0, 0.0], np.float32)
    np.testing.assert_array_equal(aq.cummax(x).numpy(), np.maximum.accumulate(x))
    t = leaf(x)
    t.cummax().backward(np.ones(4))
    assert t.grad.tolist() == [1, 3, 0, 0]
    np.testing.assert_array_equal(aq.cummin(X, axis=1).numpy(), np.minimum.accumulate(X, axis=1))


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, math.inf, -math.inf, -1])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
def test_norm_equals_numpy(order, axis):
    expected = np.linalg.norm(X.reshape(-1), order) if axis is None else None
    if axis == 1:
        expected = np.linalg.norm(X, order, axis=1)
    elif axis is not None:
        expected = np.linalg.norm(X.transpose(1, 0, 2).reshape(4, -1), order, axis=1)
    np.testing.assert_allclose(aq.norm(X, ord=order, axis=axis).numpy(), expected, rtol=2e-5)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 1.5, math.inf])
def test_the_gradient_of_a_norm_at_the_origin_is_0(order):
    t = leaf([0.0, 0.0])
    t.norm(order).backward()
    assert t.grad.tolist() == [0, 0]


def test_std_equals_numpy_and_its_gradient_is_0_where_it_is_0():
    np.testing.assert_allclose(aq.std(X, axis=1, correction=1).numpy(), X.std(1, ddof=1), rtol=1e-5)
    t = leaf([2.0, 2.0, 2.0])
    t.std().backward()
    assert t.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sort_and_argsort_equal_numpy(axis):
    np.testing.assert_array_equal(aq.sort(X, axis).numpy(), np.sort(X, axis))
    np.testing.assert_array_equal(aq.argsort(X, axis).numpy(), np.argsort(X, axis, kind="stable"))
    down = aq.argsort(X, axis, descending=True)
    np.testing.assert_array_equal(np.take_along_axis(X, down.numpy(), axis), aq.sort(X, axis, True).numpy())


def test_equal_values_keep_their_order_in_both_directions():
    assert aq.argsort(TIES, 1).tolist() == [[0, 3, 1, 2], [2, 0, 1, 3]]
    assert aq.argsort(TIES, 1, descending=True).tolist() == [[1, 2, 3, 0], [3, 0, 1, 2]]
    t = leaf(TIES)
    (t.sort(axis=1, descending=True) * np.array([8.0, 4.0, 2.0, 1.0])).sum().backward()
    assert t.grad.tolist() == [[1, 8, 4, 2], [4, 2, 1, 8]]


def test_nan_counts_as_the_largest():
    x = np.array([2.0, np.nan, 1.0], np.float32)
    np.testing.assert_array_equal(aq.sort(x).numpy(), [1, 2, np.nan])
    np.testing.assert_array_equal(aq.sort(x, descending=True).numpy(), [np.nan, 2, 1])


@pytest.mark.parametrize("largest", [True, False])
def test_topk_takes_the_first_of_equal_values_and_sends_the_gradient_there(largest):
    t = leaf(TIES)
    values, indices = aq.topk(t, 2, axis=1, largest=largest)
    assert indices.tolist() == ([[1, 2], [3, 0]] if largest else [[0, 3], [2, 0]])
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(TIES, indices.numpy(), 1))
    values.sum().backward()
    expected = np.zeros((2, 4))
    np.put_along_axis(expected, indices.numpy(), 1.0, 1)
    np.testing.assert_array_equal(t.grad.numpy(), expected)


def test_topk_of_packed_values_stays_in_their_scheme():
    q = aq.tensor(X.reshape(3, 20), dtype=aq.mxfp8)
    values, indices = q.topk(4)
    assert values.dtype == aq.mxfp8
    assert indices.dtype == aq.int64
    assert not indices.requires_grad
    np.testing.assert_array_equal(
        values.numpy(), aq.quantize(aq.sort(q.numpy(), descending=True)[:, :4], aq.mxfp8).numpy()
    )


def test_count_nonzero_any_and_all_of_packed_values():
    q = aq.tensor(np.array([[0.0, 1e-6, 1.0]], np.float32), dtype=aq.mxfp8)
    assert q.count_nonzero().item() == np.count_nonzero(q.numpy())
    assert q.any().item() is True
    assert q.all(axis=1, keepdims=True).tolist() == [[bool(q.numpy().all())]]


WRONG = [
    (lambda: aq.cumsum(X, 3), ShapeError, "axis=3"),
    (lambda: aq.cumsum(X, (0, 1)), ShapeError, "axis=(0, 1)"),
    (lambda: aq.cummax(X, axis=None), ShapeError, "axis=None"),
    (lambda: aq.prod(X, axis=(0, 0)), ShapeError, "axis=(0, 0)"),
    (lambda: aq.norm(X, ord="fro"), ArgumentError, "'fro'"),
    (lambda: aq.norm(np.zeros((0, 2)), ord=math.inf, axis=0), ShapeError, "no values"),
    (lambda: aq.sort(np.float32(1.0)), ShapeError, "axis=-1"),
    (lambda: aq.topk(X, 6), ArgumentError, "k=6 of 5"),
    (lambda: aq.topk(X, 1, axis=3), ShapeError, "axis=3"),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG)
def test_error_says_what_was_given_allowed_and_what_to_do(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert caught.value.allowed
    assert caught.value.remedy
