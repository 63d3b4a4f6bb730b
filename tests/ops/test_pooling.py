"""Pooling against loops over the windows; ties, padding and edges."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, ShapeError

WINDOWS = [(2, None, 0), (3, 2, 1), ((3, 2), (1, 3), (1, 0)), ((1, 4), None, (0, 2))]


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


def pooled(x, function, kernel, stride, padding):
    """`function` of the values of each window, without the padding."""
    (kh, kw), (sh, sw) = pair(kernel), pair(kernel if stride is None else stride)
    (ph, pw), (height, width) = pair(padding), x.shape[-2:]
    rows, columns = (height + 2 * ph - kh) // sh + 1, (width + 2 * pw - kw) // sw + 1
    out = np.empty((*x.shape[:-2], rows, columns))
    for i, j in np.ndindex(rows, columns):
        top, left = i * sh - ph, j * sw - pw
        window = x[..., max(top, 0) : top + kh, max(left, 0) : left + kw]
        out[..., i, j] = function(window.reshape(*x.shape[:-2], -1))
    return out


@pytest.mark.parametrize(("kernel", "stride", "padding"), WINDOWS)
def test_pools_are_the_maximum_and_the_mean_of_each_window(kernel, stride, padding):
    x, at = data(2, 3, 7, 8), (kernel, stride, padding)
    largest = pooled(x, lambda w: w.max(-1), *at)
    np.testing.assert_array_equal(aq.max_pool2d(x, *at).numpy(), largest)
    values = pooled(x, lambda w: w.mean(-1), *at)
    np.testing.assert_allclose(aq.avg_pool2d(x, *at, count_padding=False).numpy(), values, atol=1e-14)
    sums = pooled(x, lambda w: w.sum(-1), *at) / np.prod(pair(kernel))
    np.testing.assert_allclose(aq.avg_pool2d(x, *at).numpy(), sums, atol=1e-14)


@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_a_pool_along_one_axis_is_that_over_rows_of_height_one(name):
    x = data(2, 3, 9)
    one = getattr(aq, f"{name}1d")(x, 3, 2, 1).numpy()
    two = getattr(aq, f"{name}2d")(x[..., None, :], (1, 3), (1, 2), (0, 1)).numpy()
    np.testing.assert_array_equal(one, two[..., 0, :])


def test_equal_maxima_share_the_gradient():
    x = aq.tensor([[1.0, 3.0, 3.0, 3.0, 0.0]], requires_grad=True)
    aq.max_pool1d(x, 3, 1).backward(np.array([[6.0, 12.0, 24.0]]))
    assert x.grad.tolist() == [[0.0, 3.0 + 4.0, 3.0 + 4.0 + 12.0, 4.0 + 12.0, 0.0]]


def test_padding_never_wins_and_gets_no_gradient():
    x = aq.tensor([[-5.0, -7.0]], requires_grad=True)
    y = aq.max_pool1d(x, 2, 1, 1)
    y.sum().backward()
    assert y.tolist() == [[-5.0, -5.0, -7.0]]
    assert x.grad.tolist() == [[2.0, 1.0]]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, (2, 9), (7, 8)])
def test_adaptive_pools_average_bins_that_cover_the_input(size):
    x, (rows, columns) = data(2, 7, 8), pair(size)
    expected = np.empty((2, rows, columns))
    for i, j in np.ndindex(rows, columns):
        top, bottom = int(np.floor(i * 7 / rows)), int(np.ceil((i + 1) * 7 / rows))
        left, right = int(np.floor(j * 8 / columns)), int(np.ceil((j + 1) * 8 / columns))
        expected[:, i, j] = x[:, top:bottom, left:right].mean((1, 2))
    np.testing.assert_allclose(aq.adaptive_avg_pool2d(x, size).numpy(), expected, atol=1e-14)
    np.testing.assert_allclose(
        aq.adaptive_avg_pool1d(x, columns).numpy(),
        aq.adaptive_avg_pool2d(x, (7, columns)).numpy(),
        atol=1e-14,
    )


def test_the_mean_of_one_bin_is_the_mean():
    x = data(2, 3, 5, 6)
    y = aq.adaptive_avg_pool2d(x, 1).numpy()
    np.testing.assert_allclose(y, x.mean((2, 3), keepdims=True), atol=1e-14)


def test_an_infinite_value_stays_in_its_bin():
    x = np.ones((1, 4))
    x[0, 0] = np.inf
    assert aq.adaptive_avg_pool1d(x, 2).tolist() == [[np.inf, 1.0]]


def test_pools_of_a_packed_signal_stay_packed():
    x = aq.tensor(data(2, 4, 64), dtype="mxfp8")
    assert aq.max_pool2d(x, 2).dtype == aq.mxfp8
    assert aq.avg_pool1d(x, 2).dtype == aq.mxfp8
    exact = x.numpy().reshape(2, 2, 2, 32, 2).max((2, 4))
    np.testing.assert_array_equal(aq.max_pool2d(x, 2).numpy(), exact)  # the maximum of a block is kept


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_empty_batches(name):
    x = aq.tensor(np.zeros((0, 3, 4, 4)), requires_grad=True)
    y = getattr(aq, name)(x, 2)
    y.sum().backward()
    assert y.shape == (0, 3, 2, 2)
    assert x.grad.shape == x.shape


WRONG = [
    ("max_pool2d", (np.ones((2, 3)), 4), {}, ShapeError, r"spans \(4, 4\) over \(2, 3\)"),
    ("max_pool2d", (np.ones(3), 1), {}, ShapeError, "at least 2 axes"),
    ("max_pool1d", (np.ones(3), 0), {}, ArgumentError, "kernel=0"),
    ("max_pool1d", (np.ones(3), 2), {"padding": 2}, ArgumentError, "half the kernel"),
    ("avg_pool1d", (np.ones(3), 2.5), {}, ArgumentError, "2.5"),
    ("adaptive_avg_pool1d", (np.ones((2, 0)), 1), {}, ShapeError, r"\(2, 0\)"),
    ("adaptive_avg_pool2d", (np.ones(3), 1), {}, ShapeError, r"\(3,\)"),
    ("adaptive_avg_pool2d", (np.ones((3, 3)), 0), {}, ArgumentError, "output_size=0"),
]


@pytest.mark.parametrize(("name", "arguments", "static", "error", "text"), WRONG)
def test_errors_say_what_was_given_allowed_and_what_to_do(name, arguments, static, error, text):
    with pytest.raises(error, match=text) as caught:
        getattr(aq, name)(*arguments, **static)
    assert name in str(caught.value)
    assert caught.value.remedy
