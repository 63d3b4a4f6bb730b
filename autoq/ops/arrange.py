"""Layout ops that repeat, turn and pick diagonals: values keep their bits where blocks can follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autoq.devices import array_namespace, beside, on_gpu, to_host
from autoq.errors import ArgumentError, ShapeError
from autoq.ops.axes import Axis, Shape, axis_tuple, check_axes, one_axis
from autoq.ops.samples import moved
from autoq.storage import QTensor, move
from autoq.storage.gather import encoded, gather, worst
from autoq.storage.packing import pack
from autoq.tape.op import Op, register


def repeat(x: Any, *, repeats: Any, axis: int | None = None) -> Any:
    """Each value, or each entry along an axis, repeated in place, as in NumPy.

    Args:
        x: Any shape.
        repeats: How often: an integer, or one for each entry along the axis.
        axis: The axis that grows; None repeats the values of the flattened array.

    Raises:
        ShapeError: An axis that `x` does not have.
        ArgumentError: Negative repeats, or another number of them than entries.

    Example:
        >>> import autoq as aq
        >>> aq.repeat([1.0, 2.0], 2)
        tensor([1. 1. 2. 2.], float32)
    """
    if axis is not None:
        axis = one_axis("repeat", axis, np.shape(x))
    counts = _counts(repeats, np.shape(x), axis)
    if counts.size == 1:
        return np.repeat(x, int(counts.item()), axis)
    if not on_gpu(x):
        return np.repeat(x, counts, axis)
    # How long the result is is known here; CuPy would ask the GPU.
    return x.take(beside(np.repeat(np.arange(counts.size), counts), x), axis)


def _counts(repeats: Any, shape: Shape, axis: int | None) -> Any:
    """The repeats as NumPy takes them, checked."""
    n = int(np.prod(shape)) if axis is None else shape[axis]
    counts = to_host(repeats)
    if counts.dtype.kind in "iu" and counts.ndim < 2 and counts.size in (1, n) and not (counts < 0).any():
        return counts
    raise ArgumentError(
        f"repeat: repeats={repeats!r} of {n} entries.", "an integer from 0 on, or one for each entry.",
        "Correct the repeats, or the axis.",
    )  # fmt: skip


def _repeat_x(F: Any, g: Any, x_shape: Shape, repeats: Any, axis: int | None) -> Any:
    """The sum of the cotangents of each entry's copies."""
    flat = (int(np.prod(x_shape)),)
    shape, axis = (flat, 0) if axis is None else (x_shape, axis)
    sources = np.repeat(np.arange(shape[axis]), to_host(repeats))
    return F.reshape(F.scatter_add(g, indices=sources, axis=axis, shape=shape), shape=x_shape)


def _packed_repeat(q: QTensor, *, repeats: Any, axis: int | None = None) -> Any:
    if axis is not None:
        axis = one_axis("repeat", axis, q.shape)
    counts = _counts(repeats, q.shape, axis)
    if axis is not None:
        return move.repeat(q, counts, axis)
    result, how = _flattened(q, lambda flat: move.repeat(flat, counts, 0))
    return (result, how) if how != "decode" else _cutting(repeat)(q, repeats=counts)


def tile(x: Any, *, repetitions: int | Shape) -> Any:
    """The whole array repeated side by side along its axes.

    Args:
        x: Any shape.
        repetitions: How often along each axis, the last ones aligned; more of them than axes add axes.

    Raises:
        ArgumentError: Something else than integers from 0 on.

    Example:
        >>> import autoq as aq
        >>> aq.tile([1.0, 2.0], 2)
        tensor([1. 2. 1. 2.], float32)
    """
    return np.tile(x, _times(repetitions, np.ndim(x)))


def _times(repetitions: int | Shape, ndim: int) -> Shape:
    """One number for each axis of the result."""
    times = repetitions if isinstance(repetitions, tuple | list) else (repetitions,)
    if not all(isinstance(t, int | np.integer) and t >= 0 for t in times):
        raise ArgumentError(
            f"tile: repetitions={repetitions!r}.", "integers from 0 on.", "Pass one for each axis."
        )
    return (1,) * (ndim - len(times)) + tuple(int(t) for t in times)


def _tile_x(F: Any, g: Any, x_shape: Shape, repetitions: int | Shape) -> Any:
    """The sum over the copies."""
    times = _times(repetitions, len(x_shape))
    shape = (1,) * (len(times) - len(x_shape)) + x_shape
    split = tuple(part for pair in zip(times, shape, strict=True) for part in pair)
    return F.reshape(F.sum(F.reshape(g, shape=split), axis=tuple(range(0, len(split), 2))), shape=x_shape)


