"""Sorting, and the largest values: gradients go back by the permutation."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.devices import array_namespace
from autoq.errors import ArgumentError
from autoq.ops.axes import Shape, one_axis
from autoq.ops.samples import Case, distinct
from autoq.tape.apply import apply, as_tensor
from autoq.tape.function import composed
from autoq.tape.op import Op, register
from autoq.tape.tensor import Tensor


def sort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The values in ascending or descending order along an axis; NaN counts as the largest.

    Args:
        x: Any shape of at least one axis.
        axis: The axis to sort along.
        descending: Begin with the largest.
        stable: Equal values keep their order, which decides where their gradients go; always so.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.sort([2.0, 3.0, 1.0], descending=True)
        tensor([3. 2. 1.], float32)
    """
    axis = one_axis("sort", axis, np.shape(x))
    ordered = np.sort(x, axis=axis, kind="stable") if x.size else x.copy()
    return np.flip(ordered, axis) if descending else ordered


def argsort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The positions that sort the values along an axis; equal values keep their order.

    Args:
        x: Any shape of at least one axis.
        axis: The axis to sort along.
        descending: Begin with the largest.
        stable: Equal values keep their order; always so.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.argsort([2.0, 3.0, 1.0, 1.0])
        tensor([2 3 0 1], int64)
    """
    axis = one_axis("argsort", axis, np.shape(x))
    if not x.size:
        return array_namespace(x).zeros(x.shape, np.int64)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # Sorted backwards, equal values would swap places: so the input is turned around as well.
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(backwards, axis)


def _sort_x(F: Any, g: Any, x: Any, x_shape: Shape, axis: int, descending: bool) -> Any:
    places = F.argsort(x, axis=axis, descending=descending, stable=True)
    return F.scatter_add_along_axis(g, indices=places, axis=axis, shape=x_shape)


@composed
def topk(
    x: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True, *, out_dtype: Any = None
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest values along an axis, the most extreme first, and their positions.

    Of equal values the first ones are taken. Gradients go back to the positions.

    Args:
        x: (..., n, ...).
        k: How many, 0 to n.
        axis: The axis to look along.
        largest: The largest ones, else the smallest.
        sorted: The most extreme first; always so.
        out_dtype: Overrides the resolved dtype of the values.

    Returns:
        Values and int64 positions, both (..., k, ...).

    Raises:
        ShapeError: An axis that `x` does not have.
        ArgumentError: k outside 0 to n.

    Example:
        >>> import autoq as aq
        >>> values, indices = aq.topk([2.0, 5.0, 1.0, 4.0], 2)
        >>> values, indices
        (tensor([5. 4.], float32), tensor([1 3], int64))
    """
    x = as_tensor(x)
    axis = one_axis("topk", axis, np.shape(x))
    n = x.shape[axis]
    if not isinstance(k, int | np.integer) or not 0 <= k <= n:
        raise ArgumentError(f"topk: k={k!r} of {n} values.", f"an integer from 0 to {n}.", "Correct k.")
    places = apply("argsort", x, axis=axis, descending=largest)
    indices = places[(slice(None),) * axis + (slice(k),)]
    return apply("take_along_axis", x, indices=indices, axis=axis, out_dtype=out_dtype), indices


def _order_sample(rng: np.random.Generator) -> list[Case]:
    options: tuple[dict[str, Any], ...] = (
        {}, {"axis": 0, "descending": True}, {"axis": 1, "stable": False}, {"descending": True}
    )  # fmt: skip
    return [((distinct(rng, (2, 3, 4)),), static) for static in options]


register(Op("sort", sort, {"x": _sort_x}, integers=True, sample=_order_sample))
register(Op("argsort", argsort, "its result is a position", kind="index", sample=_order_sample))
