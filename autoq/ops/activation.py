"""Activation functions: forward and gradient rule of each, side by side."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.ops.axes import number
from autoq.ops.samples import signed, unary
from autoq.ops.special import erf
from autoq.tape.op import Op, register

_SQRT_HALF = math.sqrt(0.5)
_RSQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)


def relu(x: Any) -> Any:
    """max(x, 0), element by element; its gradient at 0 is 0.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.relu([-1.0, 2.0])
        tensor([0. 2.], float32)
    """
    return np.maximum(x, 0)


def leaky_relu(x: Any, *, negative_slope: float = 0.01) -> Any:
    """x where it is positive, else `negative_slope` * x.

    Args:
        x: Any shape.
        negative_slope: The slope at and below 0.

    Example:
        >>> import autoq as aq
        >>> aq.leaky_relu([-1.0, 2.0], negative_slope=0.1)
        tensor([-0.1  2. ], float32)
    """
    return np.where(x > 0, x, x * number("leaky_relu", "negative_slope", negative_slope))


def _leaky_relu_x(F: Any, g: Any, x: Any, negative_slope: float) -> Any:
    return F.where(F.greater(x, 0), g, g * float(negative_slope))


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), element by element.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.sigmoid([0.0, 2.0])
        tensor([0.5      0.8807...], float32)
    """
    return 1.0 / (1.0 + np.exp(-x))


def _sigmoid_x(F: Any, g: Any, x: Any) -> Any:
    y = F.sigmoid(x)
    return g * y * (1.0 - y)


def silu(x: Any) -> Any:
    """x * sigmoid(x), element by element, also called swish.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.silu([0.0, 2.0])
        tensor([0.       1.7615...], float32)
    """
    return x / (1.0 + np.exp(-x))


def _silu_x(F: Any, g: Any, x: Any) -> Any:
    y = F.sigmoid(x)
    return g * y * (1.0 + x * (1.0 - y))


def softplus(x: Any) -> Any:
    """log(1 + exp(x)), element by element, without overflow.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.softplus([0.0, 100.0])
        tensor([  0.6931... 100.       ], float32)
    """
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def gelu(x: Any) -> Any:
    """x times the standard normal distribution function at x: the exact form, with erf.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.gelu([0.0, 2.0])
        tensor([0.        1.9544...], float32)
    """
    return x * (0.5 + 0.5 * erf(x * _SQRT_HALF))


def _gelu_x(F: Any, g: Any, x: Any) -> Any:
    below = 0.5 + 0.5 * F.erf(x * _SQRT_HALF)
    density = F.exp(-0.5 * F.square(x)) * _RSQRT_2PI
    return g * (below + x * density)


register(Op(
    "relu", relu, {"x": lambda F, g, x: g * F.greater(x, 0)}, elementwise=True, sample=signed(0.2, 2),
))
register(Op("leaky_relu", leaky_relu, {"x": _leaky_relu_x}, elementwise=True, sample=signed(0.2, 2)))
register(Op("sigmoid", sigmoid, {"x": _sigmoid_x}, elementwise=True, sample=unary(-4, 4)))
register(Op("silu", silu, {"x": _silu_x}, elementwise=True, sample=unary(-4, 4)))
register(Op(
    "softplus", softplus, {"x": lambda F, g, x: g * F.sigmoid(x)}, elementwise=True, sample=signed(0.2, 4),
))
register(Op("gelu", gelu, {"x": _gelu_x}, elementwise=True, sample=unary(-3, 3)))
