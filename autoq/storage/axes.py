"""Axis numbers and integer indices: checked, and counted from the front."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..devices import array_namespace, is_array, on_gpu
from ..errors import IndexingError, ShapeError
from .layout import Array, Shape

Axes = int | Sequence[int]


def axis_of(axis: int, rank: int) -> int:
    """``axis`` counted from the front.

    Raises:
        ShapeError: If the tensor has no such axis.

    Example:
        >>> axis_of(-1, 3)
        2
    """
    try:
        place = operator.index(axis)
    except TypeError:
        place = rank
    if not -rank <= place < rank:
        raise ShapeError(
            f"axis {axis!r} of a tensor of {rank} axes", f"{-rank} to {rank - 1}", "Pass an axis it has."
        )
    return place % rank


def axes_of(axes: Axes | None, rank: int) -> Shape:
    """Axes counted from the front, all of them for None; ShapeError for one twice."""
    if axes is None:
        return tuple(range(rank))
    resolved = tuple(axis_of(axis, rank) for axis in _each(axes))
    if len(set(resolved)) != len(resolved):
        raise ShapeError(f"axes {axes} name an axis twice", "distinct axes", "Name each axis once.")
    return resolved


def _each(axes: Any) -> Sequence[Any]:
    """One axis, or a sequence or array of them, as a sequence."""
    several = isinstance(axes, Sequence) or (is_array(axes) and axes.ndim)
    return axes if several else (axes,)


def lengths_of(shape: Any) -> Shape:
    """A shape given as an integer or a sequence of them, as a tuple.

    Raises:
        ShapeError: If a length is no integer.

    Example:
        >>> lengths_of(3), lengths_of([2, -1])
        ((3,), (2, -1))
    """
    try:
        return tuple(map(operator.index, _each(shape)))
    except TypeError:
        raise ShapeError(f"the shape {shape!r}", "integer lengths", "Pass a tuple of integers.") from None


def places_of(indices: Any, n: int, axis: int) -> Array:
    """Integer ``indices`` along an axis of ``n`` places as int64 counted from the front, of the same shape.

    Those in a CuPy array are not looked at, which would wait for the GPU: their range is the caller's care.

    Raises:
        IndexingError: If one is no integer or out of range.

    Example:
        >>> places_of([0, -1], 4, 0).tolist()
        [0, 3]
    """
    try:
        index = indices if on_gpu(indices) else np.asarray(indices)
    except ValueError:
        raise IndexingError(
            f"axis {axis} is indexed by rows of unequal lengths", "one array of integers", "Pad the rows."
        ) from None
    if index.size == 0 and index.dtype.kind == "f":
        index = index.astype(np.int64)
    if index.dtype.kind not in "iu":
        raise IndexingError(
            f"axis {axis} is indexed by {index.dtype} values",
            "integers",
            "Convert the indices to an integer dtype.",
        )
    index = index.astype(np.int64)
    if on_gpu(index):
        return array_namespace(index).where(index < 0, index + n, index)
    outside = (index < -n) | (index >= n)
    if outside.any():
        raise IndexingError(
            f"index {int(index[outside].reshape(-1)[0])} along axis {axis} of size {n}",
            f"{-n} to {n - 1}",
            "Clip or filter the indices.",
        )
    return np.where(index < 0, index + n, index)


def without_masks(index: Any, shape: Shape) -> Any:
    """An index of an array on a GPU with positions in place of masks on the host, which it would wait for.

    Masks on the GPU stay: how many values they pick is known there alone.

    Raises:
        IndexError: A mask of another shape than the axes that it stands for.

    Example:
        >>> without_masks((slice(None), [True, False, True]), (2, 3))
        (slice(None, None, None), array([0, 2]))
    """
    parts = index if isinstance(index, tuple) else (index,)
    masks = [_host_mask(part) for part in parts]
    if all(mask is None for mask in masks):
        return index
    used = [0 if p is None or p is Ellipsis else _axes_used(p, m) for p, m in zip(parts, masks, strict=True)]
    made: list[Any] = []
    for i, (part, mask) in enumerate(zip(parts, masks, strict=True)):
        if mask is None:
            made.append(part)
            continue
        behind = any(earlier is Ellipsis for earlier in parts[:i])
        axis = len(shape) - sum(used[i:]) if behind else sum(used[:i])
        if mask.shape != tuple(shape[axis : axis + mask.ndim]):
            raise IndexError(f"a mask of shape {mask.shape} from axis {axis} on of shape {tuple(shape)}")
        made += np.nonzero(mask)
    return tuple(made)


def _host_mask(part: Any) -> Any:
    """A part of an index as an array of bools with axes that lies on the host, else None."""
    if not isinstance(part, list | np.ndarray):
        return None
    array = np.asarray(part)
    return array if array.dtype == np.bool_ and array.ndim else None


def _axes_used(part: Any, mask: Any) -> int:
    """How many axes a part of an index other than None and Ellipsis stands for."""
    if mask is None and getattr(getattr(part, "dtype", None), "kind", "") == "b":
        mask = part  # on the GPU, or without axes
    return 0 if isinstance(part, bool) else 1 if mask is None else int(mask.ndim)


def check_index(index: Any, shape: Shape) -> None:
    """Look up an index on the CPU that a GPU will not check: only arrays that are on the GPU already pass.

    Raises:
        IndexError, TypeError, ValueError: What NumPy says of the index.

    Example:
        >>> check_index((slice(None), [0, 2]), (2, 3))
    """
    parts = index if isinstance(index, tuple) else (index,)
    if not any(on_gpu(part) for part in parts):
        np.broadcast_to(np.False_, shape)[index]
