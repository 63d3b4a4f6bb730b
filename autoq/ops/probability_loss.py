"""Losses of probabilities: likelihoods of labels, binary cross-entropy, divergence of distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.ops.axes import Shape
from autoq.ops.loss import REDUCTIONS, check_pair, checked_labels, reduced, spread
from autoq.ops.samples import Case, moved
from autoq.tape.beside import held
from autoq.tape.op import Op, register

_FLOOR = -100.0  # of a logarithm, so that one certain mistake doesn't make the whole loss infinite
_LEAST = 1e-12  # of p (1 - p) as a divisor


def nll_loss(log_probs: Any, *, labels: Any, reduction: str = "mean", ignore_index: int | None = None) -> Any:
    """Minus the log-probability of each label.

    Args:
        log_probs: (..., classes), as of `log_softmax`.
        labels: Integers (...), from 0 to classes - 1.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for one loss an example.
        ignore_index: A label whose rows count neither in the loss nor in the mean; None for none.

    Raises:
        ShapeError: Labels whose shape isn't that of `log_probs` without the last axis.
        DTypeError: Labels that aren't integers.
        IndexingError: A label that is no class.
        ArgumentError: An unknown reduction.

    Example:
        >>> import autoq as aq
        >>> aq.nll_loss([[-0.5, -1.0], [-2.0, -0.25]], [0, 1], reduction="none")
        tensor([0.5  0.25], float32)
    """
    labels, kept = checked_labels("nll_loss", log_probs.shape, labels, ignore_index, log_probs)
    if not labels.size:
        return reduced("nll_loss", log_probs.reshape(-1)[:0].reshape(labels.shape), reduction, kept)
    picked = np.take_along_axis(log_probs, labels[..., None], -1)[..., 0]
    return reduced("nll_loss", np.negative(picked), reduction, kept)


def binary_cross_entropy(pred: Any, target: Any, *, reduction: str = "mean") -> Any:
    """-target * log(pred) - (1 - target) * log(1 - pred); a logarithm counts as -100 at least.

    Args:
        pred: Probabilities, any shape. Of logits use `binary_cross_entropy_with_logits`, which loses nothing.
        target: Probabilities of the same shape.
        reduction: ``"mean"`` over all values, ``"sum"``, or ``"none"``.

    Raises:
        ShapeError: Shapes that differ.
        ArgumentError: An unknown reduction.

    Example:
        >>> import autoq as aq
        >>> aq.binary_cross_entropy([0.5, 0.75], [0.0, 1.0], reduction="none")
        tensor([0.6931... 0.2876...], float32)
    """
    check_pair("binary_cross_entropy", pred, target)
    with np.errstate(divide="ignore"):
        hit, miss = np.maximum(np.log(pred), _FLOOR), np.maximum(np.log1p(-pred), _FLOOR)
    return reduced("binary_cross_entropy", (target - 1.0) * miss - target * hit, reduction)


def binary_cross_entropy_with_logits(logits: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The binary cross-entropy of sigmoid(logits), without overflow or loss of digits.

    Args:
        logits: Any shape.
        target: Probabilities of the same shape.
        reduction: ``"mean"`` over all values, ``"sum"``, or ``"none"``.

    Raises:
        ShapeError: Shapes that differ.
        ArgumentError: An unknown reduction.

    Example:
        >>> import autoq as aq
        >>> aq.binary_cross_entropy_with_logits([0.0, 1000.0], [1.0, 0.0], reduction="none")
        tensor([6.931472e-01 1.000000e+03], float32)
    """
    check_pair("binary_cross_entropy_with_logits", logits, target)
    losses = np.maximum(logits, 0.0) - logits * target + np.log1p(np.exp(-np.abs(logits)))
    return reduced("binary_cross_entropy_with_logits", losses, reduction)


def kl_div(log_pred: Any, target: Any, *, reduction: str = "mean", log_target: bool = False) -> Any:
    """The Kullback-Leibler divergence, target * (log(target) - log_pred); a target of 0 adds 0.

    Args:
        log_pred: Log-probabilities, any shape.
        target: Probabilities of the same shape, or their logarithms with `log_target`.
        reduction: ``"mean"`` over all values, ``"sum"``, ``"none"``, or ``"batchmean"``: the sum over the
            length of the first axis, which is the mean divergence of (n, classes).
        log_target: Whether `target` holds logarithms.

    Raises:
        ShapeError: Shapes that differ.
        ArgumentError: An unknown reduction.

    Example:
        >>> import autoq as aq
        >>> aq.kl_div([[-0.5, -1.0]], [[0.0, 1.0]], reduction="none")
        tensor([[0. 1.]], float32)
    """
    check_pair("kl_div", log_pred, target)
    if log_target:
        losses = np.exp(target) * (target - log_pred)
    else:
        none = target == 0
        gap = np.log(np.where(none, 1.0, target)) - log_pred
        losses = target * np.where(none, 0.0, gap)
    if reduction == "batchmean":
        return reduced("kl_div", losses, "sum") / _batch(np.shape(losses))
    return reduced("kl_div", losses, reduction)


