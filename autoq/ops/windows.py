"""Sliding windows over trailing axes: where they lie, their values, and the way back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from autoq.devices import array_namespace, on_gpu
from autoq.errors import ArgumentError, ShapeError
from autoq.ops.axes import Shape
from autoq.tape.op import Op, register

Sizes = int | tuple[int, ...]
Padding = int | str | tuple[Any, ...]


class Windows(NamedTuple):
    """Where windows lie over the trailing axes of an array, one entry an axis.

    Attributes:
        sizes: Extents of the array.
        kernel: Values in a window.
        stride: Distance between windows.
        padding: Values put in before and after.
        dilation: Distance between the values of a window.
        out: How many windows fit.
    """

    sizes: Shape
    kernel: Shape
    stride: Shape
    padding: tuple[tuple[int, int], ...]
    dilation: Shape
    out: Shape


def windows(
    name: str, sizes: Shape, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes = 1
) -> Windows:
    """The windows of an array of those extents.

    Raises:
        ArgumentError: A number below its least, one for another number of axes, or an unknown padding.
        ShapeError: A kernel that is larger than the padded array.

    Example:
        >>> windows("conv1d", (7,), (3,), 2, 1).out
        (4,)
    """
    rank = len(sizes)
    kernel, stride = per_axis(name, "kernel", kernel, rank, 1), per_axis(name, "stride", stride, rank, 1)
    dilation = per_axis(name, "dilation", dilation, rank, 1)
    extents = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    pads = padding_pairs(name, padding, extents, stride)
    full = tuple(n + low + high for n, (low, high) in zip(sizes, pads, strict=True))
    if any(e > n for e, n in zip(extents, full, strict=True)):
        raise ShapeError(
            f"{name}: a kernel that spans {extents} over {sizes} values, {full} with padding.",
            "a kernel no larger than the padded input.",
            "Pad more, or use a smaller kernel or dilation.",
        )
    out = tuple((n - e) // s + 1 for n, e, s in zip(full, extents, stride, strict=True))
    return Windows(tuple(sizes), kernel, stride, pads, dilation, out)


def per_axis(name: str, what: str, value: Any, rank: int, least: int) -> Shape:
    """One integer an axis, of a number for all of them or a sequence.

    Raises:
        ArgumentError: Numbers that are no integers, below ``least``, or not as many as axes.
    """
    many = isinstance(value, tuple | list)
    values = tuple(value) if many else (value,) * rank
    whole = all(isinstance(v, int | np.integer) and not isinstance(v, bool) and v >= least for v in values)
    if len(values) != rank or not whole:
        raise ArgumentError(
            f"{name}: {what}={value!r}.",
            f"an integer of at least {least}, or {rank} of them.",
            "Give one number for all axes, or one an axis.",
        )
    return tuple(int(v) for v in values)


def padding_pairs(name: str, padding: Padding, extents: Shape, stride: Shape) -> tuple[tuple[int, int], ...]:
    """Values before and after each axis; ``"same"`` keeps its length, an odd one goes after.

    Raises:
        ArgumentError: An unknown padding, or ``"same"`` with a stride.
    """
    rank = len(extents)
    if padding == "valid":
        return ((0, 0),) * rank
    if padding == "same" and set(stride) <= {1}:
        return tuple(((e - 1) // 2, e // 2) for e in extents)
    if isinstance(padding, str):
        raise ArgumentError(
            f"{name}: padding={padding!r} with stride {stride}.",
            '"valid", "same" with a stride of 1, or integers.',
            "Give the number of values to pad with.",
        )
    if isinstance(padding, tuple | list) and padding and isinstance(padding[0], tuple | list):
        flat = per_axis(name, "padding", [p for pair in padding for p in pair], 2 * rank, 0)
        return tuple(zip(flat[::2], flat[1::2], strict=True))
    return tuple((p, p) for p in per_axis(name, "padding", padding, rank, 0))


def padded(x: Any, at: Windows, fill: float = 0.0) -> Any:
    """`x` (..., *sizes) with its padding put in; `x` itself where there is none."""
    if not any(low or high for low, high in at.padding):
        return x
    lead = ((0, 0),) * (x.ndim - len(at.sizes))
    return np.pad(x, (*lead, *at.padding), constant_values=fill)


def strided(x: Any, at: Windows) -> Any:
    """A read-only view of a padded (..., *sizes) as (..., *kernel, *out)."""
    lead = x.ndim - len(at.sizes)
    inner = x.strides[lead:]
    steps = [s * d for s, d in zip(inner, at.dilation, strict=True)]
    jumps = [s * d for s, d in zip(inner, at.stride, strict=True)]
    shape = (*x.shape[:lead], *at.kernel, *at.out)
    strides = (*x.strides[:lead], *steps, *jumps)
    if on_gpu(x):  # where arrays have no flag for read-only
        return array_namespace(x).lib.stride_tricks.as_strided(x, shape, strides)
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


def slices(at: Windows) -> Iterator[tuple[Shape, tuple[Any, ...]]]:
    """For each place in a window, the index of the values that all windows have there."""
    for place in np.ndindex(at.kernel):
        steps = zip(place, at.dilation, at.out, at.stride, strict=True)
        index: list[Any] = [slice(p * d, p * d + (o - 1) * s + 1, s) for p, d, o, s in steps]
        yield place, (..., *index)


def added_back(columns: Any, at: Windows, lead: Shape) -> Any:
    """Values of windows (*lead, *kernel, *out) added up where they overlap, without the padding."""
    full = tuple(n + low + high for n, (low, high) in zip(at.sizes, at.padding, strict=True))
    out = array_namespace(columns).zeros((*lead, *full), columns.dtype)
    whole = (slice(None),) * len(lead)
    for place, index in slices(at):
        out[index] += columns[(*whole, *place)]
    inside: list[Any] = [slice(low, low + n) for n, (low, _) in zip(at.sizes, at.padding, strict=True)]
    return out[(..., *inside)]


def unfold(
    x: Any, *, kernel: Shape, stride: Shape, padding: Padding, dilation: Sizes = 1, fill: float = 0.0
) -> Any:
    """All windows over the trailing axes: (kernel values, ..., *out).

    Args:
        x: (..., *sizes), as many trailing axes as `kernel` has numbers.
        kernel, stride, padding, dilation: The windows.
        fill: The value that padding holds.

    Raises:
        ShapeError: A kernel that is larger than the padded input.
    """
    lead = x.shape[: x.ndim - len(kernel)]
    at = windows("unfold", x.shape[len(lead) :], kernel, stride, padding, dilation)
    full = padded(x, at, fill)
    out = array_namespace(x).empty((math.prod(at.kernel), *lead, *at.out), x.dtype)
    for row, (_, index) in zip(out, slices(at), strict=True):
        row[...] = full[index]
    return out


def fold(x: Any, *, sizes: Shape, kernel: Shape, stride: Shape, padding: Padding, dilation: Sizes = 1) -> Any:
    """Windows added up where they overlap: the transpose of `unfold`.

    Args:
        x: (kernel values, ..., *out).
        sizes: Trailing extents of the result.
        kernel, stride, padding, dilation: The windows.

    Raises:
        ShapeError: `x` is not what `unfold` gives.
    """
    at = windows("fold", sizes, kernel, stride, padding, dilation)
    lead = x.shape[1 : x.ndim - len(at.out)]
    if x.shape != (math.prod(at.kernel), *lead, *at.out):
        raise ShapeError(
            f"fold: x is {x.shape}.", f"(kernel values, ..., *{at.out}).", "Pass unfold's result."
        )
    rank, depth = len(at.kernel), len(lead)
    places = x.reshape(*at.kernel, *lead, *at.out)
    return added_back(np.moveaxis(places, range(rank), range(depth, depth + rank)), at, lead)


def _unfold_x(
    F: Any, g: Any, x_shape: Shape, kernel: Shape, stride: Shape, padding: Padding, dilation: Sizes
) -> Any:
    sizes = x_shape[len(x_shape) - len(kernel) :]
    return F.fold(g, sizes=sizes, kernel=kernel, stride=stride, padding=padding, dilation=dilation)


def _fold_x(F: Any, g: Any, kernel: Shape, stride: Shape, padding: Padding, dilation: Sizes) -> Any:
    return F.unfold(g, kernel=kernel, stride=stride, padding=padding, dilation=dilation, fill=0.0)


def _unfold_sample(rng: np.random.Generator) -> list[Any]:
    x = rng.standard_normal((2, 5, 6))
    return [
        ((x,), {"kernel": (2, 3), "stride": (1, 2), "padding": (1, 0)}),
        ((x,), {"kernel": (3,), "stride": (2,), "padding": 1, "dilation": 2, "fill": 1.5}),
    ]


def _fold_sample(rng: np.random.Generator) -> list[Any]:
    static = {"kernel": (2, 2), "stride": (2, 1), "padding": (1, 0), "sizes": (4, 3)}
    return [((rng.standard_normal((4, 2, 3, 2)),), static)]


register(Op("unfold", unfold, {"x": _unfold_x}, sample=_unfold_sample))
register(Op("fold", fold, {"x": _fold_x}, accumulates=True, sample=_fold_sample))
