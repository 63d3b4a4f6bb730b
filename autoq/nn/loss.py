"""Losses: single ops that decode their input and return float32, or float64 for float64 (S14)."""

from __future__ import annotations

from typing import Any

from autoq.nn.module import Module
from autoq.tape.apply import apply


def cross_entropy(logits: Any, targets: Any) -> Any:
    """Mean of ``-log softmax(logits)[target]``.

    Args:
        logits: ``(..., classes)``, any float or quantized dtype.
        targets: Integers ``(...)`` in ``0 … classes - 1``.

    Example:
        >>> import autoq as aq
        >>> round(cross_entropy(aq.zeros((2, 4)), [0, 3]).item(), 4)
        1.3863
    """
    return apply("cross_entropy", logits, targets)


def mse_loss(prediction: Any, target: Any) -> Any:
    """Mean of ``(prediction - target)²`` over all elements; both of one shape.

    Example:
        >>> import autoq as aq
        >>> mse_loss(aq.tensor([1.0, 3.0]), aq.tensor([1.0, 1.0])).item()
        2.0
    """
    return apply("mse_loss", prediction, target)


class CrossEntropyLoss(Module):
    """:func:`cross_entropy` as a module.

    Example:
        >>> import autoq as aq
        >>> round(CrossEntropyLoss()(aq.zeros((2, 4)), [0, 3]).item(), 4)
        1.3863
    """

    def forward(self, logits: Any, targets: Any) -> Any:
        """Scalar loss of ``logits (..., classes)`` and integer ``targets (...)``."""
        return cross_entropy(logits, targets)


class MSELoss(Module):
    """:func:`mse_loss` as a module.

    Example:
        >>> import autoq as aq
        >>> MSELoss()(aq.tensor([1.0, 3.0]), aq.tensor([1.0, 1.0])).item()
        2.0
    """

    def forward(self, prediction: Any, target: Any) -> Any:
        """Scalar loss of two tensors of one shape."""
        return mse_loss(prediction, target)
