"""Pooling over windows of the last one or two axes: the largest value, and the mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.devices import beside, on_gpu
from autoq.errors import ArgumentError, ShapeError
from autoq.ops.axes import Shape
from autoq.ops.samples import distinct, moved
from autoq.ops.windows import Padding, Sizes, Windows, padded, slices, windows
from autoq.tape.beside import held
from autoq.tape.namespace import RAW_ON_DEVICE
from autoq.tape.op import Op, register


def max_pool1d(x: Any, *, kernel_size: Sizes, stride: Sizes | None = None, padding: Padding = 0) -> Any:
    """The largest value of each window along the last axis; equal ones share the gradient.

    Args:
        x: (..., length).
        kernel_size: Values in a window.
        stride: Distance between windows; None puts them side by side.
        padding: Places on either side that never win, at most half a kernel.

    Returns:
        (..., windows).

    Raises:
        ShapeError: A kernel larger than the padded input.
        ArgumentError: A kernel or stride below 1, or too much padding.

    Example:
        >>> import autoq as aq
        >>> aq.max_pool1d([1.0, 4.0, 3.0, 2.0], 2)
        tensor([4. 3.], float32)
    """
    return _max_pool("max_pool1d", 1, x, kernel_size, stride, padding)


def max_pool2d(x: Any, *, kernel_size: Sizes, stride: Sizes | None = None, padding: Padding = 0) -> Any:
    """The largest value of each window over the last two axes; equal ones share the gradient.

    Args:
        x: (..., height, width).
        kernel_size: Extents of a window, a number or one an axis; so are stride and padding.
        stride: Distance between windows; None puts them side by side.
        padding: Places on either side that never win, at most half a kernel.

    Returns:
        (..., windows down, windows across).

    Raises:
        ShapeError: A kernel larger than the padded input.
        ArgumentError: A kernel or stride below 1, or too much padding.

    Example:
        >>> import autoq as aq
        >>> aq.max_pool2d([[1.0, 4.0], [3.0, 2.0]], 2)
        tensor([[4.]], float32)
    """
    return _max_pool("max_pool2d", 2, x, kernel_size, stride, padding)


def avg_pool1d(
    x: Any,
    *,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Padding = 0,
    count_padding: bool = True,
) -> Any:
    """The mean of each window along the last axis.

    Args:
        x: (..., length).
        kernel_size: Values in a window.
        stride: Distance between windows; None puts them side by side.
        padding: Zeros on either side, at most half a kernel.
        count_padding: Whether the zeros count as values of the mean.

    Returns:
        (..., windows).

    Raises:
        ShapeError: A kernel larger than the padded input.
        ArgumentError: A kernel or stride below 1, or too much padding.

    Example:
        >>> import autoq as aq
        >>> aq.avg_pool1d([1.0, 3.0, 3.0, 2.0], 2)
        tensor([2.  2.5], float32)
    """
    return _avg_pool("avg_pool1d", 1, x, kernel_size, stride, padding, count_padding)


def avg_pool2d(
    x: Any,
    *,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Padding = 0,
    count_padding: bool = True,
) -> Any:
    """The mean of each window over the last two axes.

    Args:
        x: (..., height, width).
        kernel_size: Extents of a window, a number or one an axis; so are stride and padding.
        stride: Distance between windows; None puts them side by side.
        padding: Zeros on either side, at most half a kernel.
        count_padding: Whether the zeros count as values of the mean.

    Returns:
        (..., windows down, windows across).

    Raises:
        ShapeError: A kernel larger than the padded input.
        ArgumentError: A kernel or stride below 1, or too much padding.

    Example:
        >>> import autoq as aq
        >>> aq.avg_pool2d([[1.0, 4.0], [3.0, 2.0]], 2)
        tensor([[2.5]], float32)
    """
    return _avg_pool("avg_pool2d", 2, x, kernel_size, stride, padding, count_padding)


def _max_pool(name: str, rank: int, x: Any, kernel: Sizes, stride: Sizes | None, padding: Padding) -> Any:
    at = _windows(name, x.shape, rank, kernel, stride, padding)
    full = padded(x, at, -math.inf)
    places = [index for _, index in slices(at)]
    out = full[places[0]].copy(order="C")
    for index in places[1:]:
        if on_gpu(out):
            out = RAW_ON_DEVICE.maximum(out, full[index])
        else:
            np.maximum(out, full[index], out=out)
    return out


def _avg_pool(
    name: str, rank: int, x: Any, kernel: Sizes, stride: Sizes | None, padding: Padding, count_padding: bool
) -> Any:
    at = _windows(name, x.shape, rank, kernel, stride, padding)
    full = padded(x, at)
    places = [index for _, index in slices(at)]
    out = full[places[0]].copy(order="C")
    for index in places[1:]:
        if on_gpu(out):
            out = RAW_ON_DEVICE.add(out, full[index])
        else:
            out += full[index]
    out /= _counts(at, count_padding, x.dtype, x)
    return out


def _windows(
    name: str, shape: Shape, rank: int, kernel: Sizes, stride: Sizes | None, padding: Padding
) -> Windows:
    """The windows over the last axes; none of them holds padding alone."""
    if len(shape) < rank:
        raise ShapeError(f"{name}: x is {shape}.", f"at least {rank} axes.", "Insert axes of length 1.")
    sizes = shape[len(shape) - rank :]
    at = windows(name, sizes, kernel, kernel if stride is None else stride, padding)
    if any(2 * max(pair) > k for pair, k in zip(at.padding, at.kernel, strict=True)):
        raise ArgumentError(
            f"{name}: padding {at.padding} with a kernel of {at.kernel}.",
            "at most half the kernel.",
            "Use a larger kernel, or pad the input itself.",
        )
    return at


def _counts(at: Windows, count_padding: bool, dtype: Any, other: Any) -> Any:
    """How many values each window's mean is of: a number, or (*out) on the device of another array."""
    if count_padding or not any(low or high for low, high in at.padding):
        return float(math.prod(at.kernel))
    total = np.zeros(at.out, dtype)
    ones = padded(np.ones(at.sizes, dtype), at)
    for _, index in slices(at):
        total += ones[index]
    return beside(total, other)


