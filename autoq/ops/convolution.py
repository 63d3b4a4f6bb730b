"""Convolutions over one and two axes, each one op."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.errors import ShapeError
from autoq.ops.arguments import whole
from autoq.ops.axes import Shape
from autoq.ops.convolution_form import convolve
from autoq.ops.windows import Padding, Sizes, per_axis, windows
from autoq.tape.op import Op, register


def conv1d(
    x: Any, weight: Any, bias: Any = None, *, stride: Sizes = 1, padding: Padding = 0, dilation: Sizes = 1,
    groups: int = 1, kernel_size: Sizes | None = None,
) -> Any:  # fmt: skip
    """The sum of each window along the last axis times each filter (a cross-correlation), plus `bias`.

    Args:
        x: (n, c, length).
        weight: (m, c / groups, k); with `kernel_size` also as a matrix (m, c / groups * k), whose blocks run
            along the values that are added up.
        bias: (m,), or None.
        stride: Distance between windows.
        padding: Zeros on either side, a pair (before, after) in a tuple, ``"same"`` or ``"valid"``.
        dilation: Distance between the values of a window.
        groups: How many parts of the channels are convolved separately.
        kernel_size: The k of a weight that is a matrix.

    Returns:
        (n, m, windows).

    Raises:
        ShapeError: Shapes other than these, or a kernel larger than the padded input.
        ArgumentError: A stride, dilation or number of groups below 1, or an unknown padding.

    Example:
        >>> import autoq as aq
        >>> aq.conv1d([[[1.0, 2.0, 3.0]]], [[[1.0, -1.0]]])
        tensor([[[-1. -1.]]], float32)
    """
    return _conv("conv1d", 1, x, weight, bias, stride, padding, dilation, groups, kernel_size)


def conv2d(
    x: Any, weight: Any, bias: Any = None, *, stride: Sizes = 1, padding: Padding = 0, dilation: Sizes = 1,
    groups: int = 1, kernel_size: Sizes | None = None,
) -> Any:  # fmt: skip
    """The sum of each window over the last two axes times each filter (a cross-correlation), plus `bias`.

    Args:
        x: (n, c, height, width).
        weight: (m, c / groups, kh, kw); with `kernel_size` also as a matrix (m, c / groups * kh * kw), whose
            blocks run along the values that are added up.
        bias: (m,), or None.
        stride: Distance between windows, a number or one an axis; so are padding and dilation.
        padding: Zeros on either side of each axis, pairs (before, after), ``"same"`` or ``"valid"``.
        dilation: Distance between the values of a window.
        groups: How many parts of the channels are convolved separately.
        kernel_size: (kh, kw) of a weight that is a matrix.

    Returns:
        (n, m, windows down, windows across).

    Raises:
        ShapeError: Shapes other than these, or a kernel larger than the padded input.
        ArgumentError: A stride, dilation or number of groups below 1, or an unknown padding.

    Example:
        >>> import autoq as aq
        >>> aq.conv2d([[[[1.0, 2.0], [3.0, 4.0]]]], [[[[1.0, 1.0]]]], [0.5])
        tensor([[[[3.5]
                  [7.5]]]], float32)
    """
    return _conv("conv2d", 2, x, weight, bias, stride, padding, dilation, groups, kernel_size)


def _conv(
    name: str, rank: int, x: Any, weight: Any, bias: Any, stride: Sizes, padding: Padding, dilation: Sizes,
    groups: int, kernel_size: Sizes | None,
) -> Any:  # fmt: skip
    full = filter_shape(name, rank, x.shape, weight.shape, groups, kernel_size)
    if x.shape[1] != full[1] * groups or full[0] % groups:
        raise ShapeError(
            f"{name}: x is {x.shape}, weight is {weight.shape}, groups={groups}.",
            "x (n, c, ...) and weight (m, c / groups, ...), m divisible by groups.",
            "Check the order of the weight's axes: one row an output channel.",
        )
    at = windows(name, x.shape[2:], full[2:], stride, padding, dilation)
    check_bias(name, bias, full[0])
    y = convolve(
        x, weight.reshape(full), stride=at.stride, padding=at.padding, dilation=at.dilation, groups=groups
    )
    return y if bias is None else add_bias(y, bias)


def filter_shape(
    name: str, rank: int, x_shape: Shape, shape: Shape, groups: Any, kernel_size: Sizes | None
) -> Shape:
    """The weight's shape as filters, of one that may be a matrix; ranks and groups checked."""
    whole(name, "groups", groups, least=1)
    if kernel_size is not None and len(shape) == 2:
        kernel = per_axis(name, "kernel_size", kernel_size, rank, 1)
        if shape[1] % math.prod(kernel) == 0:
            shape = (shape[0], shape[1] // math.prod(kernel), *kernel)
    if len(x_shape) != rank + 2 or len(shape) != rank + 2:
        spelled = "(n, c, length)" if rank == 1 else "(n, c, height, width)"
        raise ShapeError(
            f"{name}: x is {x_shape}, weight is {shape}.",
            f"x {spelled} and a weight of {rank + 2} axes, or a matrix with kernel_size=.",
            "Insert the axis of the batch with x[None].",
        )
    return shape


def check_bias(name: str, bias: Any, channels: int) -> None:
    """Raise ShapeError unless a bias, if there is one, has one value an output channel."""
    if bias is not None and bias.shape != (channels,):
        raise ShapeError(
            f"{name}: bias is {bias.shape}, for {channels} output channels.",
            f"({channels},).",
            "Give one value an output channel.",
        )


def add_bias(y: Any, bias: Any) -> Any:
    """``y: (n, m, ...)`` with ``bias: (m,)`` added in place."""
    y += bias.reshape(-1, *(1,) * (y.ndim - 2))
    return y


def _linear_form(
    x_shape: Shape, weight_shape: Shape, stride: Sizes, padding: Padding, dilation: Sizes, groups: int,
    kernel_size: Sizes | None,
) -> tuple[Shape, dict[str, Any]]:  # fmt: skip
    """What the rules of a convolution hand on: the filters' shape, and static arguments an axis each."""
    full = filter_shape("conv", len(x_shape) - 2, x_shape, weight_shape, groups, kernel_size)
    at = windows("conv", x_shape[2:], full[2:], stride, padding, dilation)
    return full, {"stride": at.stride, "padding": at.padding, "dilation": at.dilation, "groups": groups}


def _conv_x(
    F: Any, g: Any, weight: Any, x_shape: Shape, weight_shape: Shape, stride: Sizes, padding: Padding,
    dilation: Sizes, groups: int, kernel_size: Sizes | None,
) -> Any:  # fmt: skip
    full, form = _linear_form(x_shape, weight_shape, stride, padding, dilation, groups, kernel_size)
    return F.convolve_input(g, F.reshape(weight, shape=full), sizes=x_shape[2:], **form)


def _conv_weight(
    F: Any, g: Any, x: Any, x_shape: Shape, weight_shape: Shape, stride: Sizes, padding: Padding,
    dilation: Sizes, groups: int, kernel_size: Sizes | None,
) -> Any:  # fmt: skip
    full, form = _linear_form(x_shape, weight_shape, stride, padding, dilation, groups, kernel_size)
    return F.reshape(F.convolve_weight(x, g, kernel=full[2:], **form), shape=weight_shape)


def conv_bias(F: Any, g: Any, x_shape: Shape) -> Any:
    """The rule of a bias that has one value a channel, on axis 1."""
    return F.sum(g, axis=(0, *range(2, len(x_shape))), keepdims=False)


def _conv_sample(rank: int) -> Any:
    def sample(rng: np.random.Generator) -> list[Any]:
        sizes, kernel = (7, 6)[:rank], (3, 2)[:rank]
        x, weight = rng.standard_normal((2, 4, *sizes)), rng.standard_normal((4, 2, *kernel))
        bias, shared = rng.standard_normal(4), {"groups": 2}
        return [
            ((x, weight, bias), {**shared, "stride": 2, "padding": 1}),
            ((x, weight, None), {**shared, "padding": "same", "dilation": 2}),
            ((x, weight, bias), {**shared, "stride": (2, 3)[:rank], "padding": ((1, 0),) * rank}),
            ((x[:, :2], weight.reshape(4, -1), bias), {"kernel_size": kernel}),
        ]

    return sample


for _rank, _function in ((1, conv1d), (2, conv2d)):
    register(
        Op(
            _function.__name__,
            _function,
            {"x": _conv_x, "weight": _conv_weight, "bias": conv_bias},
            accumulates=True,
            sample=_conv_sample(_rank),
        )
    )
