"""Losses of a distance between prediction and target, value by value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.ops.arguments import number
from autoq.ops.axes import Shape
from autoq.ops.loss import REDUCTIONS, check_pair, reduced, spread
from autoq.ops.samples import Case
from autoq.tape.op import Op, register


def l1_loss(pred: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The absolute difference of prediction and target; where they are equal its gradient is 0.

    Args:
        pred: Any shape.
        target: Of the same shape.
        reduction: ``"mean"`` over all values, ``"sum"``, or ``"none"``.

    Raises:
        ShapeError: Shapes that differ.
        ArgumentError: An unknown reduction.

    Example:
        >>> import autoq as aq
        >>> aq.l1_loss([1.0, 2.0], [1.0, 5.0])
        tensor(1.5, float32)
    """
    check_pair("l1_loss", pred, target)
    return reduced("l1_loss", np.abs(pred - target), reduction)


def smooth_l1_loss(pred: Any, target: Any, *, reduction: str = "mean", beta: float = 1.0) -> Any:
    """``d * d / (2 beta)`` of differences d up to `beta`, ``|d| - beta / 2`` beyond.

    Source: Girshick, "Fast R-CNN", 2015.

    Args:
        pred: Any shape.
        target: Of the same shape.
        reduction: ``"mean"`` over all values, ``"sum"``, or ``"none"``.
        beta: Where the parabola becomes a line; more than 0.

    Raises:
        ShapeError: Shapes that differ.
        ArgumentError: An unknown reduction, or a beta that isn't positive.

    Example:
        >>> import autoq as aq
        >>> aq.smooth_l1_loss([1.0, 2.0], [1.0, 5.0], reduction="none")
        tensor([0.  2.5], float32)
    """
    return reduced("smooth_l1_loss", _huber("smooth_l1_loss", pred, target, beta) / float(beta), reduction)


def huber_loss(pred: Any, target: Any, *, reduction: str = "mean", delta: float = 1.0) -> Any:
    """``d * d / 2`` of differences d up to `delta`, ``delta * (|d| - delta / 2)`` beyond.

    It is delta times `smooth_l1_loss`.

    Source: Huber, "Robust Estimation of a Location Parameter", 1964.

    Args:
        pred: Any shape.
        target: Of the same shape.
        reduction: ``"mean"`` over all values, ``"sum"``, or ``"none"``.
        delta: Where the parabola becomes a line; more than 0.

    Raises:
        ShapeError: Shapes that differ.
        ArgumentError: An unknown reduction, or a delta that isn't positive.

    Example:
        >>> import autoq as aq
        >>> aq.huber_loss([1.0, 2.0], [1.0, 5.0], reduction="none", delta=2.0)
        tensor([0. 4.], float32)
    """
    return reduced("huber_loss", _huber("huber_loss", pred, target, delta), reduction)


def _huber(name: str, pred: Any, target: Any, delta: float) -> Any:
    check_pair(name, pred, target)
    delta = number(name, "beta" if name == "smooth_l1_loss" else "delta", delta, above=0)
    size = np.abs(pred - target)
    inner = np.minimum(size, delta)
    return inner * (size - 0.5 * inner)


def _l1_pred(F: Any, g: Any, pred: Any, target: Any, pred_shape: Shape, reduction: str) -> Any:
    return F.sign(pred - target) * spread(g, reduction, math.prod(pred_shape))


def _l1_target(F: Any, g: Any, pred: Any, target: Any, pred_shape: Shape, reduction: str) -> Any:
    return _l1_pred(F, g, target, pred, pred_shape, reduction)


def _huber_pred(
    F: Any, g: Any, pred: Any, target: Any, pred_shape: Shape, reduction: str, delta: float
) -> Any:
    return F.clip(pred - target, min=-delta, max=delta) * spread(g, reduction, math.prod(pred_shape))


def _huber_target(
    F: Any, g: Any, pred: Any, target: Any, pred_shape: Shape, reduction: str, delta: float
) -> Any:
    return _huber_pred(F, g, target, pred, pred_shape, reduction, delta)


def _smooth_pred(
    F: Any, g: Any, pred: Any, target: Any, pred_shape: Shape, reduction: str, beta: float
) -> Any:
    return _huber_pred(F, g * (1.0 / beta), pred, target, pred_shape, reduction, beta)


def _smooth_target(
    F: Any, g: Any, pred: Any, target: Any, pred_shape: Shape, reduction: str, beta: float
) -> Any:
    return _smooth_pred(F, g, target, pred, pred_shape, reduction, beta)


def _sample(**static: Any) -> Any:
    """Differences on either side of 0.7, none near it or near 0."""

    def sample(rng: np.random.Generator) -> list[Case]:
        target = rng.standard_normal((3, 4))
        size = np.where(
            np.arange(12).reshape(3, 4) % 2, rng.uniform(0.1, 0.6, (3, 4)), rng.uniform(0.8, 2, (3, 4))
        )
        pred = target + size * rng.choice([-1.0, 1.0], (3, 4))
        return [((pred, target), {"reduction": reduction, **static}) for reduction in REDUCTIONS]

    return sample


for _function, _rules, _static in (
    (l1_loss, (_l1_pred, _l1_target), {}),
    (smooth_l1_loss, (_smooth_pred, _smooth_target), {"beta": 0.7}),
    (huber_loss, (_huber_pred, _huber_target), {"delta": 0.7}),
):
    register(
        Op(
            _function.__name__,
            _function,
            dict(zip(("pred", "target"), _rules, strict=True)),
            kind="loss",
            accumulates=True,
            sample=_sample(**_static),
        )
    )
