"""Axis numbers and integer indices: checked, and counted from the front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

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
    if not -rank <= axis < rank:
        raise ShapeError(
            f"axis {axis} of a tensor of {rank} axes", f"{-rank} to {rank - 1}", "Pass an axis it has."
        )
    return axis % rank


def axes_of(axes: Axes | None, rank: int) -> Shape:
    """Axes counted from the front, all of them for None; ShapeError for one twice."""
    if axes is None:
        return tuple(range(rank))
    resolved = tuple(
        axis_of(axis, rank) for axis in ((axes,) if isinstance(axes, int | np.integer) else axes)
    )
    if len(set(resolved)) != len(resolved):
        raise ShapeError(f"axes {axes} name an axis twice", "distinct axes", "Name each axis once.")
    return resolved


def places_of(indices: Any, n: int, axis: int) -> Array:
    """Integer ``indices`` along an axis of ``n`` places as int64 counted from the front, of the same shape.

    Raises:
        IndexingError: If one is no integer or out of range.

    Example:
        >>> places_of([0, -1], 4, 0).tolist()
        [0, 3]
    """
    index = np.asarray(indices)
    if index.size == 0 and index.dtype.kind == "f":
        index = index.astype(np.int64)
    if index.dtype.kind not in "iu":
        raise IndexingError(
            f"axis {axis} is indexed by {index.dtype} values",
            "integers",
            "Convert the indices to an integer dtype.",
        )
    index = index.astype(np.int64)
    outside = (index < -n) | (index >= n)
    if outside.any():
        raise IndexingError(
            f"index {int(index[outside].reshape(-1)[0])} along axis {axis} of size {n}",
            f"{-n} to {n - 1}",
            "Clip or filter the indices.",
        )
    return np.where(index < 0, index + n, index)
