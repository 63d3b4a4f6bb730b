"""Losses against their formulas, and at the edges where the formulas overflow."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, DTypeError, IndexingError, ShapeError


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def shares(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0.05, 0.95, shape)


def reduced(losses, reduction):
    return {"mean": losses.mean(), "sum": losses.sum(), "none": losses}[reduction]


A, B, P, Q = data(4, 5), data(4, 5, seed=1), shares(4, 5), shares(4, 5, seed=1)
D = np.abs(A - B)
FORMULAS = [
    ("l1_loss", (A, B), {}, D),
    ("smooth_l1_loss", (A, B), {"beta": 0.7}, np.where(D < 0.7, D * D / 1.4, D - 0.35)),
    ("huber_loss", (A, B), {"delta": 0.7}, np.where(D < 0.7, D * D / 2, 0.7 * (D - 0.35))),
    ("binary_cross_entropy", (P, Q), {}, -Q * np.log(P) - (1 - Q) * np.log(1 - P)),
    (
        "binary_cross_entropy_with_logits",
        (A, Q),
        {},
        Q * np.log1p(np.exp(-A)) + (1 - Q) * np.log1p(np.exp(A)),
    ),
    ("kl_div", (np.log(P), Q), {}, Q * np.log(Q / P)),
    ("kl_div", (np.log(P), np.log(Q)), {"log_target": True}, Q * np.log(Q / P)),
]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("name", "operands", "static", "losses"), FORMULAS)
def test_a_loss_is_its_formula(name, operands, static, losses, reduction):
    y = getattr(aq, name)(*operands, reduction=reduction, **static)
    assert y.dtype == aq.float64
    np.testing.assert_allclose(y.numpy(), reduced(losses, reduction), rtol=1e-12)


@pytest.mark.parametrize(("name", "operands", "static", "losses"), FORMULAS)
def test_a_loss_of_packed_or_half_values_is_float32(name, operands, static, losses):
    for dtype in (aq.mxfp8, aq.float16):
        x = aq.tensor(operands[0].astype(np.float32), dtype=dtype)
        y = getattr(aq, name)(x, operands[1].astype(np.float32), **static)
        assert y.dtype == aq.float32
        exact = getattr(aq, name)(x.numpy().astype(np.float32), operands[1].astype(np.float32), **static)
        np.testing.assert_array_equal(y.numpy(), exact.numpy())


def test_binary_cross_entropy_of_certain_predictions_is_bounded():
    p = aq.tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True)
    y = aq.binary_cross_entropy(p, np.array([0.0, 1.0, 1.0, 0.0], np.float32), reduction="none")
    y.sum().backward()
    assert y.tolist() == [0, 0, 100, 100]
    assert np.isfinite(p.grad.numpy()).all()


def test_binary_cross_entropy_of_large_logits_neither_overflows_nor_loses_digits():
    x = aq.tensor([-1000.0, 1000.0, -40.0], dtype=np.float64, requires_grad=True)
    y = aq.binary_cross_entropy_with_logits(x, np.array([1.0, 1.0, 0.0]), reduction="none")
    y.sum().backward()
    np.testing.assert_allclose(y.numpy(), [1000, 0, np.exp(-40)], rtol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), [-1, 0, np.exp(-40)], rtol=1e-12)


def test_kl_div_of_equal_distributions_is_zero_and_zero_targets_add_nothing():
    p = aq.softmax(A).numpy()
    assert aq.kl_div(np.log(p), p, reduction="sum").item() == pytest.approx(0, abs=1e-14)
    y = aq.kl_div(np.array([[-np.inf, 0.0]]), np.array([[0.0, 1.0]]), reduction="none")
    assert y.tolist() == [[0, 0]]
    total = aq.kl_div(np.log(P), Q, reduction="sum").item()
    assert aq.kl_div(np.log(P), Q, reduction="batchmean").item() == pytest.approx(total / 4)


def test_nll_of_log_softmax_is_cross_entropy():
    labels = np.array([0, 4, 2, 2])
    x, y = (aq.tensor(A, requires_grad=True) for _ in range(2))
    one, two = aq.nll_loss(aq.log_softmax(x), labels), aq.cross_entropy(y, labels)
    one.backward()
    two.backward()
    assert one.item() == pytest.approx(two.item(), rel=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), atol=1e-15)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
def test_ignored_labels_count_neither_in_the_loss_nor_in_the_mean(name, reduction):
    labels, kept = np.array([0, -100, 2, -100]), [0, 2]
    x, y = aq.tensor(A, requires_grad=True), aq.tensor(A[kept], requires_grad=True)
    some = getattr(aq, name)(x, labels, reduction=reduction, ignore_index=-100)
    alone = getattr(aq, name)(y, labels[kept], reduction=reduction)
    np.testing.assert_allclose(some.numpy()[kept] if reduction == "none" else some.numpy(), alone.numpy())
    some.sum().backward()
    alone.sum().backward()
    np.testing.assert_allclose(x.grad.numpy()[kept], y.grad.numpy(), rtol=1e-12)
    np.testing.assert_array_equal(x.grad.numpy()[[1, 3]], 0)


@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
def test_where_every_label_is_ignored_loss_and_gradient_are_zero(name):
    x = aq.tensor(np.full((2, 3), np.nan), requires_grad=True)
    y = getattr(aq, name)(x, [7, 7], ignore_index=7)
    y.backward()
    assert y.item() == 0
    np.testing.assert_array_equal(x.grad.numpy(), 0)


def test_gradients_at_the_kinks():
    x, target = aq.tensor([1.0, 2.0], requires_grad=True), np.array([1.0, 1.0], np.float32)
    aq.l1_loss(x, target, reduction="sum").backward()
    assert x.grad.tolist() == [0, 1]
    x.grad = None
    aq.huber_loss(x, target, reduction="sum").backward()
    assert x.grad.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["l1_loss", "smooth_l1_loss", "binary_cross_entropy", "kl_div"])
def test_losses_of_no_values_sum_to_zero(name):
    none = np.zeros((0, 3))
    assert getattr(aq, name)(none, none, reduction="sum").item() == 0
    assert aq.nll_loss(none, np.zeros(0, int), reduction="sum").item() == 0


@pytest.mark.parametrize(
    ("name", "arguments", "static", "error", "text"),
    [
        ("l1_loss", (A, A[:3]), {}, ShapeError, r"target is \(3, 5\)"),
        ("kl_div", (A, A[0]), {}, ShapeError, r"target is \(5,\)"),
        ("binary_cross_entropy", (P, Q[0]), {}, ShapeError, "pred is"),
        ("binary_cross_entropy_with_logits", (A, Q[0]), {}, ShapeError, "pred is"),
        ("l1_loss", (A, B), {"reduction": "batchmean"}, ArgumentError, "'batchmean'"),
        ("kl_div", (A, Q), {"reduction": "max"}, ArgumentError, "'max'"),
        ("smooth_l1_loss", (A, B), {"beta": 0}, ArgumentError, "l1_loss"),
        ("huber_loss", (A, B), {"delta": -1.0}, ArgumentError, "-1.0"),
        ("nll_loss", (A, [0, 1, 2, 5]), {}, IndexingError, "from 0 to 5"),
        ("nll_loss", (A, [0, 1, 2, -100]), {}, IndexingError, "ignore_index="),
        ("nll_loss", (A, [0.0] * 4), {}, DTypeError, "float64"),
        ("nll_loss", (A, [0]), {}, ShapeError, r"labels are \(1,\)"),
        ("cross_entropy", (A, [0, 1, 2, 9]), {"ignore_index": -100}, IndexingError, "from 0 to 9"),
    ],
)
def test_errors_say_what_was_given_allowed_and_what_to_do(name, arguments, static, error, text):
    with pytest.raises(error, match=text) as caught:
        getattr(aq, name)(*arguments, **static)
    assert name in str(caught.value)
    assert caught.value.allowed
    assert caught.value.remedy
