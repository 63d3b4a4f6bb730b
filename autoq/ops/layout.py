"""Layout ops: values move and keep their bits; the gradient moves back (S21, S34-S36)."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ShapeError
from autoq.ops.axes import Axis, Shape, check_axes, check_axis
from autoq.ops.samples import moved
from autoq.storage import move
from autoq.tape.op import Op, register


def reshape(x: Any, *, shape: int | Shape) -> Any:
    """The same values in row-major order under another shape.

    Args:
        x: Any shape.
        shape: The new shape; one extent may be -1, which is worked out.

    Raises:
        ShapeError: The shape holds another number of values.

    Example:
        >>> import autoq as aq
        >>> aq.reshape([1.0, 2.0, 3.0, 4.0], (2, -1))
        tensor([[1. 2.]
                [3. 4.]], float32)
    """
    try:
        out = x.reshape(shape)
        if out.shape == shape or _is_shape(shape):
            return out
        raise ValueError
    except (ValueError, TypeError, OverflowError):
        raise ShapeError(
            f"reshape: x is {np.shape(x)}, {np.size(x)} values; shape={shape}.",
            "a shape of as many values, with at most one -1.",
            "Check the extents, or use -1 for the one that is to be worked out.",
        ) from None


def _is_shape(shape: Any) -> bool:
    """Whether it is a shape for us too; NumPy takes None for no change, and any negative extent for -1."""
    return shape is not None and min(shape if isinstance(shape, tuple | list) else (shape,), default=0) >= -1


def permute_dims(x: Any, *, axes: Shape) -> Any:
    """The axes in another order.

    Args:
        x: Any shape.
        axes: For each axis of the result, the axis of `x` it was.

    Raises:
        ShapeError: `axes` doesn't name each axis once.

    Example:
        >>> import autoq as aq
        >>> aq.permute_dims([[[1.0, 2.0]]], (2, 0, 1)).shape
        (2, 1, 1)
    """
    return _permuted("permute_dims", x, axes)


def transpose(x: Any, *, axes: Shape | None = None) -> Any:
    """The axes in reverse, or in the order given.

    Args:
        x: Any shape.
        axes: For each axis of the result, the axis of `x` it was; None reverses them.

    Raises:
        ShapeError: `axes` doesn't name each axis once.

    Example:
        >>> import autoq as aq
        >>> aq.transpose([[1.0, 2.0], [3.0, 4.0]])
        tensor([[1. 3.]
                [2. 4.]], float32)
    """
    return x.T if axes is None else _permuted("transpose", x, axes)


def _permuted(name: str, x: Any, axes: Shape) -> Any:
    try:
        if axes is None:  # NumPy reverses them
            raise TypeError
        return np.transpose(x, axes)
    except (ValueError, TypeError):
        raise ShapeError(
            f"{name}: axes={axes} for shape {np.shape(x)}.", "each axis once.", "Name every axis of x."
        ) from None


def matrix_transpose(x: Any) -> Any:
    """The last two axes swapped.

    Args:
        x: (..., m, n).

    Raises:
        ShapeError: `x` has fewer than two axes.

    Example:
        >>> import autoq as aq
        >>> aq.matrix_transpose([[[1.0, 2.0]]]).shape
        (1, 2, 1)
    """
    _check_matrix(x)
    return x.swapaxes(-1, -2)


def expand_dims(x: Any, *, axis: int | Shape = 0) -> Any:
    """New axes of length 1.

    Args:
        x: Any shape.
        axis: Where the new axes are in the result: one, or a tuple.

    Raises:
        ShapeError: A position outside the result, or given twice.

    Example:
        >>> import autoq as aq
        >>> aq.expand_dims([1.0, 2.0], 0).shape
        (1, 2)
    """
    try:
        return np.expand_dims(x, axis)
    except (ValueError, TypeError, OverflowError):
        extra = len(axis) if isinstance(axis, tuple) else 1
        check_axes("expand_dims", axis, np.shape(x) + (1,) * extra)
        check_axis("expand_dims", axis, np.shape(x) + (1,))
        raise


def squeeze(x: Any, *, axis: Axis = None) -> Any:
    """Axes of length 1 dropped.

    Args:
        x: Any shape.
        axis: The axes to drop; None is all of length 1.

    Raises:
        ShapeError: An axis that `x` does not have, or whose length isn't 1.

    Example:
        >>> import autoq as aq
        >>> aq.squeeze([[1.0, 2.0]]).shape
        (2,)
    """
    try:
        return np.squeeze(x, axis)
    except (ValueError, TypeError, OverflowError):
        check_axes("squeeze", axis, np.shape(x))
        raise ShapeError(
            f"squeeze: axis={axis} of shape {np.shape(x)}.",
            "axes of length 1.",
            "Index or reduce longer axes.",
        ) from None


def broadcast_to(x: Any, *, shape: Shape) -> Any:
    """Repeated along new axes and axes of length 1, without a copy.

    Args:
        x: Any shape.
        shape: The shape to reach.

    Raises:
        ShapeError: `x` doesn't broadcast to it.

    Example:
        >>> import autoq as aq
        >>> aq.broadcast_to([1.0, 2.0], (2, 2))
        tensor([[1. 2.]
                [1. 2.]], float32)
    """
    try:
        return np.broadcast_to(x, shape)
    except (ValueError, TypeError, OverflowError):
        raise ShapeError(
            f"broadcast_to: x is {np.shape(x)}, shape={shape}.",
            "from the last axis on, equal extents, or 1 in x.",
            "Insert axes of length 1 with expand_dims, or reshape x.",
        ) from None


def flip(x: Any, *, axis: Axis = None) -> Any:
    """The order of values reversed along axes.

    Args:
        x: Any shape.
        axis: The axes to reverse; None is all of them.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.flip([1.0, 2.0, 3.0])
        tensor([3. 2. 1.], float32)
    """
    check_axes("flip", axis, np.shape(x))
    return np.flip(x, axis)


def _check_matrix(x: Any) -> None:
    if np.ndim(x) < 2:
        raise ShapeError(
            f"matrix_transpose: x is {np.shape(x)}.", "two axes or more.", "Insert an axis with expand_dims."
        )


def _permute_back(F: Any, g: Any, axes: int | Shape) -> Any:
    axes = (axes,) if isinstance(axes, int | np.integer) else axes  # of a vector
    back = sorted(range(len(axes)), key=lambda i: axes[i] % len(axes))
    return F.permute_dims(g, axes=tuple(back))


def _transpose_x(F: Any, g: Any, axes: Shape | None) -> Any:
    return F.transpose(g, axes=None) if axes is None else _permute_back(F, g, axes)


def _reshape_back(F: Any, g: Any, x_shape: Shape) -> Any:
    return F.reshape(g, shape=x_shape)


def _packed_transpose(q: Any, *, axes: Shape | None = None) -> Any:
    return move.permute_dims(q, axes=tuple(range(q.ndim))[::-1] if axes is None else axes)


def _packed_expand_dims(q: Any, *, axis: int | Shape) -> Any:
    extra = len(axis) if isinstance(axis, tuple) else 1
    check_axes("expand_dims", axis, q.shape + (1,) * extra)
    if axis is None:
        check_axis("expand_dims", axis, (*q.shape, 1))
    return move.expand_dims(q, axis)


def _packed_squeeze(q: Any, *, axis: Axis = None) -> Any:
    check_axes("squeeze", axis, q.shape)
    return move.squeeze(q, axis)


def _packed_flip(q: Any, *, axis: Axis = None) -> Any:
    check_axes("flip", axis, q.shape)
    return move.flip(q, axis)


def _packed_matrix_transpose(q: Any) -> Any:
    _check_matrix(q)
    return move.permute_dims(q, axes=(*range(q.ndim - 2), q.ndim - 1, q.ndim - 2))


register(
    Op(
        "reshape",
        reshape,
        {"x": _reshape_back},
        kind="layout",
        integers=True,
        packed=move.reshape,
        sample=moved(
            (2, 3, 4), {"shape": (6, 4)}, {"shape": (2, -1)}, {"shape": 24}, {"shape": (1, 2, 3, 4)}
        ),
    )
)
register(
    Op(
        "permute_dims",
        permute_dims,
        {"x": _permute_back},
        kind="layout",
        integers=True,
        packed=move.permute_dims,
        sample=moved((2, 3, 4), {"axes": (2, 0, 1)}, {"axes": (-2, -1, 0)}, {"axes": (0, 1, 2)}),
    )
)
register(
    Op(
        "transpose",
        transpose,
        {"x": _transpose_x},
        kind="layout",
        integers=True,
        packed=_packed_transpose,
        sample=moved((2, 3, 4), {"axes": None}, {"axes": (1, 2, 0)}),
    )
)
register(
    Op(
        "matrix_transpose",
        matrix_transpose,
        {"x": lambda F, g: F.matrix_transpose(g)},
        kind="layout",
        integers=True,
        packed=_packed_matrix_transpose,
        sample=moved((2, 3, 4), {}),
    )
)
register(
    Op(
        "expand_dims",
        expand_dims,
        {"x": _reshape_back},
        kind="layout",
        integers=True,
        packed=_packed_expand_dims,
        sample=moved((2, 3), {"axis": 0}, {"axis": -1}, {"axis": (0, 2)}),
    )
)
register(
    Op(
        "squeeze",
        squeeze,
        {"x": _reshape_back},
        kind="layout",
        integers=True,
        packed=_packed_squeeze,
        sample=moved((1, 3, 1), {"axis": None}, {"axis": 0}, {"axis": (-1, 0)}),
    )
)
register(
    Op(
        "broadcast_to",
        broadcast_to,
        {"x": lambda F, g: g},
        kind="layout",
        integers=True,
        packed=move.broadcast_to,
        sample=moved((3, 1), {"shape": (2, 3, 4)}, {"shape": (3, 2)}),
    )
)
register(
    Op(
        "flip",
        flip,
        {"x": lambda F, g, axis: F.flip(g, axis=axis)},
        kind="layout",
        integers=True,
        packed=_packed_flip,
        sample=moved((2, 3, 4), {"axis": None}, {"axis": 1}, {"axis": (0, -1)}),
    )
)
