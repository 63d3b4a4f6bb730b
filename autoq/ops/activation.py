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


def sigmoid_rule(F: Any, g: Any, x: Any) -> Any:
    """The gradient of sigmoid."""
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


def silu_rule(F: Any, g: Any, x: Any) -> Any:
    """The gradient of silu."""
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


def gelu_rule(F: Any, g: Any, x: Any) -> Any:
    """The gradient of gelu."""
    below = 0.5 + 0.5 * F.erf(x * _SQRT_HALF)
    density = F.exp(-0.5 * F.square(x)) * _RSQRT_2PI
    return g * (below + x * density)


def mish(x: Any) -> Any:
    """x * tanh(softplus(x)), element by element.

    Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.mish([0.0, 2.0])
        tensor([0.       1.9439...], float32)
    """
    return x * np.tanh(softplus(x))


def _mish_x(F: Any, g: Any, x: Any) -> Any:
    y = F.tanh(F.softplus(x))
    return g * (y + x * (1.0 - F.square(y)) * F.sigmoid(x))


def elu(x: Any, *, alpha: float = 1.0) -> Any:
    """x where it is positive, else `alpha` * (exp(x) - 1).

    Source: Clevert et al., "Fast and Accurate Deep Network Learning by Exponential Linear Units", 2015.

    Args:
        x: Any shape.
        alpha: Minus the limit far below 0.

    Example:
        >>> import autoq as aq
        >>> aq.elu([-1.0, 2.0])
        tensor([-0.6321...  2.       ], float32)
    """
    return np.where(x > 0, x, float(alpha) * np.expm1(np.minimum(x, 0)))


def _elu_x(F: Any, g: Any, x: Any, alpha: float) -> Any:
    return F.where(F.greater(x, 0), g, g * (float(alpha) * F.exp(F.minimum(x, 0.0))))


# Klambauer et al.: the fixed point of mean 0 and variance 1.
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def selu(x: Any) -> Any:
    """1.0507 * elu(x, alpha=1.6733): activations of mean 0 and variance 1 keep both.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.selu([-1.0, 2.0])
        tensor([-1.1113...  2.1014...], float32)
    """
    return _SELU_SCALE * elu(x, alpha=_SELU_ALPHA)


def hardswish(x: Any) -> Any:
    """x * clip(x + 3, 0, 6) / 6, element by element.

    Source: Howard et al., "Searching for MobileNetV3", 2019.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.hardswish([-4.0, 1.0, 4.0])
        tensor([-0.     0.6666... 4.       ], float32)
    """
    return x * (np.clip(x + 3.0, 0.0, 6.0) / 6.0)


def _hardswish_x(F: Any, g: Any, x: Any) -> Any:
    """0 up to -3, 1 from 3 on, (2 x + 3) / 6 between."""
    return F.where(F.greater(x, -3.0), F.where(F.less(x, 3.0), g * (x * (1.0 / 3.0) + 0.5), g), 0.0)


def hardtanh(x: Any, *, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """x limited to [`min_val`, `max_val`]; the gradient passes at the bounds.

    Args:
        x: Any shape.
        min_val: The lower bound.
        max_val: The upper bound.

    Example:
        >>> import autoq as aq
        >>> aq.hardtanh([-2.0, 0.5, 2.0])
        tensor([-1.   0.5  1. ], float32)
    """
    return np.minimum(np.maximum(x, float(min_val)), float(max_val))


def _hardtanh_x(F: Any, g: Any, x: Any, min_val: float, max_val: float) -> Any:
    return g * F.greater_equal(x, float(min_val)) * F.less_equal(x, float(max_val))


register(
    Op(
        "relu",
        relu,
        {"x": lambda F, g, x: g * F.greater(x, 0)},
        elementwise=True,
        sign_shows=True,
        sample=signed(0.2, 2),
    )
)
register(Op("leaky_relu", leaky_relu, {"x": _leaky_relu_x}, elementwise=True, sample=signed(0.2, 2)))
register(Op("sigmoid", sigmoid, {"x": sigmoid_rule}, elementwise=True, sample=unary(-4, 4)))
register(Op("silu", silu, {"x": silu_rule}, elementwise=True, sample=unary(-4, 4)))
register(
    Op(
        "softplus",
        softplus,
        {"x": lambda F, g, x: g * F.sigmoid(x)},
        elementwise=True,
        sample=signed(0.2, 4),
    )
)
register(Op("gelu", gelu, {"x": gelu_rule}, elementwise=True, sample=unary(-3, 3)))
register(Op("mish", mish, {"x": _mish_x}, elementwise=True, sample=unary(-3, 3)))
register(Op("elu", elu, {"x": _elu_x}, elementwise=True, sample=signed(0.2, 2, alpha=0.5)))
register(
    Op(
        "selu",
        selu,
        {"x": lambda F, g, x: _elu_x(F, g * _SELU_SCALE, x, _SELU_ALPHA)},
        elementwise=True,
        sample=signed(0.2, 2),
    )
)
register(Op("hardswish", hardswish, {"x": _hardswish_x}, elementwise=True, sample=unary(-2.8, 4)))
register(Op("hardtanh", hardtanh, {"x": _hardtanh_x}, elementwise=True, sample=signed(0.2, 2, min_val=-0.1)))
