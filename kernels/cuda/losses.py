"""The cross-entropy of rows, packed or float: the losses, their sum or mean, the gradient of the logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from .launch import empty, grid
from .loss_kernels import SUMMERS, losses_gradient_kernel, losses_kernel, mean_kernel
from .row_kernels import Shape
from .rows import WAVES, given_as, kinds_of, rows_of, shape_of

NO_CLASS = -(1 << 62)  # what no label is, where none is ignored


def losses(
    x: Any,
    labels: Any,
    out: Any,
    smoothing: float = 0.0,
    ignored: int | None = None,
    shape: Shape | None = None,
) -> bool:
    """Minus the log-probability of each row's label, one launch.

    Args:
        x: Logits (..., n), an array or Packed.
        labels: int64 (...), C-contiguous. A label that is no class gives NaN.
        out: float32 (...), C-contiguous, written.
        smoothing: The share of each target that is spread evenly over all classes.
        ignored: A label whose loss is 0; None for none.
        shape: How rows are spread over threads; chosen if None.

    Returns:
        Whether there is a kernel for such logits; where not, nothing was written.
    """
    kinds, n, rows = kinds_of(x), x.shape[-1], rows_of(x)
    if kinds is None:
        return False
    if rows and n:
        shape = shape or shape_of(n, (*kinds, "float32"), 2)
        source = given_as(x, kinds[0], shape.size)
        made = losses_kernel(source.side, shape, smoothing != 0)
        numbers = NO_CLASS if ignored is None else ignored, float(smoothing), out, rows, n
        made(grid(rows, shape.rows, WAVES), shape.threads, *source.arguments, labels, *numbers)
    return True


def reduced(found: Any, labels: Any, mean: bool, ignored: int | None = None) -> tuple[Any, Any]:
    """The sum of losses, or their mean over labels that aren't ignored, one launch.

    Args:
        found: What ``losses`` wrote.
        labels: As of ``losses``.
        mean: Whether the mean is wanted.
        ignored: As of ``losses``.

    Returns:
        float32 arrays without axes: the result, and what the sum was divided by, at least 1.
    """
    out, count = empty((), np.float32), empty((), np.float32)
    number = NO_CLASS if ignored is None else ignored
    mean_kernel(mean)(1, SUMMERS, found, labels, number, out, count, found.size)
    return out, count


def losses_gradient(
    x: Any,
    labels: Any,
    g: Any,
    count: Any,
    out: Any,
    smoothing: float = 0.0,
    ignored: int | None = None,
    shape: Shape | None = None,
) -> bool:
    """The gradient of the logits, one launch: softmax less the targets, times the cotangent over the count.

    Args:
        x, labels, smoothing, ignored, shape: As of ``losses``.
        g: float32, of one value or one a row, C-contiguous.
        count: What the losses' sum is divided by: a number, or a float32 array without axes.
        out: Array of the logits' shape, written.

    Returns:
        Whether there is a kernel for such logits; where not, nothing was written.
    """
    kinds, n, rows = kinds_of(x, out=out), x.shape[-1], rows_of(x)
    if kinds is None:
        return False
    if rows and n:
        shape = shape or shape_of(n, kinds, 2)
        source, target = (given_as(a, kind, shape.size) for a, kind in zip((x, out), kinds, strict=True))
        counted = not isinstance(count, float)
        made = losses_gradient_kernel(source.side, target.side, shape, g.ndim == 0, counted)
        kept, terms = (count, 1.0) if counted else (None, count)
        options = NO_CLASS if ignored is None else ignored, float(smoothing), g, kept, terms
        arguments = *source.arguments, labels, *options, *target.as_output, rows, n
        made(grid(rows, shape.rows, WAVES), shape.threads, *arguments)
    return True