def _packed_tile(q: QTensor, *, repetitions: int | Shape) -> Any:
    times = _times(repetitions, q.ndim)
    if len(times) > q.ndim:
        q = move.expand_dims(q, tuple(range(len(times) - q.ndim)))[0]
    return gather(q, {i: np.tile(np.arange(q.shape[i]), t) for i, t in enumerate(times) if t != 1})


def roll(x: Any, *, shift: int | Shape, axis: Axis = None) -> Any:
    """The values moved along axes; what leaves at one end comes in at the other.

    Args:
        x: Any shape.
        shift: By how many places, toward higher positions; one for all axes, or one for each.
        axis: The axes; None moves along the flattened array.

    Raises:
        ShapeError: An axis that `x` does not have.
        ArgumentError: Shifts that are no integers, or not as many as axes.

    Example:
        >>> import autoq as aq
        >>> aq.roll([1.0, 2.0, 3.0], 1)
        tensor([3. 1. 2.], float32)
    """
    shifts = _shifts(shift, axis, np.shape(x))
    return np.roll(x, shift) if shifts is None else np.roll(x, tuple(shifts.values()), tuple(shifts))


def _shifts(shift: int | Shape, axis: Axis, shape: Shape) -> dict[int, int] | None:
    """The shift of each axis; None for the flattened array."""
    many = shift if isinstance(shift, tuple | list) else (shift,)
    if axis is not None:
        check_axes("roll", axis, shape)
    axes = (0,) if axis is None else axis_tuple(axis, len(shape))
    many = tuple(many) * len(axes) if len(many) == 1 else many
    if len(many) != len(axes) or not all(isinstance(s, int | np.integer) for s in many):
        raise ArgumentError(
            f"roll: shift={shift!r} along axis={axis}.", "one integer, or one for each axis.",
            "Pass as many shifts as axes.",
        )  # fmt: skip
    return None if axis is None else dict(zip(axes, many, strict=True))


def _roll_x(F: Any, g: Any, shift: int | Shape, axis: Axis) -> Any:
    back = tuple(-s for s in shift) if isinstance(shift, tuple | list) else -shift
    return F.roll(g, shift=back, axis=axis)


def _packed_roll(q: QTensor, *, shift: int | Shape, axis: Axis = None) -> Any:
    shifts = _shifts(shift, axis, q.shape)
    if shifts is not None:
        return gather(q, {i: np.roll(np.arange(q.shape[i]), s) for i, s in shifts.items()})
    rolled, how = _flattened(q, lambda flat: gather(flat, {0: np.roll(np.arange(q.size), shift)}))
    if how != "decode":
        rolled, how = move.reshape(rolled, q.shape)
    return (rolled, how) if how != "decode" else _cutting(roll)(q, shift=shift)


def _flattened(q: QTensor, moved: Callable[..., Any]) -> Any:
    """What a move makes of the flattened tensor, if it can be flattened without cutting blocks."""
    flat, how = move.reshape(q, (q.size,))
    if how == "decode":
        return None, how
    result, again = moved(flat)
    return result, worst(how, again)


