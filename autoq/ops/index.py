"""Looking values up by index, and the scatter ops that are their gradients (S21)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.devices import array_namespace, beside, on_gpu, to_host
from autoq.errors import IndexingError, ShapeError
from autoq.ops.axes import Shape, check_axis
from autoq.ops.samples import moved
from autoq.storage import QTensor, move
from autoq.storage.axes import check_index, without_masks
from autoq.storage.update import add_at, may_repeat
from autoq.tape.op import Op, register


def getitem(x: Any, *, index: Any) -> Any:
    """`x[index]` as in NumPy: integers, slices, None, Ellipsis, integer or bool arrays.

    Args:
        x: Any shape.
        index: One index or a tuple of them.

    Raises:
        IndexingError: A position outside its axis, too many indices, or another kind of index.
    """
    try:
        if on_gpu(x):
            check_index(index, x.shape)
            return x[without_masks(index, x.shape)]
        return x[index]
    except (IndexError, TypeError, ValueError) as error:
        raise IndexingError(
            f"index {index!r} of shape {np.shape(x)}: {error}.",
            "integers within their axis, slices, None, Ellipsis, arrays of integers or bools.",
            "Check the index against x.shape.",
        ) from None


def scatter_slice(x: Any, *, index: Any, shape: Shape) -> Any:
    """Zeros of a shape to which `x` is added at an index: the transpose of `getitem`.

    Args:
        x: The shape of `zeros(shape)[index]`.
        index: As of `getitem`; positions that occur twice accumulate.
        shape: The shape of the result.

    Raises:
        ShapeError: `x` has another shape.
    """
    out, repeats = array_namespace(x).zeros(shape, x.dtype), may_repeat(index)
    index = without_masks(index, shape) if on_gpu(x) else index
    try:
        if repeats:
            add_at(out, index, x)
        else:
            out[index] = x
    except ValueError:
        raise _misfit("scatter_slice", x, out[index].shape) from None
    return out


def take(x: Any, *, indices: Any, axis: int = 0) -> Any:
    """The entries of `x` at integer positions along an axis.

    Args:
        x: (..., n, ...).
        indices: Integers of any shape, from -n to n - 1; their axes take the place of the axis.
        axis: The axis looked up.

    Raises:
        IndexingError: An index outside the axis, or not an integer.
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.take([[1.0, 2.0], [3.0, 4.0]], [1, 1, 0])
        tensor([[3. 4.]
                [3. 4.]
                [1. 2.]], float32)
    """
    check_axis("take", axis, np.shape(x))
    places = indices if on_gpu(indices) else np.asarray(indices)
    if places.size and places.dtype.kind not in "iu":  # NumPy cuts 0.5 to 0 and takes True for 1
        raise _outside("take", places, axis, np.shape(x))
    if on_gpu(x) or not x.size:  # a GPU checks no index, NumPy none of empty arrays
        _check_places("take", places, axis, x.shape)
        places = beside(places, x)
    try:
        return np.take(x, places if places.size else places.astype(np.int64), axis=axis)
    except (IndexError, TypeError, ValueError):
        raise _outside("take", places, axis, np.shape(x)) from None


def _packed_take(q: QTensor, *, indices: Any, axis: int = 0) -> Any:
    check_axis("take", axis, q.shape)
    return move.take(q, indices, axis)


def scatter_add(x: Any, *, indices: Any, axis: int, shape: Shape) -> Any:
    """Zeros of a shape to which entries of `x` are added along an axis: the transpose of `take`.

    Args:
        x: The shape of `take(zeros(shape), indices, axis)`.
        indices: Integers of any shape; positions that occur twice accumulate, in order.
        axis: The axis of `shape` that is indexed.
        shape: The shape of the result.

    Raises:
        IndexingError: An index outside the axis.
        ShapeError: `x` has another shape.
    """
    axis %= len(shape)
    expected = (*shape[:axis], *np.shape(indices), *shape[axis + 1 :])
    if x.shape != expected:
        raise _misfit("scatter_add", x, expected)
    before, extent, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    rows = indices if on_gpu(indices) else np.asarray(indices)
    rows = rows.reshape(-1).astype(np.int64)  # no indices at all are floats to NumPy
    _check_places("scatter_add", rows, axis, shape)
    rows, xp = beside(rows, x), array_namespace(x)
    # One flat index array keeps to the fast path of np.add.at.
    places = (xp.arange(before)[:, None, None] * extent + rows[:, None] % extent) * after + xp.arange(after)
    out = xp.zeros(math.prod(shape), x.dtype)
    add_at(out, places.reshape(-1), x.reshape(-1))
    return out.reshape(shape)


def take_along_axis(x: Any, *, indices: Any, axis: int = -1) -> Any:
    """One entry of `x` along an axis for each index, as `argmax` or `argsort` give them.

    Args:
        x: (..., n, ...).
        indices: Integers from -n to n - 1, of as many axes as `x`; the other axes broadcast.
        axis: The axis looked up.

    Raises:
        IndexingError: An index outside the axis, or not an integer.
        ShapeError: An axis that `x` does not have, or shapes that don't broadcast.

    Example:
        >>> import autoq as aq
        >>> aq.take_along_axis([[1.0, 4.0], [3.0, 2.0]], [[1], [0]])
        tensor([[4.]
                [3.]], float32)
    """
    check_axis("take_along_axis", axis, np.shape(x))
    try:
        places = indices if on_gpu(indices) else np.asarray(indices)
        if on_gpu(x):
            _check_places("take_along_axis", places, axis, x.shape)
        return np.take_along_axis(x, beside(places, x), axis)
    except ValueError:
        raise ShapeError(
            f"take_along_axis: x is {np.shape(x)}, indices are {np.shape(indices)}.",
            "as many axes, extents that broadcast but for the axis looked up.",
            "Keep the dimension: argmax(..., keepdims=True).",
        ) from None
    except IndexError:
        raise _outside("take_along_axis", indices, axis, np.shape(x)) from None


def scatter_add_along_axis(x: Any, *, indices: Any, axis: int, shape: Shape) -> Any:
    """Zeros of a shape to which `x` is added along an axis: the transpose of `take_along_axis`.

    Args:
        x: The shape of `take_along_axis(zeros(shape), indices, axis)`.
        indices: Integers; positions that occur twice accumulate, in order.
        axis: The axis of `shape` that is indexed.
        shape: The shape of the result.

    Raises:
        ShapeError: `x` has another shape.
    """
    axis %= len(shape)
    xp = array_namespace(x)
    position = [beside(p, x) for p in np.ogrid[tuple(slice(n) for n in shape)]]
    position[axis] = beside(indices, x) % max(shape[axis], 1)
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    # One flat index array keeps to the fast path of np.add.at.
    places: Any = sum(at * stride for at, stride in zip(position, strides, strict=True))
    if np.shape(x) != np.shape(places):
        raise _misfit("scatter_add_along_axis", x, np.shape(places))
    out = xp.zeros(math.prod(shape), x.dtype)
    add_at(out, places.reshape(-1), x.reshape(-1))
    return out.reshape(shape)


def _misfit(name: str, x: Any, expected: Shape) -> ShapeError:
    return ShapeError(
        f"{name}: x is {np.shape(x)}.",
        f"{expected}, what the index picks.",
        "Give one value a picked position.",
    )


def _check_places(name: str, places: Any, axis: int, shape: Shape) -> None:
    """Raise IndexingError for a position outside its axis; those on a GPU are never read."""
    if on_gpu(places) or not places.size:
        return
    if not -shape[axis] <= places.min() <= places.max() < shape[axis]:
        raise _outside(name, places, axis, shape)


def _outside(name: str, indices: Any, axis: int, shape: Shape) -> IndexingError:
    indices = to_host(indices)
    extent = shape[axis]
    numbers = indices.size and indices.dtype.kind in "iuf"
    spread = f"from {indices.min()} to {indices.max()}" if numbers else f"{indices.size} of them"
    return IndexingError(
        f"{name}: indices of dtype {indices.dtype}, {spread}, on axis {axis} of shape {shape}.",
        f"integers from {-extent} to {extent - 1}.",
        "Check the indices, or the axis.",
    )


def _getitem_sample(rng: np.random.Generator) -> list[Any]:
    mask = np.array([True, False, True])
    indices = (1, slice(None, None, -2), (Ellipsis, 0), (None, slice(1), [2, 0, 2]), np.array([1, 1, 0]),
               (slice(None), mask), (1, 2, 3), (np.array([[0], [1]]), np.array([2, 2])))  # fmt: skip
    return [((rng.standard_normal((2, 3, 4)),), {"index": index}) for index in indices]


def _scatter_slice_sample(rng: np.random.Generator) -> list[Any]:
    cases = (((3,), (slice(None), 1)), ((2, 4), np.array([2, 2])), ((1, 4), (slice(2, 3))))
    return [((rng.standard_normal(x),), {"index": index, "shape": (3, 4)}) for x, index in cases]


_REPEATED = np.array([[2, 0], [2, -1]])
_COLUMNS = np.array([[1, 1], [0, 3], [-1, 3]])

register(
    Op(
        "getitem",
        getitem,
        {"x": lambda F, g, x_shape, index: F.scatter_slice(g, index=index, shape=x_shape)},
        kind="layout",
        integers=True,
        packed=move.getitem,
        sample=_getitem_sample,
    )
)
register(
    Op(
        "scatter_slice",
        scatter_slice,
        {"x": lambda F, g, index: F.getitem(g, index=index)},
        integers=True,
        sample=_scatter_slice_sample,
    )
)
register(
    Op(
        "take",
        take,
        {
            "x": lambda F, g, x_shape, indices, axis: F.scatter_add(
                g, indices=indices, axis=axis, shape=x_shape
            )
        },
        kind="layout",
        integers=True,
        packed=_packed_take,
        sample=moved(
            (3, 4),
            {"indices": _REPEATED, "axis": 0},
            {"indices": np.array([3, 3, 0]), "axis": -1},
            {"indices": 1, "axis": 1},
        ),
    )
)
register(
    Op(
        "scatter_add",
        scatter_add,
        {"x": lambda F, g, indices, axis: F.take(g, indices=indices, axis=axis)},
        integers=True,
        sample=moved(
            (2, 2, 2),
            {"indices": _REPEATED, "axis": 0, "shape": (3, 2)},
            {"indices": np.array([1, 1]), "axis": -2, "shape": (2, 3, 2)},
            {"indices": _REPEATED, "axis": 1, "shape": (2, 3)},
        ),
    )
)
register(
    Op(
        "take_along_axis",
        take_along_axis,
        {
            "x": lambda F, g, x_shape, indices, axis: F.scatter_add_along_axis(
                g, indices=indices, axis=axis, shape=x_shape
            )
        },
        integers=True,
        sample=moved(
            (3, 4), {"indices": _COLUMNS, "axis": -1}, {"indices": np.array([[2, 0, 0, 1]]), "axis": 0}
        ),
    )
)
register(
    Op(
        "scatter_add_along_axis",
        scatter_add_along_axis,
        {"x": lambda F, g, indices, axis: F.take_along_axis(g, indices=indices, axis=axis)},
        integers=True,
        sample=moved((3, 2), {"indices": _COLUMNS, "axis": 1, "shape": (3, 4)}),
    )
)
