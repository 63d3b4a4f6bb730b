"""Reductions over axes: forward and gradient rule of each, side by side."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from autoq.devices import on_gpu
from autoq.ops.axes import Axis, Shape, along, check_axis, number, over_axes, reduced_size, restore
from autoq.ops.samples import distinct, reduced
from autoq.tape.accelerated import raw_on_device
from autoq.tape.op import REGISTRY, Op, register


def sum_(x: Any, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum over axes; float32 values are added pairwise.

    Integers give int64 or uint64. With `dtype=`, `x` is cast to it first.

    Args:
        x: Any shape.
        axis: An axis or a tuple of them; None is all of them.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.sum([[1.0, 2.0], [3.0, 4.0]], axis=0)
        tensor([4. 6.], float32)
    """
    return over_axes("sum", np.add.reduce, x, axis, keepdims)


def _sum_x(F: Any, g: Any, x_shape: Shape, axis: Axis, keepdims: bool) -> Any:
    return F.broadcast_to(restore(F, g, x_shape, axis, keepdims), shape=x_shape)


def mean(x: Any, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The arithmetic mean over axes; NaN if there is nothing to average.

    Args:
        x: Any shape.
        axis: An axis or a tuple of them; None is all of them.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.mean([[1.0, 2.0], [3.0, 4.0]], axis=1, keepdims=True)
        tensor([[1.5]
                [3.5]], float32)
    """
    return over_axes("mean", np.add.reduce, x, axis, keepdims) / reduced_size(np.shape(x), axis)


def _mean_x(F: Any, g: Any, x_shape: Shape, axis: Axis, keepdims: bool) -> Any:
    count = reduced_size(x_shape, axis) or 1  # of no values, there is no gradient to scale
    return F.broadcast_to(restore(F, g * (1.0 / count), x_shape, axis, keepdims), shape=x_shape)


def var(x: Any, *, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Any:
    """The variance over axes: the mean squared distance from the mean.

    Args:
        x: Any shape.
        axis: An axis or a tuple of them; None is all of them.
        correction: Divide by the number of values less this; 1 gives the unbiased estimate.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.var([1.0, 3.0])
        tensor(1., float32)
    """
    total = over_axes("var", np.add.reduce, x, axis, True)
    count = reduced_size(np.shape(x), axis)
    centered = x - total / count
    squares = over_axes("var", np.add.reduce, centered * centered, axis, keepdims)
    return squares / max(count - number("var", "correction", correction), 0)


def _var_x(F: Any, g: Any, x: Any, x_shape: Shape, axis: Axis, keepdims: bool, correction: float) -> Any:
    divisor = max(reduced_size(x_shape, axis) - correction, 0)
    scale = 2.0 / divisor if divisor else math.nan
    return (x - F.mean(x, axis=axis, keepdims=True)) * (restore(F, g, x_shape, axis, keepdims) * scale)


def max_(x: Any, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest value along axes; equal ones share the gradient.

    Args:
        x: Any shape, not empty along the axes.
        axis: An axis or a tuple of them; None is all of them.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have, or no values along it.

    Example:
        >>> import autoq as aq
        >>> aq.max([[1.0, 4.0], [3.0, 2.0]], axis=1)
        tensor([4. 3.], float32)
    """
    return over_axes("max", np.maximum.reduce, x, axis, keepdims)


def min_(x: Any, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest value along axes; equal ones share the gradient.

    Args:
        x: Any shape, not empty along the axes.
        axis: An axis or a tuple of them; None is all of them.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have, or no values along it.

    Example:
        >>> import autoq as aq
        >>> aq.min([[1.0, 4.0], [3.0, 2.0]], axis=1)
        tensor([1. 2.], float32)
    """
    return over_axes("min", np.minimum.reduce, x, axis, keepdims)


def extremum_share(x: Any, *, axis: Axis = None, largest: bool = True) -> Any:
    """1 / k at each of the k values equal to the extremum along axes, 0 elsewhere; it sums to 1.

    Args:
        x: Any shape, not empty along the axes.
        axis: An axis or a tuple of them; None is all of them.
        largest: The maximum, else the minimum.
    """
    reduction = np.maximum if largest else np.minimum
    hits = raw_on_device(REGISTRY["equal"], x, over_axes("extremum_share", reduction.reduce, x, axis, True))
    return hits / along(np.add.reduce, hits, axis=axis, keepdims=True, dtype=x.dtype)


def _extremum_x(largest: bool) -> Any:
    def rule(F: Any, g: Any, x: Any, x_shape: Shape, axis: Axis, keepdims: bool) -> Any:
        return restore(F, g, x_shape, axis, keepdims) * F.extremum_share(x, axis=axis, largest=largest)

    return rule


def argmax(x: Any, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the first largest value along an axis.

    Args:
        x: Any shape, not empty along the axis.
        axis: One axis; None is the flattened array.
        keepdims: Keep the reduced axis as 1.

    Raises:
        ShapeError: An axis that `x` does not have, or no values along it.

    Example:
        >>> import autoq as aq
        >>> aq.argmax([[1.0, 4.0], [3.0, 2.0]], axis=1)
        tensor([1 0], int64)
    """
    if isinstance(axis, tuple):
        check_axis("argmax", axis, np.shape(x))
    return over_axes("argmax", partial(_place, np.argmax), x, axis, keepdims)


def argmin(x: Any, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the first smallest value along an axis.

    Args:
        x: Any shape, not empty along the axis.
        axis: One axis; None is the flattened array.
        keepdims: Keep the reduced axis as 1.

    Raises:
        ShapeError: An axis that `x` does not have, or no values along it.

    Example:
        >>> import autoq as aq
        >>> aq.argmin([[1.0, 4.0], [3.0, 2.0]], axis=1)
        tensor([0 1], int64)
    """
    if isinstance(axis, tuple):
        check_axis("argmin", axis, np.shape(x))
    return over_axes("argmin", partial(_place, np.argmin), x, axis, keepdims)


def _place(function: Any, x: Any, *, axis: int | None, keepdims: bool) -> Any:
    """``np.argmax`` or ``np.argmin``; of float32 on a GPU where the extremum is, or NaN, first."""
    if not on_gpu(x) or x.dtype != np.float32 or not x.size:
        return function(x, axis=axis, keepdims=keepdims)
    largest = np.maximum if function is np.argmax else np.minimum
    found = along(largest.reduce, x, axis=axis, keepdims=True)
    hits = raw_on_device(REGISTRY["equal"], x, found) | np.isnan(x)
    return np.argmax(hits, axis=axis, keepdims=keepdims)


def _extremum_sample(rng: np.random.Generator) -> list[Any]:
    statics: tuple[dict[str, Any], ...] = ({}, {"axis": 1}, {"axis": (0, -1), "keepdims": True})
    return [((distinct(rng, (2, 3, 4)),), static) for static in statics]


def _share_sample(rng: np.random.Generator) -> list[Any]:
    return [((distinct(rng, (3, 4)),), {"axis": axis, "largest": axis == 0}) for axis in (None, 0, 1)]


def _arg_sample(rng: np.random.Generator) -> list[Any]:
    return [((distinct(rng, (3, 4)),), {"axis": axis}) for axis in (None, 0, -1)]


def _var_sample(rng: np.random.Generator) -> list[Any]:
    return [*reduced(-2, 2)(rng), ((rng.uniform(-2, 2, (3, 4)),), {"axis": 1, "correction": 1})]


register(
    Op(
        "sum",
        sum_,
        {"x": _sum_x},
        reduction=True,
        accumulates=True,
        integers=True,
        widens=True,
        sample=reduced(-2, 2),
    )
)
register(Op("mean", mean, {"x": _mean_x}, reduction=True, accumulates=True, sample=reduced(-2, 2)))
register(Op("var", var, {"x": _var_x}, reduction=True, accumulates=True, sample=_var_sample))
register(
    Op(
        "max",
        max_,
        {"x": _extremum_x(largest=True)},
        reduction=True,
        integers=True,
        sample=_extremum_sample,
    )
)
register(
    Op(
        "min",
        min_,
        {"x": _extremum_x(largest=False)},
        reduction=True,
        integers=True,
        sample=_extremum_sample,
    )
)
register(Op("extremum_share", extremum_share, {"x": lambda F, g, x_shape: g * 0.0}, sample=_share_sample))
_POSITION = "its result is a position"
register(Op("argmax", argmax, _POSITION, kind="index", reduction=True, sample=_arg_sample))
register(Op("argmin", argmin, _POSITION, kind="index", reduction=True, sample=_arg_sample))
