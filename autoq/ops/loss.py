"""Losses: operands are decoded and the result is float32, or float64 if an operand is (S14, S49)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.devices import array_namespace, beside, on_gpu
from autoq.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from autoq.ops.arguments import array, number, whole
from autoq.ops.axes import Shape, along
from autoq.ops.samples import Case, moved
from autoq.ops.softmax import peak
from autoq.tape.beside import held
from autoq.tape.op import Op, register

REDUCTIONS = ("mean", "sum", "none")


def cross_entropy(
    logits: Any, *, labels: Any, reduction: str = "mean", label_smoothing: float = 0.0,
    ignore_index: int | None = None,
) -> Any:  # fmt: skip
    """Minus the log-probability of each label under softmax(logits).

    Args:
        logits: (..., classes).
        labels: Integers (...), from 0 to classes - 1.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for one loss an example.
        label_smoothing: The share of each target that is spread evenly over all classes, 0 to 1
            (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2016).
        ignore_index: A label whose rows count neither in the loss nor in the mean; None for none.

    Raises:
        ShapeError: Labels whose shape isn't that of the logits without the last axis.
        DTypeError: Labels that aren't integers.
        IndexingError: A label that is no class.
        ArgumentError: An unknown reduction, or smoothing outside 0 to 1.

    Example:
        >>> import autoq as aq
        >>> aq.cross_entropy([[2.0, 0.0], [0.0, 2.0]], [0, 1])
        tensor(0.1269..., float32)
    """
    labels, kept = _checked_labels(logits, labels, label_smoothing, ignore_index)
    rows = logits.reshape(labels.size, logits.shape[-1])
    shifted = rows - peak(rows, 1, "cross_entropy")
    losses = np.log(along(np.add.reduce, np.exp(shifted), axis=1))
    hit = shifted[array_namespace(rows).arange(labels.size), labels.reshape(-1)]
    if label_smoothing:
        even = label_smoothing / rows.shape[1]
        hit = (1.0 - label_smoothing) * hit + along(np.add.reduce, shifted, axis=1) * even
    return reduced("cross_entropy", (losses - hit).reshape(labels.shape), reduction, kept)


def _cross_entropy_logits(
    F: Any, g: Any, logits: Any, logits_shape: Shape, labels: Any, reduction: str, label_smoothing: float,
    ignore_index: int | None,
) -> Any:  # fmt: skip
    """softmax(logits) less the target distribution."""
    labels = beside(labels, held(logits))
    kept = None if ignore_index is None else np.not_equal(labels, ignore_index)
    y = F.softmax(logits, axis=-1, mask=None)
    excess = F.subtract_targets(
        y, labels=labels if kept is None else np.where(kept, labels, 0), label_smoothing=label_smoothing
    )
    if kept is not None:
        excess = F.where(kept[..., None], excess, 0.0)
    if reduction == "none":
        return excess * F.expand_dims(g, axis=-1)
    return excess * spread(g, reduction, _count(kept, logits_shape[:-1]))


def subtract_targets(x: Any, *, labels: Any, label_smoothing: float = 0.0) -> Any:
    """`x` less the target distribution of each label: 1 at the label, smoothed.

    Args:
        x: (..., classes).
        labels: Integers (...), from 0 to classes - 1.
        label_smoothing: The share of each target that is spread evenly over all classes.

    Raises:
        ShapeError, DTypeError, IndexingError: Labels that don't belong to `x`, as of `cross_entropy`.
    """
    out = x.copy(order="C")
    flat = beside(labels, x).reshape(-1)
    try:
        rows = out.reshape(flat.size, x.shape[-1])
        if label_smoothing:
            rows -= label_smoothing / rows.shape[1]
        rows[array_namespace(x).arange(flat.size), flat] -= 1.0 - label_smoothing
    except (ValueError, IndexError):  # checked only here: a backward pass has labels that the forward took
        checked_labels("cross_entropy", x.shape, labels)
        raise
    return out


def _count(kept: Any, shape: Shape) -> Any:
    """How many terms a mean is of; counted on a GPU, an array there."""
    return math.prod(shape) if kept is None else np.count_nonzero(kept)


def mse_loss(pred: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The squared difference of prediction and target.

    Args:
        pred: Any shape.
        target: Of the same shape.
        reduction: ``"mean"`` over all values, ``"sum"``, or ``"none"``.

    Raises:
        ShapeError: Shapes that differ.
        ArgumentError: An unknown reduction.

    Example:
        >>> import autoq as aq
        >>> aq.mse_loss([1.0, 2.0], [1.0, 4.0])
        tensor(2., float32)
    """
    check_pair("mse_loss", pred, target)
    difference = pred - target
    return reduced("mse_loss", difference * difference, reduction)


def _mse_pred(F: Any, g: Any, pred: Any, target: Any, pred_shape: Shape, reduction: str) -> Any:
    return (pred - target) * (spread(g, reduction, math.prod(pred_shape)) * 2.0)


def _mse_target(F: Any, g: Any, pred: Any, target: Any, pred_shape: Shape, reduction: str) -> Any:
    return _mse_pred(F, g, target, pred, pred_shape, reduction)


def check_pair(name: str, pred: Any, target: Any) -> None:
    """Raise unless a prediction and its target have one shape.

    Raises:
        ShapeError: They have not.
    """
    if np.shape(pred) != np.shape(target):
        raise ShapeError(
            f"{name}: pred is {np.shape(pred)}, target is {np.shape(target)}.",
            "equal shapes.",
            "Reshape one; broadcasting here is mostly an oversight, say it with broadcast_to.",
        )


