"""Running sums, products and extrema along an axis, and the product over axes: their gradients share scans.

No gradient of a product divides by a factor, so that zeros among the factors are exact, to any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.devices import array_namespace, on_gpu
from autoq.ops.axes import Axis, Shape, axis_tuple, one_axis, over_axes, restore
from autoq.ops.samples import Case, distinct, reduced
from autoq.tape.op import Op, register

# What the running sums and products of NumPy's ufuncs are called among functions, which CuPy has.
RUNNING = {"add": "cumsum", "multiply": "cumprod"}


def cumulative_sum(x: Any, *, axis: int | None = None, include_initial: bool = False) -> Any:
    """The sum of each value and those before it along an axis; also called `cumsum`.

    Integers give int64 or uint64. With `dtype=`, `x` is cast to it first.

    Args:
        x: Any shape.
        axis: The axis to add along; None adds along the flattened array.
        include_initial: Begin with a 0, so that the axis is longer by one.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.cumulative_sum([1.0, 2.0, 3.0])
        tensor([1. 3. 6.], float32)
    """
    return _accumulated("cumulative_sum", np.add, x, axis, include_initial)


def cumulative_prod(x: Any, *, axis: int | None = None, include_initial: bool = False) -> Any:
    """The product of each value and those before it along an axis; also called `cumprod`.

    Integers give int64 or uint64. With `dtype=`, `x` is cast to it first.

    Args:
        x: Any shape.
        axis: The axis to multiply along; None multiplies along the flattened array.
        include_initial: Begin with a 1, so that the axis is longer by one.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.cumulative_prod([1.0, 2.0, 3.0])
        tensor([1. 2. 6.], float32)
    """
    return _accumulated("cumulative_prod", np.multiply, x, axis, include_initial)


def _accumulated(name: str, ufunc: np.ufunc, x: Any, axis: int | None, include_initial: bool) -> Any:
    x, axis = _along(name, x, axis)
    y = _running(ufunc, x, axis)
    if not include_initial:
        return y
    first = np.full_like(y, ufunc.identity, shape=(*y.shape[:axis], 1, *y.shape[axis + 1 :]))
    return np.concatenate([first, y], axis=axis)


def _running(ufunc: np.ufunc, x: Any, axis: int) -> Any:
    """``ufunc.accumulate``, in int64 of bools."""
    dtype = None if x.dtype == np.bool_ else x.dtype
    if not on_gpu(x):
        return ufunc.accumulate(x, axis=axis, dtype=dtype)
    if not x.size:
        return x.astype(dtype or np.int64)
    return getattr(array_namespace(x), RUNNING[ufunc.__name__])(x, axis=axis, dtype=dtype)


def _along(name: str, x: Any, axis: int | None) -> tuple[Any, int]:
    """The array and the axis counted from the front; flattened where none is named."""
    if axis is None:
        return x.reshape(-1), 0
    return x, one_axis(name, axis, np.shape(x))


def cummax(x: Any, *, axis: int = -1) -> Any:
    """The largest value so far along an axis; equal ones give the gradient to the first.

    Args:
        x: Any shape of at least one axis.
        axis: The axis to go along.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.cummax([1.0, 3.0, 2.0])
        tensor([1. 3. 3.], float32)
    """
    axis = one_axis("cummax", axis, np.shape(x))
    return _extrema(np.maximum, x, axis)


def cummin(x: Any, *, axis: int = -1) -> Any:
    """The smallest value so far along an axis; equal ones give the gradient to the first.

    Args:
        x: Any shape of at least one axis.
        axis: The axis to go along.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.cummin([2.0, 3.0, 1.0])
        tensor([2. 2. 1.], float32)
    """
    axis = one_axis("cummin", axis, np.shape(x))
    return _extrema(np.minimum, x, axis)


def _extrema(ufunc: np.ufunc, x: Any, axis: int) -> Any:
    """``ufunc.accumulate`` of a maximum or minimum.

    CuPy has none: there, extrema of 2, 4, 8, … neighbours are taken of those of half as many.
    """
    if not on_gpu(x):
        return ufunc.accumulate(x, axis=axis)
    found, n, reach = np.moveaxis(x, axis, 0).copy(), x.shape[axis], 1
    while reach < n:
        found[reach:] = ufunc(found[reach:], found[:-reach])
        reach *= 2
    return np.moveaxis(found, 0, axis)


def extremum_so_far(x: Any, *, axis: int = -1, largest: bool = True) -> Any:
    """Where along an axis the extremum of each value and those before it first stood.

    Args:
        x: Any shape of at least one axis.
        axis: The axis to go along.
        largest: The maximum, else the minimum.
    """
    axis = one_axis("extremum_so_far", axis, np.shape(x))
    found = np.moveaxis(_extrema(np.maximum if largest else np.minimum, x, axis), axis, -1)
    before, after = found[..., :-1], found[..., 1:]
    risen = (before != after) & ~(np.isnan(before) & np.isnan(after))
    xp = array_namespace(x)
    first = xp.zeros(found.shape, np.int64)
    first[..., 1:] = risen * xp.arange(1, max(found.shape[-1], 1))
    return np.moveaxis(_extrema(np.maximum, first, -1), -1, axis)


def linear_recurrence(a: Any, b: Any, *, axis: int = -1) -> Any:
    """y[i] = b[i] + a[i] * y[i - 1] along an axis, from y[-1] = 0.

    Args:
        a: Any shape of at least one axis; its first value is not used.
        b: The shape of `a`.
        axis: The axis to go along.
    """
    y = b.copy()
    lines, factors = np.moveaxis(y, axis, 0), np.moveaxis(a, axis, 0)
    for i in range(1, len(lines)):
        lines[i] += factors[i] * lines[i - 1]
    return y


def prod(x: Any, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The product over axes; 1 of no values.

    Integers give int64 or uint64. With `dtype=`, `x` is cast to it first.

    Args:
        x: Any shape.
        axis: An axis or a tuple of them; None is all of them.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.prod([[1.0, 2.0], [3.0, 4.0]], axis=1)
        tensor([ 2. 12.], float32)
    """
    return over_axes("prod", np.multiply.reduce, x, axis, keepdims)


