"""Losses: single ops that decode their input and return float32, or float64 for float64 (S14)."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.nn.module import Module
from autoq.tape.apply import apply
from autoq.tape.tensor import Tensor


def cross_entropy(logits: Any, labels: Any, reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """``-log softmax(logits)[label]``, its mean by default.

    Args:
        logits: ``(..., classes)``, any float or quantized dtype.
        labels: Integers ``(...)`` in ``0 … classes - 1``: an array, a list or a tensor.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of each target that is spread over all classes (Szegedy et al. 2016).

    Raises:
        ShapeError: Labels of another shape than the logits' leading axes.
        DTypeError: Labels that are no integers.
        IndexingError: A label that is no class.

    Example:
        >>> import autoq as aq
        >>> round(cross_entropy(aq.tensor([[0.0] * 4] * 2), [0, 3]).item(), 4)
        1.3863
    """
    labels = labels.value if isinstance(labels, Tensor) else np.asarray(labels)
    return apply("cross_entropy", logits, labels=labels, reduction=reduction, label_smoothing=label_smoothing)


def mse_loss(prediction: Any, target: Any, reduction: str = "mean") -> Tensor:
    """``(prediction - target)²``, its mean over all elements by default; both of one shape.

    Args:
        prediction: Any shape, any float or quantized dtype.
        target: Of the same shape.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ShapeError: Shapes that differ.

    Example:
        >>> import autoq as aq
        >>> mse_loss(aq.tensor([1.0, 3.0]), aq.tensor([1.0, 1.0])).item()
        2.0
    """
    return apply("mse_loss", prediction, target, reduction=reduction)


class CrossEntropyLoss(Module):
    """:func:`cross_entropy` as a module.

    Example:
        >>> import autoq as aq
        >>> round(CrossEntropyLoss()(aq.tensor([[0.0] * 4] * 2), [0, 3]).item(), 4)
        1.3863
    """

    def forward(self, logits: Any, labels: Any) -> Tensor:
        """Scalar loss of ``logits (..., classes)`` and integer ``labels (...)``."""
        return cross_entropy(logits, labels)


class MSELoss(Module):
    """:func:`mse_loss` as a module.

    Example:
        >>> import autoq as aq
        >>> MSELoss()(aq.tensor([1.0, 3.0]), aq.tensor([1.0, 1.0])).item()
        2.0
    """

    def forward(self, prediction: Any, target: Any) -> Tensor:
        """Scalar loss of two tensors of one shape."""
        return mse_loss(prediction, target)