def _batch(shape: Shape) -> int:
    return shape[0] or 1 if shape else 1


def _nll_log_probs(
    F: Any, g: Any, log_probs_shape: Shape, labels: Any, reduction: str, ignore_index: int | None
) -> Any:
    """Minus the cotangent of each row, at its label."""
    labels, kept = checked_labels("nll_loss", log_probs_shape, labels, ignore_index, held(g))
    count = labels.size if kept is None else np.count_nonzero(kept)
    g = F.broadcast_to(spread(g, reduction, count), shape=labels.shape)
    if kept is not None:
        g = F.where(kept, g, 0.0)
    return F.scatter_add_along_axis(
        -F.expand_dims(g, axis=-1), indices=labels[..., None], axis=-1, shape=log_probs_shape
    )


def _bce_pred(F: Any, g: Any, pred: Any, target: Any, pred_shape: Shape, reduction: str) -> Any:
    g = spread(g, reduction, math.prod(pred_shape))
    return g * (pred - target) / F.maximum(pred * (1.0 - pred), _LEAST)


def _bce_target(F: Any, g: Any, pred: Any, pred_shape: Shape, reduction: str) -> Any:
    hit = F.clip(F.log(pred), min=_FLOOR, max=None)
    miss = F.clip(F.log(1.0 - pred), min=_FLOOR, max=None)
    return (miss - hit) * spread(g, reduction, math.prod(pred_shape))


def _logits(F: Any, g: Any, logits: Any, target: Any, logits_shape: Shape, reduction: str) -> Any:
    return (F.sigmoid(logits) - target) * spread(g, reduction, math.prod(logits_shape))


def _logits_target(F: Any, g: Any, logits: Any, logits_shape: Shape, reduction: str) -> Any:
    return -logits * spread(g, reduction, math.prod(logits_shape))


def _kl_scale(g: Any, reduction: str, shape: Shape) -> Any:
    return g * (1.0 / _batch(shape)) if reduction == "batchmean" else spread(g, reduction, math.prod(shape))


def _kl_log_pred(F: Any, g: Any, target: Any, log_pred_shape: Shape, reduction: str, log_target: bool) -> Any:
    weight = F.exp(target) if log_target else target
    return -weight * _kl_scale(g, reduction, log_pred_shape)


def _kl_target(
    F: Any, g: Any, log_pred: Any, target: Any, log_pred_shape: Shape, reduction: str, log_target: bool
) -> Any:
    g = _kl_scale(g, reduction, log_pred_shape)
    if log_target:
        return F.exp(target) * (target - log_pred + 1.0) * g
    return (F.log(target) - log_pred + 1.0) * g


_LABELS = np.array([2, 0, 2])
_nll_rows = moved(
    (3, 4),
    {"labels": _LABELS},
    {"labels": _LABELS, "reduction": "sum", "ignore_index": 0},
    {"labels": _LABELS, "reduction": "none"},
    {"labels": _LABELS, "ignore_index": 2},
)
_nll_grid = moved((2, 3, 4), {"labels": np.array([_LABELS, [1, 3, 0]])})


def _nll_sample(rng: np.random.Generator) -> list[Case]:
    return [*_nll_rows(rng), *_nll_grid(rng)]


def _bce_sample(rng: np.random.Generator) -> list[Case]:
    return [
        ((rng.uniform(0.1, 0.9, (3, 4)), rng.uniform(0, 1, (3, 4))), {"reduction": reduction})
        for reduction in REDUCTIONS
    ]


def _logits_sample(rng: np.random.Generator) -> list[Case]:
    return [
        ((rng.standard_normal((3, 4)), rng.uniform(0, 1, (3, 4))), {"reduction": reduction})
        for reduction in REDUCTIONS
    ]


def _kl_sample(rng: np.random.Generator) -> list[Case]:
    pred, target = np.log(rng.uniform(0.1, 0.9, (3, 4))), rng.uniform(0.1, 0.9, (3, 4))
    cases: list[Case] = [((pred, target), {"reduction": r}) for r in (*REDUCTIONS, "batchmean")]
    return [*cases, ((pred, np.log(target)), {"log_target": True})]


def _pair(name: str, forward: Any, first: tuple[str, Any], target: Any, sample: Any) -> None:
    register(
        Op(
            name,
            forward,
            {first[0]: first[1], "target": target},
            kind="loss",
            accumulates=True,
            sample=sample,
        )
    )


register(
    Op(
        "nll_loss",
        nll_loss,
        {"log_probs": _nll_log_probs},
        kind="loss",
        accumulates=True,
        sample=_nll_sample,
    )
)
_pair("binary_cross_entropy", binary_cross_entropy, ("pred", _bce_pred), _bce_target, _bce_sample)
_pair(
    "binary_cross_entropy_with_logits",
    binary_cross_entropy_with_logits,
    ("logits", _logits),
    _logits_target,
    _logits_sample,
)
_pair("kl_div", kl_div, ("log_pred", _kl_log_pred), _kl_target, _kl_sample)