def _form(x_shape: Shape, rank: int, kernel: Sizes, stride: Sizes | None, padding: Padding) -> Any:
    """The windows, and the static arguments of `unfold` and `fold`."""
    at = _windows("pool", x_shape, rank, kernel, stride, padding)
    return at, {"kernel": at.kernel, "stride": at.stride, "padding": at.padding}


def _max_rule(rank: int) -> Any:
    def rule(
        F: Any, g: Any, x: Any, x_shape: Shape, kernel_size: Sizes, stride: Sizes | None, padding: Padding
    ) -> Any:
        at, form = _form(x_shape, rank, kernel_size, stride, padding)
        share = F.extremum_share(F.unfold(x, fill=-math.inf, **form), axis=0, largest=True)
        return F.fold(share * F.expand_dims(g, axis=0), sizes=at.sizes, **form)

    return rule


def _avg_rule(rank: int) -> Any:
    def rule(
        F: Any, g: Any, x_shape: Shape, kernel_size: Sizes, stride: Sizes | None, padding: Padding,
        count_padding: bool,
    ) -> Any:  # fmt: skip
        at, form = _form(x_shape, rank, kernel_size, stride, padding)
        g = F.expand_dims(g / _counts(at, count_padding, g.dtype, held(g)), axis=0)
        spread = F.broadcast_to(g, shape=(math.prod(at.kernel), *x_shape[: len(x_shape) - rank], *at.out))
        return F.fold(spread, sizes=at.sizes, **form)

    return rule


def _max_sample(rank: int) -> Any:
    def sample(rng: np.random.Generator) -> list[Any]:
        statics: tuple[dict[str, Any], ...] = (
            {"kernel_size": 2},
            {"kernel_size": (3, 2)[:rank], "stride": 1, "padding": 1},
        )
        return [((distinct(rng, (2, 3, 5, 4)),), static) for static in statics]

    return sample


for _rank, _largest, _mean in ((1, max_pool1d, avg_pool1d), (2, max_pool2d, avg_pool2d)):
    _statics: tuple[dict[str, Any], ...] = (
        {"kernel_size": 2, "stride": 3},
        {"kernel_size": (3, 2)[:_rank], "stride": 1, "padding": 1},
        {"kernel_size": 2, "padding": 1, "count_padding": False},
    )
    register(Op(_largest.__name__, _largest, {"x": _max_rule(_rank)}, sample=_max_sample(_rank)))
    register(
        Op(
            _mean.__name__,
            _mean,
            {"x": _avg_rule(_rank)},
            accumulates=True,
            sample=moved((2, 3, 5, 4), *_statics),
        )
    )
