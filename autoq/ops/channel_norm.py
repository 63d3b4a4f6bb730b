"""Normalization of channels, which lie on axis 1: over the batch, and over groups of channels (S47)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.errors import ShapeError
from autoq.ops.arguments import number, whole
from autoq.ops.axes import Shape, along
from autoq.ops.normalization import layer_norm_x, normalized
from autoq.ops.samples import Case
from autoq.tape.op import Op, register


def batch_norm(
    x: Any, mean: Any = None, variance: Any = None, weight: Any = None, bias: Any = None, *, eps: float = 1e-5
) -> Any:
    """(x - mean) / sqrt(variance + eps) of each channel, times `weight`, plus `bias`.

    Source: Ioffe and Szegedy, "Batch Normalization", 2015.

    Args:
        x: (n, c, ...).
        mean: (c,), as kept for inference; None for that of `x` over all its axes but the channels.
        variance: (c,); given together with `mean`, or None for that of `x`, which divides by the count.
        weight: (c,); None for 1.
        bias: (c,); None for 0.
        eps: Added to the variance.

    Raises:
        ShapeError: Less than two axes, a statistic without the other, or not one value a channel.

    Example:
        >>> import autoq as aq
        >>> aq.batch_norm([[1.0, 5.0], [3.0, 9.0]], eps=0.0)
        tensor([[-1. -1.]
                [ 1.  1.]], float32)
    """
    _check_channels("batch_norm", x.shape, mean=mean, variance=variance, weight=weight, bias=bias)
    if (mean is None) != (variance is None):
        raise ShapeError(
            f"batch_norm: mean is {np.shape(mean)}, variance is {np.shape(variance)}.",
            "both (c,), or both None.",
            "Pass both statistics, or neither.",
        )
    if mean is None:
        axes = _others(x.shape)
        count = math.prod(x.shape[a] for a in axes) or 1
        centred = x - along(np.add.reduce, x, axis=axes, keepdims=True) / count
        spread = along(np.add.reduce, centred * centred, axis=axes, keepdims=True) / count
    else:
        centred, spread = x - _columns(mean, x.ndim), _columns(variance, x.ndim)
    return _affine(centred / np.sqrt(spread + number("batch_norm", "eps", eps)), weight, bias)


def group_norm(x: Any, weight: Any = None, bias: Any = None, *, groups: int, eps: float = 1e-5) -> Any:
    """Each sample's groups of channels with mean 0 and variance 1, times `weight`, plus `bias`.

    Source: Wu and He, "Group Normalization", 2018.

    Args:
        x: (n, c, ...).
        weight: (c,); None for 1.
        bias: (c,); None for 0.
        groups: How many groups; it divides c.
        eps: Added to the variance.

    Raises:
        ShapeError: Less than two axes, not one value a channel, or channels that aren't whole groups.
        ArgumentError: Less than one group.

    Example:
        >>> import autoq as aq
        >>> aq.group_norm([[1.0, 3.0, 10.0, 14.0]], groups=2, eps=0.0)
        tensor([[-1.  1. -1.  1.]], float32)
    """
    _check_channels("group_norm", x.shape, weight=weight, bias=bias)
    rows = x.reshape(_grouped(x.shape, groups))
    count = rows.shape[-1] or 1
    y = rows - along(np.add.reduce, rows, axis=-1, keepdims=True) / count
    variance = along(np.add.reduce, y * y, axis=-1, keepdims=True) / count
    y = y / np.sqrt(variance + number("group_norm", "eps", eps))
    return _affine(y.reshape(x.shape), weight, bias)


def instance_norm(x: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
    """Each channel of each sample with mean 0 and variance 1, times `weight`, plus `bias`.

    Source: Ulyanov et al., "Instance Normalization", 2016.

    Args:
        x: (n, c, ...).
        weight: (c,); None for 1.
        bias: (c,); None for 0.
        eps: Added to the variance.

    Raises:
        ShapeError: Less than two axes, or not one value a channel.

    Example:
        >>> import autoq as aq
        >>> aq.instance_norm([[[1.0, 3.0], [10.0, 14.0]]], eps=0.0)
        tensor([[[-1.  1.]
                 [-1.  1.]]], float32)
    """
    _check_channels("instance_norm", x.shape, weight=weight, bias=bias)
    return group_norm(x, weight, bias, groups=x.shape[1] or 1, eps=eps)


def _check_channels(name: str, shape: Shape, **given: Any) -> None:
    if len(shape) < 2:
        raise ShapeError(
            f"{name}: x is {shape}.", "(n, c, ...).", "Insert the axis of the batch with x[None]."
        )
    for what, value in given.items():
        if value is not None and np.shape(value) != shape[1:2]:
            raise ShapeError(
                f"{name}: {what} is {np.shape(value)}, x is {shape}.",
                f"{shape[1:2]}, one value a channel.",
                "Put the channels on axis 1.",
            )


def _grouped(shape: Shape, groups: int) -> Shape:
    whole("group_norm", "groups", groups, least=1)
    if shape[1] % groups:
        raise ShapeError(
            f"group_norm: {shape[1]} channels in {groups} groups.", "whole groups.", "Choose a divisor."
        )
    return (shape[0], groups, shape[1] // groups * math.prod(shape[2:]))


def _others(shape: Shape) -> Shape:
    """All axes but the channels."""
    return (0, *range(2, len(shape)))


def _columns(value: Any, ndim: int) -> Any:
    """(c,) as an array that broadcasts along axis 1."""
    return value.reshape(-1, *(1,) * (ndim - 2))


def _affine(y: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        y *= _columns(weight, y.ndim)
    if bias is not None:
        y += _columns(bias, y.ndim)
    return y


def _along(F: Any, value: Any, shape: Shape) -> Any:
    """`_columns` for rules."""
    return F.reshape(value, shape=(shape[1], *(1,) * (len(shape) - 2)))


def _over(F: Any, g: Any, shape: Shape) -> Any:
    """The sum of each channel."""
    return F.sum(g, axis=_others(shape), keepdims=False)


def _weighted(F: Any, g: Any, weight: Any, shape: Shape) -> Any:
    return g if weight is None else g * _along(F, weight, shape)


def _batch_y(F: Any, x: Any, mean: Any, variance: Any, x_shape: Shape, eps: float) -> tuple[Any, Any]:
    """The normalized x, and one over its standard deviation."""
    if mean is None:
        return normalized(F, x, _others(x_shape), eps)
    inverse = F.rsqrt(_along(F, variance, x_shape) + float(eps))
    return (x - _along(F, mean, x_shape)) * inverse, inverse


def _batch_x(
    F: Any, g: Any, x: Any, mean: Any, variance: Any, weight: Any, x_shape: Shape, eps: float
) -> Any:
    g = _weighted(F, g, weight, x_shape)
    if mean is None:
        return layer_norm_x(F, g, x, None, _others(x_shape), eps)
    return g * F.rsqrt(_along(F, variance, x_shape) + float(eps))


def _batch_mean(F: Any, g: Any, variance: Any, weight: Any, x_shape: Shape, eps: float) -> Any:
    g = _weighted(F, g, weight, x_shape)
    return -_over(F, g, x_shape) * F.rsqrt(variance + float(eps))


def _batch_variance(
    F: Any, g: Any, x: Any, mean: Any, variance: Any, weight: Any, x_shape: Shape, eps: float
) -> Any:
    y, _ = _batch_y(F, x, mean, variance, x_shape, eps)
    g = _weighted(F, g, weight, x_shape)
    return _over(F, g * y, x_shape) * -0.5 / (variance + float(eps))


def _batch_weight(F: Any, g: Any, x: Any, mean: Any, variance: Any, x_shape: Shape, eps: float) -> Any:
    return _over(F, g * _batch_y(F, x, mean, variance, x_shape, eps)[0], x_shape)


def _channel_bias(F: Any, g: Any, x_shape: Shape) -> Any:
    return _over(F, g, x_shape)


def _group_x(F: Any, g: Any, x: Any, weight: Any, x_shape: Shape, groups: int, eps: float) -> Any:
    rows = _grouped(x_shape, groups)
    g = F.reshape(_weighted(F, g, weight, x_shape), shape=rows)
    return F.reshape(layer_norm_x(F, g, F.reshape(x, shape=rows), None, -1, eps), shape=x_shape)


def _group_weight(F: Any, g: Any, x: Any, x_shape: Shape, groups: int, eps: float) -> Any:
    y, _ = normalized(F, F.reshape(x, shape=_grouped(x_shape, groups)), -1, eps)
    return _over(F, g * F.reshape(y, shape=x_shape), x_shape)


def _instance_x(F: Any, g: Any, x: Any, weight: Any, x_shape: Shape, eps: float) -> Any:
    return _group_x(F, g, x, weight, x_shape, x_shape[1] or 1, eps)


def _instance_weight(F: Any, g: Any, x: Any, x_shape: Shape, eps: float) -> Any:
    return _group_weight(F, g, x, x_shape, x_shape[1] or 1, eps)


def _batch_sample(rng: np.random.Generator) -> list[Case]:
    x, (mean, weight, bias) = rng.standard_normal((3, 4, 2)), rng.standard_normal((3, 4))
    return [
        ((x, None, None, weight, bias), {}),
        ((x, mean, rng.uniform(0.5, 2, 4), weight, bias), {"eps": 0.1}),
        ((rng.standard_normal((5, 4)), None, None, None, None), {"eps": 0.1}),
        ((rng.standard_normal((2, 4, 2, 3)), None, None, weight, bias), {}),
    ]


def _group_sample(rng: np.random.Generator) -> list[Case]:
    x, (weight, bias) = rng.standard_normal((2, 4, 3)), rng.standard_normal((2, 4))
    return [((x, weight, bias), {"groups": 2}), ((x, None, None), {"groups": 1, "eps": 0.1})]


def _instance_sample(rng: np.random.Generator) -> list[Case]:
    x, (weight, bias) = rng.standard_normal((2, 4, 3)), rng.standard_normal((2, 4))
    return [((x, weight, bias), {}), ((x, None, bias), {"eps": 0.1})]


register(
    Op(
        "batch_norm",
        batch_norm,
        {
            "x": _batch_x,
            "mean": _batch_mean,
            "variance": _batch_variance,
            "weight": _batch_weight,
            "bias": _channel_bias,
        },
        accumulates=True,
        sample=_batch_sample,
    )
)
register(
    Op(
        "group_norm",
        group_norm,
        {"x": _group_x, "weight": _group_weight, "bias": _channel_bias},
        accumulates=True,
        sample=_group_sample,
    )
)
register(
    Op(
        "instance_norm",
        instance_norm,
        {"x": _instance_x, "weight": _instance_weight, "bias": _channel_bias},
        accumulates=True,
        sample=_instance_sample,
    )
)