def _later(F: Any, x: Any, axis: int) -> Any:
    """The values one place later along an axis, after a 0."""
    if not x.shape[axis]:
        return x
    widths = tuple((int(i == axis), 0) for i in range(len(x.shape)))
    return F.pad(_head(F, x, axis), widths=widths)


def _head(F: Any, x: Any, axis: int) -> Any:
    """All values along an axis but the last."""
    return F.getitem(x, index=(slice(None),) * axis + (slice(-1),))


def _unprefixed(F: Any, g: Any, axis: int, include_initial: bool) -> Any:
    """A cotangent without the entry of the initial value."""
    return F.getitem(g, index=(slice(None),) * axis + (slice(1, None),)) if include_initial else g


def _backwards(F: Any, a: Any, g: Any, axis: int) -> Any:
    """The transpose of the recurrence: d[i] = g[i] + a[i + 1] * d[i + 1]."""
    factors = _later(F, F.flip(a, axis=axis), axis)
    return F.flip(F.linear_recurrence(factors, F.flip(g, axis=axis), axis=axis), axis=axis)


def _recurrence_a(F: Any, g: Any, a: Any, b: Any, axis: int) -> Any:
    axis %= len(a.shape)
    return _backwards(F, a, g, axis) * _later(F, F.linear_recurrence(a, b, axis=axis), axis)


def _recurrence_b(F: Any, g: Any, a: Any, axis: int) -> Any:
    return _backwards(F, a, g, axis % len(a.shape))


def _cumulative_sum_x(F: Any, g: Any, x_shape: Shape, axis: int | None, include_initial: bool) -> Any:
    """The sum of each cotangent and those after it."""
    at = 0 if axis is None else axis % len(x_shape)
    g = F.flip(_unprefixed(F, g, at, include_initial), axis=at)
    return F.reshape(F.flip(F.cumulative_sum(g, axis=at, include_initial=False), axis=at), shape=x_shape)


def _cumulative_prod_x(
    F: Any, g: Any, x: Any, x_shape: Shape, axis: int | None, include_initial: bool
) -> Any:
    """The product of what comes before, times a recurrence over what comes after."""
    at = 0 if axis is None else axis % len(x_shape)
    y = F.reshape(x, shape=(-1,)) if axis is None and len(x_shape) != 1 else x
    if not y.shape[at]:
        return F.reshape(y, shape=x_shape)
    before = F.cumulative_prod(_head(F, y, at), axis=at, include_initial=True)
    g = _unprefixed(F, g, at, include_initial)
    return F.reshape(before * _backwards(F, y, g, at), shape=x_shape)


