"""Means over as many bins an axis as are asked for, whatever its length."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.devices import array_namespace
from autoq.errors import ShapeError
from autoq.ops.axes import Shape, along
from autoq.ops.samples import moved
from autoq.ops.windows import Sizes, per_axis
from autoq.storage.inputs import contiguous
from autoq.tape.op import Op, register


def adaptive_avg_pool1d(x: Any, *, output_size: Sizes) -> Any:
    """The means of `output_size` bins along the last axis, from floor(i n / m) up to ceil((i + 1) n / m).

    Args:
        x: (..., n).
        output_size: The number of bins m; bins overlap where it does not divide n.

    Returns:
        (..., m).

    Raises:
        ShapeError: No axis, or no values along it.
        ArgumentError: Less than one bin.

    Example:
        >>> import autoq as aq
        >>> aq.adaptive_avg_pool1d([1.0, 2.0, 3.0, 4.0], 2)
        tensor([1.5 3.5], float32)
    """
    _check("adaptive_avg_pool1d", x.shape, 1)
    return bin_means(x, sizes=per_axis("adaptive_avg_pool1d", "output_size", output_size, 1, 1))


def adaptive_avg_pool2d(x: Any, *, output_size: Sizes) -> Any:
    """The means of bins over the last two axes, along each as `adaptive_avg_pool1d` cuts them.

    Args:
        x: (..., height, width).
        output_size: The number of bins, one for both axes or one an axis.

    Returns:
        ``(..., *output_size)``.

    Raises:
        ShapeError: Less than two axes, or no values along one.
        ArgumentError: Less than one bin.

    Example:
        >>> import autoq as aq
        >>> aq.adaptive_avg_pool2d([[1.0, 4.0], [3.0, 2.0]], 1)
        tensor([[2.5]], float32)
    """
    _check("adaptive_avg_pool2d", x.shape, 2)
    return bin_means(x, sizes=per_axis("adaptive_avg_pool2d", "output_size", output_size, 2, 1))


def bin_means(x: Any, *, sizes: Shape) -> Any:
    """The means of that many bins along each of the last axes.

    Args:
        x: (..., *extents).
        sizes: The number of bins of each of the last axes.

    Returns:
        (..., *sizes).
    """
    for axis, count in zip(range(-len(sizes), 0), sizes, strict=True):
        x = np.moveaxis(x, axis, 0)
        bins = [along(np.add.reduce, x[a:b], axis=0) / (b - a) for a, b in _bins(x.shape[0], count)]
        x = np.moveaxis(np.stack(bins), 0, axis)
    return contiguous(x)


def bin_spread(x: Any, *, sizes: Shape) -> Any:
    """Each value shared evenly by its bin: the transpose of `bin_means`.

    Args:
        x: (..., *bins).
        sizes: Extents of the last axes of the result.

    Returns:
        (..., *sizes).
    """
    for axis, extent in zip(range(-len(sizes), 0), sizes, strict=True):
        x = np.moveaxis(x, axis, 0)
        out = array_namespace(x).zeros((extent, *x.shape[1:]), x.dtype)
        for value, (a, b) in zip(x, _bins(extent, x.shape[0]), strict=True):
            out[a:b] += value / (b - a)
        x = np.moveaxis(out, 0, axis)
    return contiguous(x)


def _bins(extent: int, count: int) -> list[tuple[int, int]]:
    """Where the bins begin and end."""
    return [(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]


def _check(name: str, shape: Shape, rank: int) -> None:
    if len(shape) < rank or 0 in shape[len(shape) - rank :]:
        raise ShapeError(
            f"{name}: x is {shape}.",
            f"at least {rank} axes, with values along the last.",
            "Insert axes of length 1, or skip empty arrays.",
        )


def _rule(rank: int) -> Any:
    return lambda F, g, x_shape: F.bin_spread(g, sizes=x_shape[len(x_shape) - rank :])


register(
    Op(
        "bin_means",
        bin_means,
        {"x": lambda F, g, x_shape, sizes: F.bin_spread(g, sizes=x_shape[-len(sizes) :])},
        accumulates=True,
        sample=moved((2, 5, 4), {"sizes": (2, 3)}, {"sizes": (4,)}),
    )
)
register(
    Op(
        "bin_spread",
        bin_spread,
        {"x": lambda F, g, x_shape, sizes: F.bin_means(g, sizes=x_shape[-len(sizes) :])},
        accumulates=True,
        sample=moved((2, 3, 2), {"sizes": (5, 4)}, {"sizes": (3,)}),
    )
)
register(
    Op(
        "adaptive_avg_pool1d",
        adaptive_avg_pool1d,
        {"x": _rule(1)},
        accumulates=True,
        sample=moved((2, 5), {"output_size": 2}, {"output_size": (3,)}, {"output_size": 7}),
    )
)
register(
    Op(
        "adaptive_avg_pool2d",
        adaptive_avg_pool2d,
        {"x": _rule(2)},
        accumulates=True,
        sample=moved((2, 5, 4), {"output_size": 1}, {"output_size": (3, 2)}),
    )
)