def spread(g: Any, reduction: str, count: Any) -> Any:
    """The cotangent of each term of a reduced loss."""
    if reduction != "mean":
        return g
    if on_gpu(count):
        return g * (1.0 / np.maximum(count, 1)).astype(g.dtype)
    return g * (1.0 / (int(count) or 1))


def reduced(name: str, losses: Any, reduction: str, kept: Any = None) -> Any:
    """The mean or the sum of losses, or all of them; those that aren't `kept` are 0 and don't count.

    Args:
        name: The op to name in an error.
        losses: Any shape.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        kept: Bool, of the losses' shape; None keeps all. The mean of none kept is 0.

    Raises:
        ArgumentError: An unknown reduction.
    """
    if kept is not None:
        losses = np.where(kept, losses, losses.dtype.type(0))
    if reduction == "mean":
        count = losses.size if kept is None else np.maximum(np.count_nonzero(kept), 1).astype(losses.dtype)
        return along(np.add.reduce, losses, axis=None) / count
    if reduction == "sum":
        return along(np.add.reduce, losses, axis=None)
    if reduction == "none":
        return losses
    allowed = ", ".join(REDUCTIONS)
    raise ArgumentError(f"{name}: reduction={reduction!r}.", f"{allowed}.", "Choose one of these.")


def _checked_labels(
    logits: Any, labels: Any, label_smoothing: float, ignore_index: int | None
) -> tuple[Any, Any]:
    """Labels of `cross_entropy`, and which of them count."""
    labels, kept = checked_labels("cross_entropy", logits.shape, labels, ignore_index, logits)
    share = number("cross_entropy", "label_smoothing", label_smoothing)
    if not 0.0 <= share <= 1.0:
        raise ArgumentError(f"cross_entropy: label_smoothing={share}.", "0 to 1.", "Pass a share.")
    return labels, kept


def checked_labels(
    name: str, shape: Shape, labels: Any, ignore_index: int | None = None, logits: Any = None
) -> tuple[Any, Any]:
    """Labels as an array of class numbers, and where they count; None if all do. Ignored ones become 0.

    Labels on a GPU are taken as they are; others are checked, and go to the device of `logits`.

    Raises:
        ShapeError: Labels whose shape isn't `shape` without the last axis.
        DTypeError: Labels that aren't integers.
        IndexingError: A label that is no class.
    """
    labels = array(name, "labels", labels)
    if labels.dtype.kind not in "iu":
        raise DTypeError(f"{name}: labels are {labels.dtype}.", "integers.", "Pass class numbers.")
    if not shape or labels.shape != shape[:-1]:
        raise ShapeError(
            f"{name}: logits are {shape}, labels are {labels.shape}.",
            "logits (..., classes) and labels (...).",
            "Put the classes on the last axis, and give one label a row.",
        )
    kept = None
    if ignore_index is not None:
        kept = np.not_equal(labels, whole(name, "ignore_index", ignore_index))
        labels = np.where(kept, labels, 0)
    if not on_gpu(labels):
        _check_classes(name, labels, shape[-1])
        if on_gpu(logits):
            labels, kept = beside(labels, logits), None if kept is None else beside(kept, logits)
    return labels, kept


def _check_classes(name: str, labels: np.ndarray, classes: int) -> None:
    if not labels.size:
        return
    least, most = np.minimum.reduce(labels, axis=None), np.maximum.reduce(labels, axis=None)
    if least < 0 or most >= classes:
        raise IndexingError(
            f"{name}: labels from {least} to {most}, logits of {classes} classes.",
            f"0 to {classes - 1}.",
            "Number the classes from 0, widen the logits, or name a label to skip as ignore_index=.",
        )


_LABELS = np.array([2, 0, 2])


def _cross_entropy_sample(rng: np.random.Generator) -> list[Case]:
    statics: tuple[dict[str, Any], ...] = (
        {"labels": _LABELS},
        {"labels": _LABELS, "reduction": "sum", "label_smoothing": 0.1},
        {"labels": _LABELS, "reduction": "none"},
        {"labels": _LABELS, "ignore_index": 0, "label_smoothing": 0.1},
    )
    nested = {"labels": np.array([[1, 0, 3], [2, 2, 0]]), "reduction": "none", "label_smoothing": 0.2}
    single = moved((4,), {"labels": 1})(rng)
    return moved((3, 4), *statics)(rng) + moved((2, 3, 4), nested)(rng) + single


def _mse_sample(rng: np.random.Generator) -> list[Case]:
    return [(tuple(rng.standard_normal((2, 3, 4))), {"reduction": reduction}) for reduction in REDUCTIONS]


register(
    Op(
        "cross_entropy",
        cross_entropy,
        {"logits": _cross_entropy_logits},
        kind="loss",
        accumulates=True,
        sample=_cross_entropy_sample,
    )
)
register(
    Op(
        "subtract_targets",
        subtract_targets,
        {"x": lambda F, g: g},
        sample=moved((3, 4), {"labels": _LABELS}, {"labels": _LABELS, "label_smoothing": 0.1}),
    )
)
register(
    Op(
        "mse_loss",
        mse_loss,
        {"pred": _mse_pred, "target": _mse_target},
        kind="loss",
        accumulates=True,
        sample=_mse_sample,
    )
)