def diagonal(x: Any, *, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """The diagonals of matrices, along a new last axis.

    Args:
        x: At least two axes.
        offset: Which diagonal: 0 is the main one, positive ones lie above it.
        axis1: The axis of the rows.
        axis2: The axis of the columns.

    Raises:
        ShapeError: Axes that `x` does not have, or the same one twice.

    Example:
        >>> import autoq as aq
        >>> aq.diagonal([[1.0, 2.0], [3.0, 4.0]])
        tensor([1. 4.], float32)
    """
    check_axes("diagonal", (axis1, axis2), np.shape(x))
    return np.diagonal(x, offset, axis1, axis2)


def _packed_diagonal(q: QTensor, *, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    static = {"offset": offset, "axis1": axis1, "axis2": axis2}
    check_axes("diagonal", (axis1, axis2), q.shape)
    if q.scheme.block is None:  # one block follows every move
        codes = diagonal(q.codes(), **static)
        scales = q.scales.reshape((1,) * codes.ndim)
        return QTensor.make(pack(codes, q.scheme.element_bits), scales, None, q.scheme, codes.shape), "copy"
    pair = axis1 % q.ndim, axis2 % q.ndim
    matrices = move.permute_dims(q, (*pair, *(axis for axis in range(q.ndim) if axis not in pair)))[0]
    rows = np.arange(np.diagonal(np.empty(matrices.shape[:2]), offset).size)
    if q.ndim > 2:
        picked, how = move.getitem(matrices, (rows + max(-offset, 0), rows + max(offset, 0)))
        if how != "decode":
            return move.permute_dims(picked, (*range(1, picked.ndim), 0))[0], how
    return _cutting(diagonal)(q, **static)


def scatter_diagonal(x: Any, *, offset: int, axis1: int, axis2: int, shape: Shape) -> Any:
    """Zeros of a shape with `x` on diagonals: the transpose of `diagonal`.

    Args:
        x: The shape of `diagonal(zeros(shape), offset, axis1, axis2)`.
        offset: As of `diagonal`.
        axis1: As of `diagonal`.
        axis2: As of `diagonal`.
        shape: The shape of the result.
    """
    out = array_namespace(x).zeros(shape, x.dtype)
    matrices = np.moveaxis(out, (axis1, axis2), (-2, -1))
    n = x.shape[-1]
    matrices[..., np.arange(n) + max(-offset, 0), np.arange(n) + max(offset, 0)] = x
    return out


def _diagonal_x(F: Any, g: Any, x_shape: Shape, offset: int, axis1: int, axis2: int) -> Any:
    return F.scatter_diagonal(g, offset=offset, axis1=axis1, axis2=axis2, shape=x_shape)


def _scattered_x(F: Any, g: Any, offset: int, axis1: int, axis2: int) -> Any:
    return F.diagonal(g, offset=offset, axis1=axis1, axis2=axis2)


def _cutting(forward: Callable[..., Any]) -> Callable[..., Any]:
    """For what always cuts blocks: decoded, moved and encoded again (S36)."""
    return lambda q, **static: (encoded(forward(q.dequantize(), **static), q.scheme), "decode")


def triangle(name: str, cut: Callable[..., Any]) -> Callable[..., Any]:
    """The forward of `tril` and `triu`, for matrices in the last two axes."""

    def forward(x: Any, *, k: int = 0) -> Any:
        if np.ndim(x) < 2:
            raise ShapeError(f"{name}: x is {np.shape(x)}.", "at least two axes.", "Insert an axis.")
        return cut(x, k)

    return forward


_TRIANGLE = """{summary}

    Args:
        x: (..., m, n).
        k: The diagonal that bounds the kept part: 0 is the main one, positive ones lie above it.

    Raises:
        ShapeError: Fewer than two axes.

    Example:
        >>> import autoq as aq
        >>> aq.{call}
        {result}
    """

register(
    Op(
        "repeat",
        repeat,
        {"x": _repeat_x},
        kind="layout",
        integers=True,
        packed=_packed_repeat,
        sample=moved(
            (3, 4), {"repeats": 2}, {"repeats": 3, "axis": 0}, {"repeats": (0, 2, 1, 3), "axis": -1}
        ),
    )
)
register(
    Op(
        "tile",
        tile,
        {"x": _tile_x},
        kind="layout",
        integers=True,
        packed=_packed_tile,
        sample=moved((3, 4), {"repetitions": 2}, {"repetitions": (2, 1)}, {"repetitions": (2, 1, 3)}),
    )
)
register(
    Op(
        "roll",
        roll,
        {"x": _roll_x},
        kind="layout",
        integers=True,
        packed=_packed_roll,
        sample=moved((3, 4), {"shift": 2}, {"shift": -1, "axis": 0}, {"shift": (1, 3), "axis": (0, -1)}),
    )
)
register(
    Op(
        "diagonal",
        diagonal,
        {"x": _diagonal_x},
        kind="layout",
        integers=True,
        packed=_packed_diagonal,
        sample=moved((3, 4), {}, {"offset": 1}, {"offset": -2, "axis1": 1, "axis2": 0}),
    )
)
register(
    Op(
        "scatter_diagonal",
        scatter_diagonal,
        {"x": _scattered_x},
        integers=True,
        sample=moved((4, 2), {"offset": 1, "axis1": 0, "axis2": 2, "shape": (3, 4, 3)}),
    )
)
register(
    Op(
        "tril",
        triangle("tril", np.tril),
        {"x": lambda F, g, k: F.tril(g, k=k)},
        integers=True,
        sample=moved((3, 4), {}, {"k": -1}, {"k": 2}),
        doc=_TRIANGLE.format(
            summary="The part of matrices on and below a diagonal; zeros above it.",
            call="tril([[1.0, 2.0], [3.0, 4.0]])",
            result="tensor([[1. 0.]\n                [3. 4.]], float32)",
        ),
    )
)
register(
    Op(
        "triu",
        triangle("triu", np.triu),
        {"x": lambda F, g, k: F.triu(g, k=k)},
        integers=True,
        sample=moved((3, 4), {}, {"k": -1}, {"k": 2}),
        doc=_TRIANGLE.format(
            summary="The part of matrices on and above a diagonal; zeros below it.",
            call="triu([[1.0, 2.0], [3.0, 4.0]])",
            result="tensor([[1. 2.]\n                [0. 4.]], float32)",
        ),
    )
)
