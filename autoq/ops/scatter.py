"""Changing entries of a tensor: the op behind ``at``, and scatter, index_add and masked_fill (S12, S48)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from autoq.devices import array_namespace, beside, is_array, on_gpu
from autoq.errors import DTypeError, IndexingError, ShapeError
from autoq.ops.axes import Shape, one_axis
from autoq.ops.samples import Case
from autoq.storage.update import may_repeat, write
from autoq.tape.apply import apply, as_tensor, plain
from autoq.tape.beside import check_beside, held
from autoq.tape.function import composed
from autoq.tape.op import Op, register
from autoq.tape.tensor import Tensor

MASK_FROM = -1e4  # a Python number as low as this stands for minus infinity (S48)


def update(target: Any, values: Any, *, index: Any, add: bool = False) -> Any:
    """`target` with the entries at an index replaced, or added to.

    Args:
        target: Any shape.
        values: Any shape that broadcasts to `target[index]`.
        index: As of `getitem`.
        add: Add instead; entries that the index names twice are added to twice.

    Raises:
        IndexingError: A position outside its axis, too many indices, or another kind of index.
        ShapeError: Values that don't broadcast.
    """
    if is_array(values):
        values = values.astype(target.dtype, copy=False)
    new = np.array(target) if not on_gpu(target) else target.copy()
    write(new, index, values, add)
    return new


def _update_target(F: Any, g: Any, index: Any, add: bool) -> Any:
    return g if add else F.update(g, 0.0, index=index, add=False)


def _update_values(F: Any, g: Any, target_shape: Shape, index: Any, add: bool) -> Any:
    """The cotangents of the entries; of an entry set twice, only the last value has one."""
    picked = F.getitem(g, index=index)
    stayed = None if add else _stayed(held(g), index, target_shape)
    return picked if stayed is None else picked * stayed


def _stayed(other: Any, index: Any, shape: Shape) -> Any:
    """Which of the values written at an index are still there, where another array is; None if all are."""
    if not may_repeat(index):
        return None
    parts = index if isinstance(index, tuple) else (index,)
    xp = array_namespace(*[part for part in parts if on_gpu(part)], np.zeros(0))
    written = xp.zeros(shape, np.int64)
    numbers = xp.arange(written[index].size).reshape(written[index].shape)
    write(written, index, numbers)
    stayed = written[index] == numbers
    if on_gpu(stayed):
        return stayed  # whether all did would have to be read back
    return None if stayed.all() else beside(stayed, other)


@composed
def scatter(target: Any, indices: Any, values: Any, axis: int = -1, *, out_dtype: Any = None) -> Tensor:
    """`target` with the entries at positions along an axis replaced; the counterpart of `take_along_axis`.

    The result keeps the dtype and flag of `target`; of a packed one only changed blocks are encoded again.

    Args:
        target: (..., n, ...).
        indices: Integers from -n to n - 1, of as many axes as `target`; the other axes equal its, or are 1.
        values: Any shape that broadcasts to the indices; of an entry named twice the last value stays.
        axis: The axis of the positions.
        out_dtype: Casts the result.

    Raises:
        IndexingError: A position outside the axis, or not an integer.
        ShapeError: Shapes that don't fit.

    Example:
        >>> import autoq as aq
        >>> aq.scatter([0.0, 0.0, 0.0], [2, 0], [1.0, 2.0])
        tensor([2. 0. 1.], float32)
    """
    return _scattered("scatter", target, indices, values, axis, False, out_dtype)


@composed
def scatter_add(target: Any, indices: Any, values: Any, axis: int = -1, *, out_dtype: Any = None) -> Tensor:
    """`target` with values added to the entries at positions along an axis.

    The result keeps the dtype and flag of `target`; of a packed one only changed blocks are encoded again.

    Args:
        target: (..., n, ...).
        indices: Integers from -n to n - 1, of as many axes as `target`; the other axes equal its, or are 1.
        values: Any shape that broadcasts to the indices; to an entry named twice both are added.
        axis: The axis of the positions.
        out_dtype: Casts the result.

    Raises:
        IndexingError: A position outside the axis, or not an integer.
        ShapeError: Shapes that don't fit.

    Example:
        >>> import autoq as aq
        >>> aq.scatter_add([1.0, 0.0, 0.0], [2, 2], [1.0, 2.0])
        tensor([1. 0. 3.], float32)
    """
    return _scattered("scatter_add", target, indices, values, axis, True, out_dtype)


def _scattered(
    name: str, target: Any, indices: Any, values: Any, axis: int, add: bool, out_dtype: Any
) -> Tensor:
    check_beside(name, target, indices, names=("target", "indices"))
    target, places = as_tensor(target), _integers(name, indices)
    axis, shape = one_axis(name, axis, target.shape), target.shape
    fits = places.ndim == len(shape) and all(
        i == axis or n in (1, shape[i]) for i, n in enumerate(places.shape)
    )
    if not fits:
        raise ShapeError(
            f"{name}: target is {shape}, indices are {places.shape}, axis={axis}.",
            "as many axes, extents that are equal or 1 but for the indexed axis.",
            "Slice the target, or use target.at[...].",
        )
    grid: list[Any] = [beside(at, places) for at in np.ogrid[tuple(slice(n) for n in shape)]]
    grid[axis] = places
    return apply("update", target, values, index=tuple(grid), add=add, out_dtype=out_dtype)


@composed
def index_add(target: Any, indices: Any, values: Any, axis: int = 0, *, out_dtype: Any = None) -> Tensor:
    """`target` with values added to its entries at positions along an axis; the counterpart of `take`.

    The result keeps the dtype and flag of `target`; of a packed one only changed blocks are encoded again.

    Args:
        target: (..., n, ...).
        indices: Integers from -n to n - 1, of any shape; to an entry named twice both values are added.
        values: Any shape that broadcasts to `take(target, indices, axis)`.
        axis: The axis of the positions.
        out_dtype: Casts the result.

    Raises:
        IndexingError: A position outside the axis, or not an integer.
        ShapeError: Shapes that don't fit.

    Example:
        >>> import autoq as aq
        >>> aq.index_add([[1.0, 1.0], [0.0, 0.0]], [1, 1], [[1.0, 2.0], [3.0, 4.0]])
        tensor([[1. 1.]
                [4. 6.]], float32)
    """
    check_beside("index_add", target, indices, names=("target", "indices"))
    target, places = as_tensor(target), _integers("index_add", indices)
    axis = one_axis("index_add", axis, target.shape)
    index = (slice(None),) * axis + (places,)
    return apply("update", target, values, index=index, add=True, out_dtype=out_dtype)


@composed
def masked_fill(x: Any, mask: Any, value: Any, *, out_dtype: Any = None) -> Tensor:
    """`x` with one value wherever a mask is true; it keeps the dtype and flag of `x`.

    Before a softmax, pass the mask to `softmax(mask=)` instead: a large negative number in a quantized
    tensor takes its block's scale, and every other value of the block becomes 0.

    Args:
        x: Any shape.
        mask: Bool, broadcasts to `x`.
        value: A number, or a tensor of one value.
        out_dtype: Casts the result.

    Raises:
        ShapeError: A mask that doesn't broadcast to `x`, or more than one value.
        DTypeError: A mask that is not bool.

    Example:
        >>> import autoq as aq
        >>> aq.masked_fill([1.0, 2.0, 3.0], [True, False, True], 0.0)
        tensor([0. 2. 0.], float32)
    """
    check_beside("masked_fill", x, mask, names=("x", "mask"))
    x, where = as_tensor(x), plain(mask)
    where = where if on_gpu(where) else np.asarray(where)
    if where.dtype != np.bool_:
        raise DTypeError(f"masked_fill: mask is {where.dtype}.", "bool.", "Compare it: mask != 0.")
    if np.size(value) != 1:
        raise ShapeError(f"masked_fill: value is {np.shape(value)}.", "one value.", "Use where.")
    try:
        where = np.broadcast_to(where, x.shape)
    except ValueError:
        raise ShapeError(
            f"masked_fill: mask is {where.shape}, x is {x.shape}.", "a mask that broadcasts to x.",
            "Insert axes of length 1 into the mask.",
        ) from None  # fmt: skip
    out = apply("update", x, value, index=where, add=False, out_dtype=out_dtype)
    warn_of_masks("masked_fill", out, value)
    return out


@composed
def where(condition: Any, a: Any, b: Any, *, out_dtype: Any = None) -> Tensor:
    """`a` where `condition` holds, else `b`.

    Args:
        condition: Bool, any shape.
        a: Any shape that broadcasts with the others.
        b: Any shape that broadcasts with the others.
        out_dtype: Overrides the resolved dtype.

    Raises:
        ShapeError: Shapes that don't broadcast.

    Example:
        >>> import autoq as aq
        >>> aq.where([True, False], [1.0, 2.0], 0.0)
        tensor([1. 0.], float32)
    """
    out = apply("where", condition, a, b, out_dtype=out_dtype)
    warn_of_masks("where", out, a, b)
    return out


def warn_of_masks(name: str, out: Tensor, *values: Any) -> None:
    """Warn where a number that stands for minus infinity went into a quantized result (S48)."""
    for value in values:
        if type(value) in (int, float) and value <= MASK_FROM and out.tensor_type.is_quantized:
            warnings.warn(
                f"{name}: {value} in a {out.tensor_type.dtype.name} tensor takes its block's scale, and the "
                "block's other values become 0. Pass the mask to softmax(mask=), or decode first.",
                stacklevel=3,
            )


def _integers(name: str, indices: Any) -> Any:
    """Positions as an array."""
    places = plain(indices)
    places = places if on_gpu(places) else np.asarray(places)
    if places.dtype.kind in "iu" or not places.size:
        return places.astype(np.int64)
    raise IndexingError(f"{name}: indices are {places.dtype}.", "integers.", "Cast them with astype.")


def _update_sample(rng: np.random.Generator) -> list[Case]:
    indices: tuple[Any, ...] = (
        1, slice(None, None, 2), (Ellipsis, 0), [2, 0, 2], np.array([[True, False, True, False]] * 3),
        (np.array([[0], [2]]), np.array([1, 1, 3])),
    )  # fmt: skip
    cases: list[Case] = []
    for add in (False, True):
        for index in indices:
            target = rng.standard_normal((3, 4))
            cases.append(((target, rng.standard_normal(target[index].shape)), {"index": index, "add": add}))
        cases.append(((target, rng.standard_normal(4)), {"index": slice(1, 3), "add": add}))
    return cases


register(
    Op(
        "update",
        update,
        {"target": _update_target, "values": _update_values},
        kind="update",
        sample=_update_sample,
    )
)
