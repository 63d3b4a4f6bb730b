"""The cross-entropy on GPUs: one launch for the losses and one for their mean, one for the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.devices import array_namespace, beside, on_gpu
from autoq.kernels.cuda import losses
from autoq.kernels.cuda.launch import empty
from autoq.ops.loss import REDUCTIONS, checked_labels
from autoq.ops.on_device.elementwise import as_operand
from autoq.ops.on_device.rows import finished, has_rows
from autoq.storage import QTensor
from autoq.storage.inputs import contiguous
from autoq.tape.accelerated import accelerate, accelerate_rule
from autoq.tape.op import Op
from autoq.types import float32


@accelerate("cross_entropy")
def cross_entropy(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """Losses of rows of logits, decoded where they are packed, and their sum or mean."""
    (x,) = values
    reduction, smoothing, ignored = static["reduction"], static["label_smoothing"], static["ignore_index"]
    plain = type(smoothing) in (int, float) and 0 <= smoothing <= 1 and reduction in REDUCTIONS
    if (
        compute != float32
        or not has_rows(x)
        or not plain
        or (ignored is not None and type(ignored) is not int)
    ):
        return NotImplemented
    labels = labels_beside(static["labels"], x, ignored)
    if not labels.size:
        return NotImplemented
    found = empty(labels.shape, float32)
    if not losses.losses(as_operand(x), labels, found, smoothing, ignored):
        return NotImplemented
    if reduction != "none":
        found, _ = losses.reduced(found, labels, reduction == "mean", ignored)
    return finished("cross_entropy", found)


@accelerate_rule("cross_entropy", "logits")
def cross_entropy_gradient(
    g: Any,
    logits: Any,
    logits_shape: Any,
    labels: Any,
    reduction: str,
    label_smoothing: Any,
    ignore_index: Any,
) -> Any:
    """Softmax less the targets, times the cotangent, over the count for a mean."""
    if g.dtype != float32 or not has_rows(logits) or not g.size:
        return NotImplemented
    classes = beside(labels, stored(logits)).astype(np.int64, copy=False)
    xp, count = array_namespace(classes), 1.0  # type: Any, Any
    if reduction == "mean":
        count = float(max(classes.size, 1))
        if ignore_index is not None:
            kept = xp.count_nonzero(classes != ignore_index)
            count = xp.asarray(np.maximum(kept, 1)).astype(float32)
    result = empty(logits_shape, float32)
    arrays = as_operand(logits), contiguous(classes), contiguous(g)
    done = losses.losses_gradient(*arrays, count, result, float(label_smoothing), ignore_index)
    return finished("cross_entropy_gradient", result) if done else NotImplemented


def labels_beside(labels: Any, x: Any, ignored: int | None) -> Any:
    """Labels as int64 beside the logits, checked where they lie on the host."""
    checked_labels("cross_entropy", x.shape, labels, None if on_gpu(labels) else ignored)
    placed = beside(labels, stored(x))
    return contiguous(placed.astype(np.int64, copy=False))


def stored(x: Any) -> Any:
    """The array of a stored value that says where it is."""
    return x.words if x.__class__ is QTensor else x
