"""Batch, group and instance norm: means and variances of what each of them normalizes over."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, ShapeError


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape) * 3 + 1


def scaled(y, weight, bias):
    shape = (-1, *(1,) * (y.ndim - 2))
    return y * weight.reshape(shape) + bias.reshape(shape)


def normalized(x, axis, eps):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + eps)


@pytest.mark.parametrize("shape", [(6, 4), (2, 4, 5), (2, 4, 3, 2)])
def test_batch_norm_normalizes_each_channel_over_all_else(shape):
    x, weight, bias = data(*shape), data(4, seed=1), data(4, seed=2)
    expected = scaled(normalized(x, (0, *range(2, x.ndim)), 0.1), weight, bias)
    y = aq.batch_norm(x, weight=weight, bias=bias, eps=0.1)
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-12)


def test_batch_norm_with_statistics_is_an_affine_map():
    x, mean, variance = data(2, 4, 5), data(4, seed=1), np.abs(data(4, seed=2))
    expected = (x - mean[:, None]) / np.sqrt(variance[:, None] + 1e-5)
    np.testing.assert_allclose(aq.batch_norm(x, mean, variance).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_norm_normalizes_groups_of_channels_of_each_sample(groups):
    x, weight, bias = data(3, 4, 5, 2), data(4, seed=1), data(4, seed=2)
    rows = normalized(x.reshape(3, groups, -1), -1, 1e-5).reshape(x.shape)
    y = aq.group_norm(x, weight, bias, groups=groups)
    np.testing.assert_allclose(y.numpy(), scaled(rows, weight, bias), atol=1e-12)


def test_instance_norm_is_group_norm_of_single_channels():
    x, weight, bias = data(3, 4, 5), data(4, seed=1), data(4, seed=2)
    expected = aq.group_norm(x, weight, bias, groups=4).numpy()
    np.testing.assert_array_equal(aq.instance_norm(x, weight, bias).numpy(), expected)


def test_a_shift_of_a_batch_changes_neither_result_nor_gradient():
    x, g = data(5, 3), data(5, 3, seed=1)
    a, b = (aq.tensor(x + shift, requires_grad=True) for shift in (0.0, 7.0))
    for t in (a, b):
        aq.batch_norm(t).backward(g)
    np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), atol=1e-10)
    np.testing.assert_allclose(a.grad.numpy().sum(0), 0, atol=1e-12)


def test_packed_signals_are_encoded_once():
    x = aq.tensor(data(4, 2, 64), dtype=aq.mxfp8)
    for y, exact in (
        (aq.batch_norm(x), aq.batch_norm(x.dequantize())),
        (aq.group_norm(x, groups=2), aq.group_norm(x.dequantize(), groups=2)),
    ):
        assert y.value.same_bits(exact.quantize(aq.mxfp8).value)


def test_empty_batches():
    empty = np.zeros((0, 4, 3), np.float32)
    for y in (aq.batch_norm(empty), aq.group_norm(empty, groups=2), aq.instance_norm(empty)):
        assert y.shape == (0, 4, 3)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: aq.batch_norm(np.ones(3)), ShapeError, r"x is \(3,\)"),
        (lambda: aq.batch_norm(np.ones((2, 3)), np.ones(3)), ShapeError, "both None"),
        (lambda: aq.batch_norm(np.ones((2, 3)), weight=np.ones(2)), ShapeError, r"weight is \(2,\)"),
        (lambda: aq.batch_norm(np.ones((2, 3)), np.ones(2), np.ones(2)), ShapeError, r"mean is \(2,\)"),
        (lambda: aq.group_norm(np.ones((2, 3)), groups=2), ShapeError, "3 channels in 2 groups"),
        (lambda: aq.group_norm(np.ones((2, 3)), groups=0), ArgumentError, "groups=0"),
        (lambda: aq.group_norm(np.ones((2, 3)), bias=np.ones((3, 1)), groups=1), ShapeError, "bias is"),
        (lambda: aq.instance_norm(np.ones(3)), ShapeError, r"x is \(3,\)"),
    ],
)
def test_errors_say_what_was_given_allowed_and_what_to_do(call, error, text):
    with pytest.raises(error, match=text) as caught:
        call()
    assert caught.value.allowed
    assert caught.value.remedy
