"""Losses: single ops that decode their input and return float32, or float64 for float64 (S14)."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import numpy as np

from autoq.devices import on_gpu
from autoq.nn.module import Module
from autoq.tape.apply import apply
from autoq.tape.tensor import Tensor


def cross_entropy(
    logits: Any,
    labels: Any,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
) -> Tensor:
    """``-log softmax(logits)[label]``, its mean by default.

    Args:
        logits: ``(..., classes)``, any float or quantized dtype.
        labels: Integers ``(...)`` in ``0 … classes - 1``: an array, a list or a tensor.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of each target that is spread over all classes (Szegedy et al. 2016).
        ignore_index: A label whose rows count neither in the loss nor in the mean; None for none.

    Raises:
        ShapeError: Labels of another shape than the logits' leading axes.
        DTypeError: Labels that are no integers.
        IndexingError: A label that is no class.

    Example:
        >>> import autoq as aq
        >>> round(cross_entropy(aq.tensor([[0.0] * 4] * 2), [0, 3]).item(), 4)
        1.3863
    """
    labels = labels if isinstance(labels, Tensor) or on_gpu(labels) else np.asarray(labels)
    return apply(
        "cross_entropy",
        logits,
        labels=labels,
        reduction=reduction,
        label_smoothing=label_smoothing,
        ignore_index=ignore_index,
    )


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


class Loss(Module):
    """Base of the losses: an op, and how the losses of all values become one.

    Args:
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for one loss a value or example.

    Example:
        >>> import autoq as aq
        >>> aq.nn.L1Loss("sum")
        L1Loss(reduction='sum')
    """

    op: ClassVar[str]

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, prediction: Any, target: Any) -> Tensor:
        """The loss of two tensors of one shape."""
        return apply(self.op, prediction, target, **_arguments(self))

    def describe(self) -> str:
        """What differs from the defaults."""
        usual = {name: p.default for name, p in inspect.signature(type(self).__init__).parameters.items()}
        return ", ".join(f"{key}={value!r}" for key, value in _arguments(self).items() if value != usual[key])


def _arguments(loss: Loss) -> dict[str, Any]:
    """The loss's own arguments."""
    return {name: value for name, value in vars(loss).items() if name != "training"}


class CrossEntropyLoss(Loss):
    """:func:`cross_entropy` as a module.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of each target that is spread over all classes.
        ignore_index: A label whose rows count neither in the loss nor in the mean; None for none.

    Example:
        >>> import autoq as aq
        >>> round(CrossEntropyLoss()(aq.tensor([[0.0] * 4] * 2), [0, 3]).item(), 4)
        1.3863
    """

    def __init__(
        self, reduction: str = "mean", label_smoothing: float = 0.0, ignore_index: int | None = None
    ) -> None:
        super().__init__(reduction)
        self.label_smoothing, self.ignore_index = label_smoothing, ignore_index

    def forward(self, logits: Any, labels: Any) -> Tensor:
        """Loss of ``logits (..., classes)`` and integer ``labels (...)``."""
        return cross_entropy(logits, labels, **_arguments(self))


class NLLLoss(Loss):
    """``nll_loss``: minus the log-probability of each label, of what ``log_softmax`` gives.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        ignore_index: A label whose rows count neither in the loss nor in the mean; None for none.

    Example:
        >>> import autoq as aq
        >>> NLLLoss()(aq.tensor([[-0.5, -1.0]]), [1]).item()
        1.0
    """

    def __init__(self, reduction: str = "mean", ignore_index: int | None = None) -> None:
        super().__init__(reduction)
        self.ignore_index = ignore_index

    def forward(self, log_probs: Any, labels: Any) -> Tensor:
        """Loss of ``log_probs (..., classes)`` and integer ``labels (...)``."""
        labels = labels if isinstance(labels, Tensor) or on_gpu(labels) else np.asarray(labels)
        return apply("nll_loss", log_probs, labels=labels, **_arguments(self))


class MSELoss(Loss):
    """:func:`mse_loss` as a module.

    Example:
        >>> import autoq as aq
        >>> MSELoss()(aq.tensor([1.0, 3.0]), aq.tensor([1.0, 1.0])).item()
        2.0
    """

    op = "mse_loss"


class L1Loss(Loss):
    """``l1_loss``: the absolute difference.

    Example:
        >>> import autoq as aq
        >>> L1Loss()(aq.tensor([1.0, 4.0]), aq.tensor([1.0, 1.0])).item()
        1.5
    """

    op = "l1_loss"


class SmoothL1Loss(Loss):
    """``smooth_l1_loss``: a parabola up to ``beta``, the absolute difference less beta / 2 beyond.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        beta: Where the parabola ends.

    Example:
        >>> import autoq as aq
        >>> SmoothL1Loss()(aq.tensor([4.0]), aq.tensor([1.0])).item()
        2.5
    """

    op = "smooth_l1_loss"

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta


class HuberLoss(Loss):
    """``huber_loss``: a parabola up to ``delta``, a line of that slope beyond.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        delta: Where the parabola ends.

    Example:
        >>> import autoq as aq
        >>> HuberLoss(delta=2.0)(aq.tensor([4.0]), aq.tensor([1.0])).item()
        4.0
    """

    op = "huber_loss"

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta


class BCELoss(Loss):
    """``binary_cross_entropy`` of probabilities.

    Example:
        >>> import autoq as aq
        >>> round(BCELoss()(aq.tensor([0.5]), aq.tensor([1.0])).item(), 4)
        0.6931
    """

    op = "binary_cross_entropy"


class BCEWithLogitsLoss(Loss):
    """``binary_cross_entropy_with_logits``: of sigmoid(prediction), without overflow.

    Example:
        >>> import autoq as aq
        >>> round(BCEWithLogitsLoss()(aq.tensor([0.0]), aq.tensor([1.0])).item(), 4)
        0.6931
    """

    op = "binary_cross_entropy_with_logits"


class KLDivLoss(Loss):
    """``kl_div`` of log-probabilities from probabilities.

    Args:
        reduction: ``"mean"``, ``"sum"``, ``"none"``, or ``"batchmean"`` for the mean over the first axis.
        log_target: Whether targets are logarithms too.

    Example:
        >>> import autoq as aq
        >>> KLDivLoss("batchmean")(aq.tensor([[-0.5, -1.0]]), aq.tensor([[0.0, 1.0]])).item()
        1.0
    """

    op = "kl_div"

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target
