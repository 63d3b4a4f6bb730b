"""Vector norms and the standard deviation: forward and gradient rule of each, side by side."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.errors import ArgumentError
from autoq.ops.axes import Axis, Shape, over_axes, reduced_size, restore
from autoq.ops.reduce import var
from autoq.ops.samples import Case, distinct, reduced, signed
from autoq.tape.op import Op, register


def std(x: Any, *, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Any:
    """The standard deviation over axes, the root of the variance; its gradient where it is 0 is 0.

    Args:
        x: Any shape.
        axis: An axis or a tuple of them; None is all of them.
        correction: Divide by the number of values less this; 1 is the usual estimate from a sample.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.std([1.0, 3.0])
        tensor(1., float32)
    """
    return np.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def _std_x(F: Any, g: Any, x: Any, x_shape: Shape, axis: Axis, keepdims: bool, correction: float) -> Any:
    divisor = max(reduced_size(x_shape, axis) - correction, 0)
    scale = 1.0 / divisor if divisor else math.nan
    spread = _not_zero(F, F.std(x, axis=axis, correction=correction, keepdims=True))
    centered = x - F.mean(x, axis=axis, keepdims=True)
    return centered / spread * (restore(F, g, x_shape, axis, keepdims) * scale)


def norm(x: Any, *, ord: float = 2, axis: Axis = None, keepdims: bool = False) -> Any:
    """The vector norm over axes, ``(sum |x| ** ord) ** (1 / ord)``; where it is 0, its gradient is 0.

    Args:
        x: Any shape.
        ord: 2, 1 or another number; infinity is the largest magnitude, minus infinity the smallest, 0 how
            many values are not 0.
        axis: An axis or a tuple of them, along which the values are one vector; None is all of them.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have, or no values for an infinite order.
        ArgumentError: An order that is no number.

    Example:
        >>> import autoq as aq
        >>> aq.norm([3.0, -4.0]), aq.norm([3.0, -4.0], ord=1)
        (tensor(5., float32), tensor(7., float32))
    """
    if not isinstance(ord, int | float) or math.isnan(ord):
        raise ArgumentError(f"norm: ord={ord!r}.", "a number, infinity included.", "Pass 1, 2 or math.inf.")
    size = np.abs(x)
    if math.isinf(ord):
        return over_axes("norm", (np.maximum if ord > 0 else np.minimum).reduce, size, axis, keepdims)
    if ord == 0:
        return over_axes("norm", np.add.reduce, (x != 0).astype(x.dtype), axis, keepdims)
    if ord == 1:
        return over_axes("norm", np.add.reduce, size, axis, keepdims)
    if ord == 2:
        return np.sqrt(over_axes("norm", np.add.reduce, x * x, axis, keepdims))
    return over_axes("norm", np.add.reduce, size ** float(ord), axis, keepdims) ** (1.0 / ord)


def _norm_x(F: Any, g: Any, x: Any, x_shape: Shape, ord: float, axis: Axis, keepdims: bool) -> Any:
    g = restore(F, g, x_shape, axis, keepdims)
    if ord == 0:
        return F.broadcast_to(g * 0.0, shape=x_shape)
    if ord == 1:
        return g * F.sign(x)
    if math.isinf(ord):
        return g * F.sign(x) * F.extremum_share(F.abs(x), axis=axis, largest=ord > 0)
    length = _not_zero(F, F.norm(x, ord=ord, axis=axis, keepdims=True))
    if ord == 2:
        return g * (x / length)
    size = _not_zero(F, F.abs(x))
    return g * (F.sign(x) * F.pow(size / length, float(ord) - 1.0))


def _not_zero(F: Any, x: Any) -> Any:
    """A divisor: 1 where it is 0."""
    return F.where(F.equal(x, 0.0), 1.0, x)


def _std_sample(rng: np.random.Generator) -> list[Case]:
    x = rng.uniform(-2, 2, (2, 3, 4))
    axes: tuple[dict[str, Any], ...] = ({}, {"axis": 0}, {"axis": (-1, 1), "keepdims": True})
    return [*[((x,), static) for static in axes], ((x,), {"axis": 1, "correction": 1})]


def _norm_sample(rng: np.random.Generator) -> list[Case]:
    cases = reduced(0.3, 2)(rng)
    for order in (1, 3, 0.5, -1, 0):
        cases += [((x,), {"ord": order, "axis": -1}) for (x,), _ in signed(0.3, 2)(rng)[:1]]
    return cases + [((distinct(rng, (3, 4)),), {"ord": order, "axis": 0}) for order in (math.inf, -math.inf)]


register(Op("std", std, {"x": _std_x}, reduction=True, accumulates=True, sample=_std_sample))
register(Op("norm", norm, {"x": _norm_x}, reduction=True, accumulates=True, sample=_norm_sample))
