"""Arithmetic on axes and shapes that the forwards, rules and error messages of the ops share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autoq.devices import array_namespace, on_gpu
from autoq.errors import ArgumentError, ShapeError
from autoq.storage import device

Shape = tuple[int, ...]
Axis = int | tuple[int, ...] | None


def axis_tuple(axis: Axis, ndim: int) -> Shape:
    """Axes as non-negative integers; None is all of them."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    return tuple(a % ndim for a in axes)


def kept_shape(shape: Shape, axis: Axis) -> Shape:
    """The shape after a reduction with ``keepdims=True``."""
    axes = axis_tuple(axis, len(shape))
    return tuple(1 if i in axes else extent for i, extent in enumerate(shape))


def reduced_size(shape: Shape, axis: Axis) -> int:
    """How many values one result of a reduction is made of."""
    if axis is None:
        return math.prod(shape)
    return math.prod(shape[a] for a in (axis if isinstance(axis, tuple) else (axis,)))


def restore(F: Any, g: Any, shape: Shape, axis: Axis, keepdims: bool) -> Any:
    """A reduction's cotangent with its reduced axes back as 1s, so that it broadcasts against the operand."""
    return g if keepdims or not shape else F.reshape(g, shape=kept_shape(shape, axis))


def over_axes(name: str, reduction: Callable[..., Any], x: Any, axis: Axis, keepdims: bool) -> Any:
    """Run a reduction; what it refuses becomes an error that names the axes."""
    if type(keepdims) is not bool:
        keepdims = _whether_kept(name, keepdims)
    if axis is not None and not np.ndim(x):  # NumPy lets axis=0 of a 0-d array pass
        check_axes(name, axis, ())
    if x.__class__ is not np.ndarray and on_gpu(x):  # CuPy takes more than NumPy
        check_axes(name, axis, x.shape)
    try:
        return along(reduction, x, axis=axis, keepdims=keepdims)
    except (ValueError, TypeError, OverflowError):
        check_axes(name, axis, np.shape(x))
        raise ShapeError(
            f"{name}: no values to reduce: x is {np.shape(x)}, axis={axis}.",
            "at least one value along the reduced axes.",
            "Skip empty arrays, or reduce over another axis.",
        ) from None


# What the reductions of NumPy's ufuncs are called among functions, which CuPy has.
REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}


def along(reduction: Callable[..., Any], x: Any, **options: Any) -> Any:
    """``reduction``, the ``reduce`` of a NumPy ufunc; on a GPU by the function of the same meaning.

    Extrema and truths of float32 are none of CuPy's there, which takes subnormals for zeros.

    Example:
        >>> along(np.add.reduce, np.ones((2, 3)), axis=0)
        array([2., 2., 2.])
    """
    if x.__class__ is np.ndarray or not on_gpu(x):
        return reduction(x, **options)
    ufunc = getattr(reduction, "__self__", None)
    if not isinstance(ufunc, np.ufunc):
        return reduction(x, **options)
    function, initial = getattr(array_namespace(x), REDUCTIONS[ufunc.__name__]), options.pop("initial", None)
    if ufunc.__name__.startswith("logical") and x.dtype.kind not in "biu":
        x = device.truth(x)
    axes, extreme = axis_tuple(options.get("axis"), x.ndim), ufunc.__name__ in ("maximum", "minimum")
    if extreme and not axes and initial is None:
        return x.copy()
    if extreme and axes and x.size and x.dtype == np.float32:
        found = device.extremum(x, axes, ufunc.__name__ == "maximum", initial)
        return found.reshape(kept_shape(x.shape, axes)) if options.get("keepdims") else found
    if initial is None:
        return function(x, **options)
    # CuPy's functions know no initial value.
    if any(x.shape[a] == 0 for a in axes):
        x = array_namespace(x).full([1 if i in axes else n for i, n in enumerate(x.shape)], initial, x.dtype)
    return ufunc(function(x, **options), initial)


def _whether_kept(name: str, keepdims: Any) -> bool:
    """``keepdims`` given as a number, as NumPy takes it."""
    if not isinstance(keepdims, int | np.integer | np.bool_):
        raise ArgumentError(f"{name}: keepdims={keepdims!r}.", "True, False", "Pass one of these.")
    return bool(keepdims)


def number(op: str, name: str, value: Any) -> float:
    """A static argument as a float.

    Raises:
        ArgumentError: It is no real number, NaN among them.
    """
    try:
        found = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if math.isnan(found):
        raise ArgumentError(f"{op}: {name}={value!r}.", "a number", f"Pass one number as {name}.")
    return found


def check_axis(name: str, axis: Any, shape: Shape) -> None:
    """Raise unless `axis` is one axis of `shape`.

    Raises:
        ShapeError: It is none, or several.
    """
    ndim = len(shape)
    if not (isinstance(axis, int | np.integer) and not isinstance(axis, bool) and -ndim <= axis < ndim):
        bounds = f"one integer from {-ndim} to {ndim - 1}." if ndim else "arrays of at least one axis."
        raise ShapeError(
            f"{name}: axis={axis!r} does not fit shape {shape}.", bounds, "Pass one axis it has."
        )


def check_axes(name: str, axis: Any, shape: Shape) -> None:
    """Raise unless `axis` is None, an axis of `shape`, or a tuple of different ones.

    Raises:
        ShapeError: It is not.
    """
    axes = axis if isinstance(axis, tuple) else () if axis is None else (axis,)
    ndim = len(shape)
    whole = all(
        isinstance(a, int | np.integer) and not isinstance(a, bool) and -ndim <= a < ndim for a in axes
    )
    if whole and len({a % ndim for a in axes}) == len(axes):
        return
    bounds = f"integers from {-ndim} to {ndim - 1}, each axis once" if ndim else "axis=None for a 0-d array"
    raise ShapeError(
        f"{name}: axis={axis!r} does not fit shape {shape}.", f"{bounds}.", "Pass an axis it has."
    )


def one_axis(name: str, axis: Any, shape: Shape) -> int:
    """A single axis of `shape`, counted from the front.

    Raises:
        ShapeError: It is none.
    """
    if not isinstance(axis, int | np.integer):
        raise ShapeError(f"{name}: axis={axis!r} of shape {shape}.", "one integer.", "Name one axis.")
    check_axes(name, axis, shape)
    return int(axis) % len(shape)
