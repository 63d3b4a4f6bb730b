"""Operands that are missing and arguments of another kind: errors that name them."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, DTypeError

X = np.ones((1, 2, 4, 4), np.float32)
A, B = np.random.default_rng(0).standard_normal((2, 4, 5))


@pytest.mark.parametrize(
    ("name", "operands", "missing"),
    [
        ("conv2d", (None, X), "x"),
        ("conv2d", (X, None), "weight"),
        ("batch_norm", (None, np.ones(2)), "x"),
        ("scaled_dot_product_attention", (X, X, None), "v"),
        ("l1_loss", (1.0, None), "target"),
        ("add", (X, None), "b"),
    ],
)
def test_an_operand_that_is_needed_is_named(name, operands, missing):
    with pytest.raises(DTypeError, match=f"{name}: {missing} is None") as caught:
        getattr(aq, name)(*operands)
    assert caught.value.allowed
    assert caught.value.remedy


def test_an_operand_with_a_default_may_be_left_out():
    assert aq.conv2d(X, np.ones((3, 2, 1, 1)), None).shape == (1, 3, 4, 4)
    assert aq.batch_norm(X, None, None, np.ones(2)).shape == X.shape


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: aq.huber_loss(A, B, delta="x"), ArgumentError, "delta='x'"),
        (lambda: aq.smooth_l1_loss(A, B, beta=None), ArgumentError, "beta=None"),
        (lambda: aq.smooth_l1_loss(A, B, beta=float("nan")), ArgumentError, "beta=nan"),
        (lambda: aq.cross_entropy(A, [0] * 4, label_smoothing=None), ArgumentError, "label_smoothing=None"),
        (lambda: aq.cross_entropy(A, [0] * 4, ignore_index=(1, 2)), ArgumentError, r"ignore_index=\(1, 2\)"),
        (lambda: aq.nll_loss(A, [[0], [1, 2]]), DTypeError, "differ in length"),
        (lambda: aq.rope(A[:, :4], base=None), ArgumentError, "base=None"),
        (lambda: aq.rope(A[:, :4], heads=2.0), ArgumentError, "heads=2.0"),
        (lambda: aq.embedding(A, "a"), DTypeError, "<U1"),
        (lambda: aq.embedding(A, [0], padding_idx="a"), ArgumentError, "padding_idx='a'"),
        (lambda: aq.group_norm(A, groups=(1,)), ArgumentError, r"groups=\(1,\)"),
        (lambda: aq.batch_norm(A, eps="x"), ArgumentError, "eps='x'"),
        (lambda: aq.scaled_dot_product_attention(A, A, A, scale="x"), ArgumentError, "scale='x'"),
        (lambda: aq.scaled_dot_product_attention(A, A, A, kv_heads=1), ArgumentError, "without heads"),
    ],
)
def test_arguments_of_another_kind_are_named(call, error, text):
    with pytest.raises(error, match=text) as caught:
        call()
    assert caught.value.allowed
    assert caught.value.remedy
