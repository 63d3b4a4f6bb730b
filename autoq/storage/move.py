"""Layout functions of packed tensors: each returns ``(result, how)``.

``how`` says what it took: ``"view"`` (the result shares words and scales), ``"copy"`` (codes and scales were
copied, nothing decoded) or ``"decode"`` (blocks were cut: decoded, moved and encoded again with blocks along
the last axis). A result is a QTensor, except that one without axes, whose scheme needs an axis for its
blocks, is a float32 array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..devices import same_memory, to_host
from ..errors import ArgumentError, ShapeError
from .axes import Axes, axes_of, axis_of, lengths_of, places_of
from .gather import Pick, gather, worst
from .index import getitem as getitem
from .inputs import contiguous as in_order
from .join import concat as concat
from .join import pad as pad
from .join import stack as stack
from .layout import Geometry, Layout, grid_shape, words_shape
from .packing import pack
from .qtensor import QTensor
from .reshape import reshape as reshape

Moved = tuple[Any, str]


def permute_dims(q: QTensor, axes: Sequence[int]) -> tuple[QTensor, str]:
    """Axes in another order: always a view, blocks permute with the axes.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.ones((2, 3, 32), np.float32), scheme("mxfp8"))
        >>> permute_dims(q, (2, 0, 1))[0].shape
        (32, 2, 3)
    """
    resolved = () if axes is None else axes_of(axes, q.ndim)
    if len(resolved) != q.ndim:
        raise ShapeError(f"permute_dims: axes {axes} of {q.ndim} axes", "every axis once", "Name all axes.")
    shape = tuple(q.shape[axis] for axis in resolved)
    layout = q.layout.permuted(resolved)
    return QTensor.make(q.words, q.scales, q.tensor_scale, q.scheme, shape, layout), "view"


def expand_dims(q: QTensor, axis: Axes) -> tuple[QTensor, str]:
    """Axes of size 1 at positions ``axis`` of the result: a view."""
    axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    count = len(axes)
    new = set(axes_of(axes, q.ndim + count))
    sizes = iter(q.shape)
    shape = tuple(1 if i in new else next(sizes) for i in range(q.ndim + count))
    return reshape(q, shape)


def squeeze(q: QTensor, axis: Axes | None = None) -> Moved:
    """Without axes of size 1: those named, or all.

    Raises:
        ShapeError: If a named axis has another size.
    """
    gone = axes_of(axis, q.ndim) if axis is not None else [i for i, n in enumerate(q.shape) if n == 1]
    for i in gone:
        if q.shape[i] != 1:
            raise ShapeError(
                f"squeeze: axis {i} has size {q.shape[i]}", "axes of size 1", "Name another axis."
            )
    return reshape(q, tuple(n for i, n in enumerate(q.shape) if i not in gone))


def broadcast_to(q: QTensor, shape: Sequence[int]) -> tuple[QTensor, str]:
    """Repeat axes of size 1: a view along axes that no block spans, else a copy of codes.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.ones((1, 32), np.float32), scheme("mxfp8"))
        >>> wide, how = broadcast_to(q, (5, 32))
        >>> wide.shape, how, wide.nbytes
        ((5, 32), 'view', 33)
    """
    target = lengths_of(shape)
    missing = len(target) - q.ndim
    fits = missing >= 0 and all(n in (1, m) for n, m in zip(q.shape, target[missing:], strict=True))
    if not fits or min(target, default=0) < 0:
        raise ShapeError(
            f"broadcast_to: a tensor of shape {q.shape} to {target}",
            "sizes equal or 1, trailing axes aligned",
            "Reshape the tensor, or change the target.",
        )
    if missing:
        q = expand_dims(q, tuple(range(missing)))[0]
    geometry = Geometry.of(q.scheme, q.ndim)
    repeated = [axis for axis, n in enumerate(target) if q.shape[axis] != n]
    packed: dict[int, Pick] = {
        axis: np.zeros(target[axis], np.int64)
        for axis in repeated
        if not geometry.is_free(q.layout.order[axis])
    }
    how = "view"
    if packed:
        q, how = gather(q, packed)
    stored = q.layout.storage_shape(target)
    words = np.broadcast_to(q.words, words_shape(stored, geometry.bits))
    scales = np.broadcast_to(q.scales, grid_shape(stored, geometry.extents))
    return QTensor.make(words, scales, q.tensor_scale, q.scheme, target, q.layout), how


def flip(q: QTensor, axis: Axes | None = None) -> Moved:
    """Reversed along ``axis`` (all by default): a view where no block spans it, a copy of whole blocks."""
    return gather(q, {i: slice(None, None, -1) for i in axes_of(axis, q.ndim)})


def take(q: QTensor, indices: Any, axis: int | None = None) -> Moved:
    """Entries at integer ``indices`` along ``axis``; of the flattened tensor without one.

    Args:
        indices: Integers of any shape, negative ones from the end; their axes replace ``axis``.

    Raises:
        IndexingError: If one is out of range or not an integer.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.ones((4, 32), np.float32), scheme("mxfp8"))
        >>> rows, how = take(q, [0, 0, 3], axis=0)
        >>> rows.shape, how
        ((3, 32), 'copy')
    """
    if axis is None:
        flat, how = reshape(q, (q.size,))
        result, taken = take(flat, indices, 0)
        return result, worst(how, taken)
    axis = axis_of(axis, q.ndim)
    places = places_of(indices, q.shape[axis], axis)
    shape = (*q.shape[:axis], *places.shape, *q.shape[axis + 1 :])
    return gather(q, {axis: places.reshape(-1)}, shape)


def repeat(q: QTensor, repeats: Any, axis: int | None = None) -> Moved:
    """Each entry along ``axis`` repeated: an integer, or one count an entry."""
    if axis is None:
        q = reshape(q, (q.size,))[0]
        axis = 0
    axis = axis_of(axis, q.ndim)
    counts = to_host(repeats)  # they decide the result's shape
    if (
        counts.dtype.kind not in "iu"
        or counts.ndim > 1
        or (counts.size not in (1, q.shape[axis]))
        or (counts < 0).any()
    ):
        raise ArgumentError(
            f"repeat: repeats={repeats!r} along an axis of {q.shape[axis]}",
            "a count, or one count an entry, none negative",
            "Pass an int.",
        )
    return gather(q, {axis: np.repeat(np.arange(q.shape[axis]), counts)})


def contiguous(q: QTensor) -> tuple[QTensor, str]:
    """The same tensor with its own C-contiguous arrays, stored in logical order as far as blocks allow.

    Axes that a block or a line runs along stay the last ones in storage: what precedes them is in logical
    order. Lossless. The tensor itself where nothing is to do. Per-tensor blocks allow any order.
    """
    pinned = 1 if q.scheme.block is None else len(q.scheme.block)
    inverse = q.layout.inverse
    if q.scheme.block is None and inverse and inverse[-1] != q.ndim - 1:
        words = pack(q.codes(), q.scheme.element_bits)
        return QTensor.make(words, q.scales.reshape((1,) * q.ndim), q.tensor_scale, q.scheme, q.shape), "copy"
    tail = inverse[max(0, q.ndim - pinned) :]
    order = (*(axis for axis in range(q.ndim) if axis not in tail), *tail)
    if order == inverse and q.words.flags.c_contiguous and q.scales.flags.c_contiguous:
        return q, "view"
    axes = tuple(q.layout.order[axis] for axis in order)
    words = in_order(q.words.transpose(axes)) if q.ndim else q.words
    scales = in_order(q.scales.transpose(axes))
    layout = Layout(Layout(order).inverse)
    how = "view" if same_memory(words, q.words) else "copy"
    return QTensor.make(words, scales, q.tensor_scale, q.scheme, q.shape, layout), how
