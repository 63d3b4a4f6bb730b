"""Where values are: the places that are not zero, and places in a sorted vector (S16)."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ArgumentError, ShapeError
from autoq.tape.apply import as_tensor
from autoq.tape.beside import check_beside
from autoq.tape.function import composed
from autoq.tape.tensor import Tensor, tensor


@composed
def nonzero(x: Any) -> tuple[Tensor, ...]:
    """The positions of the values that are not zero, one int64 vector for each axis.

    Args:
        x: Any shape of at least one axis.

    Raises:
        ShapeError: No axis.

    Example:
        >>> import autoq as aq
        >>> aq.nonzero([[0.0, 2.0], [3.0, 0.0]])
        (tensor([0 1], int64), tensor([1 0], int64))
    """
    x = as_tensor(x)
    if not x.ndim:
        raise ShapeError("nonzero: x has no axes.", "at least one axis.", "Compare it with 0 instead.")
    return tuple(tensor(places, device=x.device) for places in np.nonzero(x.numpy()))


@composed
def searchsorted(x1: Any, x2: Any, *, side: str = "left", sorter: Any = None) -> Tensor:
    """Where values would have to be put into a sorted vector to keep it sorted.

    Args:
        x1: (n,), in ascending order, or in any order if `sorter` is given.
        x2: The values, of any shape.
        side: ``"left"``: before values equal to it; ``"right"``: after them.
        sorter: (n,), the positions that sort `x1`, as `argsort` gives them.

    Returns:
        int64 positions from 0 to n, in the shape of `x2`.

    Raises:
        ShapeError: `x1` is no vector, or `sorter` has another length.
        ArgumentError: Another `side`, or a `sorter` that doesn't hold positions.

    Example:
        >>> import autoq as aq
        >>> aq.searchsorted([1.0, 2.0, 4.0], [2.0, 5.0])
        tensor([1 3], int64)
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side={side!r}.", "'left' or 'right'.", "Pass one of these.")
    check_beside("searchsorted", x1, x2, sorter, names=("x1", "x2", "sorter"))
    line, values = as_tensor(x1), as_tensor(x2)
    order = None if sorter is None else as_tensor(sorter).numpy()
    if line.ndim != 1 or (order is not None and order.shape != line.shape):
        given = "" if order is None else f", sorter is {order.shape}"
        raise ShapeError(
            f"searchsorted: x1 is {line.shape}{given}.", "vectors of one length.", "Flatten and sort x1."
        )
    if order is not None and (
        order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(order.size))
    ):
        raise ArgumentError(
            "searchsorted: sorter is no permutation.", "each position of x1 once.", "Pass argsort(x1)."
        )
    places: Any = np.searchsorted(line.numpy(), values.numpy(), side, order)  # type: ignore[call-overload]
    return tensor(np.asarray(places), device=values.device)