def _prod_x(F: Any, g: Any, x: Any, x_shape: Shape, axis: Axis, keepdims: bool) -> Any:
    """The product of the other values: of those before, times those after."""
    g = restore(F, g, x_shape, axis, keepdims)
    if 0 in x_shape:
        return F.broadcast_to(g, shape=x_shape)
    axes = axis_tuple(axis, len(x_shape))
    order = (*(i for i in range(len(x_shape)) if i not in axes), *axes)
    kept = tuple(x_shape[i] for i in order[: len(order) - len(axes)])
    y = F.reshape(F.permute_dims(x, axes=order), shape=(*kept, -1))
    last = len(kept)
    before = F.cumulative_prod(_head(F, y, last), axis=last, include_initial=True)
    turned = _head(F, F.flip(y, axis=last), last)
    after = F.flip(F.cumulative_prod(turned, axis=last, include_initial=True), axis=last)
    others = F.reshape(before * after, shape=tuple(x_shape[i] for i in order))
    back = sorted(range(len(order)), key=lambda i: order[i])
    return g * F.permute_dims(others, axes=tuple(back))


def _first_x(largest: bool) -> Any:
    """Each cotangent goes to where the extremum first stood."""

    def rule(F: Any, g: Any, x: Any, x_shape: Shape, axis: int) -> Any:
        places = F.extremum_so_far(x, axis=axis, largest=largest)
        return F.scatter_add_along_axis(g, indices=places, axis=axis, shape=x_shape)

    return rule


def _scan_sample(rng: np.random.Generator) -> list[Case]:
    x, zeros = rng.uniform(0.5, 2, (2, 3, 4)), rng.uniform(-2, 2, (3, 4))
    zeros[0, 1] = zeros[2, 1] = zeros[1, 2] = 0.0
    statics: tuple[dict[str, Any], ...] = (
        {}, {"axis": 1}, {"axis": -1, "include_initial": True}, {"include_initial": True}
    )  # fmt: skip
    return [*[((x,), static) for static in statics], *[((zeros,), {"axis": axis}) for axis in (0, 1, None)]]


def _prod_sample(rng: np.random.Generator) -> list[Case]:
    zeros = rng.uniform(-2, 2, (3, 4))
    zeros[0, 1] = zeros[2, 1] = zeros[1, 2] = 0.0
    return [*reduced(0.5, 2)(rng), *[((zeros,), {"axis": axis}) for axis in (0, 1, None, ())]]


def _extremum_sample(rng: np.random.Generator) -> list[Case]:
    return [((distinct(rng, (2, 3, 4)),), {"axis": axis}) for axis in (0, 1, -1)]


def _recurrence_sample(rng: np.random.Generator) -> list[Case]:
    a, b = rng.uniform(-1.5, 1.5, (2, 2, 3, 4))
    return [((a, b), {"axis": axis}) for axis in (0, 1, -1)]


register(
    Op(
        "prod",
        prod,
        {"x": _prod_x},
        reduction=True,
        accumulates=True,
        integers=True,
        widens=True,
        sample=_prod_sample,
    )
)
register(
    Op(
        "cumulative_sum",
        cumulative_sum,
        {"x": _cumulative_sum_x},
        accumulates=True,
        integers=True,
        widens=True,
        sample=_scan_sample,
    )
)
register(
    Op(
        "cumulative_prod",
        cumulative_prod,
        {"x": _cumulative_prod_x},
        accumulates=True,
        integers=True,
        widens=True,
        sample=_scan_sample,
    )
)
register(Op("cummax", cummax, {"x": _first_x(largest=True)}, integers=True, sample=_extremum_sample))
register(Op("cummin", cummin, {"x": _first_x(largest=False)}, integers=True, sample=_extremum_sample))
register(
    Op(
        "extremum_so_far",
        extremum_so_far,
        "its result is a position",
        kind="index",
        sample=_extremum_sample,
    )
)
register(
    Op(
        "linear_recurrence",
        linear_recurrence,
        {"a": _recurrence_a, "b": _recurrence_b},
        accumulates=True,
        sample=_recurrence_sample,
    )
)
