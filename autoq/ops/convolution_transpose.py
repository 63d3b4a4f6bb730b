"""Transposed convolutions: filters added up, weighted by the input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.errors import ArgumentError, ShapeError
from autoq.ops.axes import Shape
from autoq.ops.convolution import add_bias, check_bias, conv_bias, filter_shape
from autoq.ops.convolution_form import convolve_input
from autoq.ops.windows import Padding, Sizes, padding_pairs, per_axis
from autoq.tape.op import Op, register


def conv_transpose1d(
    x: Any, weight: Any, bias: Any = None, *, stride: Sizes = 1, padding: Padding = 0,
    output_padding: Sizes = 0, dilation: Sizes = 1, groups: int = 1, kernel_size: Sizes | None = None,
) -> Any:  # fmt: skip
    """Filters laid `stride` apart along the last axis, weighted by `x` and added up, plus `bias`.

    With the same arguments it is the adjoint of `conv1d` by its input.

    Args:
        x: (n, c, length).
        weight: (c, m / groups, k); with `kernel_size` also as a matrix (c, m / groups * k).
        bias: (m,), or None.
        stride: Distance between filters.
        padding: How many values are cut from either end, or a pair (before, after) in a tuple.
        output_padding: Values more at the end, less than the stride.
        dilation: Distance between the values of a filter.
        groups: How many parts of the channels are treated separately.
        kernel_size: The k of a weight that is a matrix.

    Returns:
        (n, m, (length - 1) * stride + dilation * (k - 1) + 1 + output_padding - padding on both sides).

    Raises:
        ShapeError: Shapes other than these, or more padding than there are values.
        ArgumentError: A stride, dilation or number of groups below 1, or too large an output_padding.

    Example:
        >>> import autoq as aq
        >>> aq.conv_transpose1d([[[1.0, 2.0]]], [[[1.0, 10.0]]])
        tensor([[[ 1. 12. 20.]]], float32)
    """
    return _transposed(
        "conv_transpose1d", 1, x, weight, bias, stride, padding, output_padding, dilation, groups, kernel_size
    )


def conv_transpose2d(
    x: Any, weight: Any, bias: Any = None, *, stride: Sizes = 1, padding: Padding = 0,
    output_padding: Sizes = 0, dilation: Sizes = 1, groups: int = 1, kernel_size: Sizes | None = None,
) -> Any:  # fmt: skip
    """Filters laid `stride` apart over the last two axes, weighted by `x` and added up, plus `bias`.

    With the same arguments it is the adjoint of `conv2d` by its input.

    Args:
        x: (n, c, height, width).
        weight: (c, m / groups, kh, kw); with `kernel_size` also as a matrix (c, m / groups * kh * kw).
        bias: (m,), or None.
        stride: Distance between filters, a number or one an axis; so are the other extents.
        padding: How many values are cut from either end of each axis, or pairs (before, after).
        output_padding: Values more at the end of each axis, less than the stride.
        dilation: Distance between the values of a filter.
        groups: How many parts of the channels are treated separately.
        kernel_size: (kh, kw) of a weight that is a matrix.

    Returns:
        (n, m, height, width), the input that `conv2d` would make `x` of; an extent is
        (n - 1) * stride + dilation * (k - 1) + 1 + output_padding - padding on both sides.

    Raises:
        ShapeError: Shapes other than these, or more padding than there are values.
        ArgumentError: A stride, dilation or number of groups below 1, or too large an output_padding.

    Example:
        >>> import autoq as aq
        >>> aq.conv_transpose2d([[[[1.0, 2.0]]]], [[[[1.0], [3.0]]]])
        tensor([[[[1. 2.]
                  [3. 6.]]]], float32)
    """
    return _transposed(
        "conv_transpose2d", 2, x, weight, bias, stride, padding, output_padding, dilation, groups, kernel_size
    )


def _transposed(
    name: str, rank: int, x: Any, weight: Any, bias: Any, stride: Sizes, padding: Padding,
    output_padding: Sizes, dilation: Sizes, groups: int, kernel_size: Sizes | None,
) -> Any:  # fmt: skip
    full = filter_shape(name, rank, x.shape, weight.shape, groups, kernel_size)
    if x.shape[1] != full[0] or full[0] % groups:
        raise ShapeError(
            f"{name}: x is {x.shape}, weight is {weight.shape}, groups={groups}.",
            "x (n, c, ...) and weight (c, m / groups, ...), c divisible by groups.",
            "Check the order of the weight's axes: one row an input channel.",
        )
    form = _form(name, full, stride, padding, dilation, groups)
    sizes = _sizes(name, x.shape[2:], full[2:], form, output_padding)
    check_bias(name, bias, full[1] * groups)
    y = convolve_input(x, weight.reshape(full), sizes=sizes, **form)
    return y if bias is None else add_bias(y, bias)


def _form(
    name: str, full: Shape, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> dict[str, Any]:
    """The static arguments of the convolution that this is the transpose of, one entry an axis."""
    rank = len(full) - 2
    stride, dilation = (
        per_axis(name, "stride", stride, rank, 1),
        per_axis(name, "dilation", dilation, rank, 1),
    )
    if isinstance(padding, str) and padding != "valid":
        raise ArgumentError(
            f"{name}: padding={padding!r}.", '"valid" or integers.', "Give the number of values to cut."
        )
    pads = padding_pairs(name, padding, full[2:], stride)
    return {"stride": stride, "padding": pads, "dilation": dilation, "groups": groups}


def _sizes(name: str, out: Shape, kernel: Shape, form: dict[str, Any], output_padding: Sizes) -> Shape:
    """Trailing extents of the result."""
    extra = per_axis(name, "output_padding", output_padding, len(out), 0)
    if any(e >= s for e, s in zip(extra, form["stride"], strict=True)):
        raise ArgumentError(
            f"{name}: output_padding {extra} with stride {form['stride']}.",
            "less than the stride.",
            "Pad the result, or use a larger stride.",
        )
    steps = zip(out, kernel, form["stride"], form["dilation"], form["padding"], extra, strict=True)
    sizes = tuple((o - 1) * s + d * (k - 1) + 1 + e - low - high for o, k, s, d, (low, high), e in steps)
    if min((*sizes, *out)) < 1:
        raise ShapeError(
            f"{name}: {out} positions give {sizes} values.",
            "at least one value an axis.",
            "Use less padding, or a larger input.",
        )
    return sizes


def _transposed_x(
    F: Any, g: Any, weight: Any, x_shape: Shape, weight_shape: Shape, stride: Sizes, padding: Padding,
    dilation: Sizes, groups: int, kernel_size: Sizes | None,
) -> Any:  # fmt: skip
    full = filter_shape("conv_transpose", len(x_shape) - 2, x_shape, weight_shape, groups, kernel_size)
    form = _form("conv_transpose", full, stride, padding, dilation, groups)
    return F.convolve(g, F.reshape(weight, shape=full), **form)


def _transposed_weight(
    F: Any, g: Any, x: Any, x_shape: Shape, weight_shape: Shape, stride: Sizes, padding: Padding,
    dilation: Sizes, groups: int, kernel_size: Sizes | None,
) -> Any:  # fmt: skip
    full = filter_shape("conv_transpose", len(x_shape) - 2, x_shape, weight_shape, groups, kernel_size)
    form = _form("conv_transpose", full, stride, padding, dilation, groups)
    return F.reshape(F.convolve_weight(g, x, kernel=full[2:], **form), shape=weight_shape)


def _sample(rank: int) -> Any:
    def sample(rng: np.random.Generator) -> list[Any]:
        sizes, kernel = (3, 2)[:rank], (2, 3)[:rank]
        x, weight = rng.standard_normal((2, 4, *sizes)), rng.standard_normal((4, 2, *kernel))
        bias = rng.standard_normal(4)
        return [
            ((x, weight, bias), {"groups": 2, "stride": 2, "padding": (1, 0)[:rank], "output_padding": 1}),
            ((x, weight, None), {"groups": 2, "dilation": 2}),
            ((x, weight.reshape(4, 2 * math.prod(kernel)), bias[:2]), {"kernel_size": kernel}),
        ]

    return sample


for _rank, _function in ((1, conv_transpose1d), (2, conv_transpose2d)):
    register(
        Op(
            _function.__name__,
            _function,
            {"x": _transposed_x, "weight": _transposed_weight, "bias": conv_bias},
            accumulates=True,
            sample=_sample(_rank),
        )
    )
