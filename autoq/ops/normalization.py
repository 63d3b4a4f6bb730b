"""Layer and RMS normalization, each as one op: decoded once, computed in float, encoded once (S47)."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ArgumentError, ShapeError
from autoq.ops.axes import Axis, Shape, along, check_axes, number, reduced_size
from autoq.ops.samples import Case
from autoq.tape.op import Op, register


def layer_norm(x: Any, weight: Any = None, bias: Any = None, *, axis: Axis = -1, eps: float = 1e-5) -> Any:
    """(x - mean) / sqrt(var + eps) along axes, times `weight`, plus `bias`.

    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.

    Args:
        x: Any shape.
        weight: Broadcasts to `x`: (n,) for the last axis of length n. None for 1.
        bias: Likewise; None for 0.
        axis: The axis or axes over which mean and variance are taken.
        eps: Added to the variance.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.layer_norm([1.0, 3.0], eps=0.0)
        tensor([-1.  1.], float32)
    """
    check_axes("layer_norm", axis, x.shape)
    _check_affine("layer_norm", x, weight=weight, bias=bias)
    count = reduced_size(x.shape, axis) or 1
    y = x - along(np.add.reduce, x, axis=axis, keepdims=True) / count
    y = y / np.sqrt(along(np.add.reduce, y * y, axis=axis, keepdims=True) / count + _eps("layer_norm", eps))
    return _affine(y, weight, bias)


def rms_norm(x: Any, weight: Any = None, *, axis: Axis = -1, eps: float = 1e-6) -> Any:
    """x / sqrt(mean(x * x) + eps) along axes, times `weight`.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    Args:
        x: Any shape.
        weight: Broadcasts to `x`: (n,) for the last axis of length n. None for 1.
        axis: The axis or axes over which the mean is taken.
        eps: Added to the mean square.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.rms_norm([3.0, 4.0])
        tensor([0.8485... 1.1313...], float32)
    """
    check_axes("rms_norm", axis, x.shape)
    _check_affine("rms_norm", x, weight=weight)
    count = reduced_size(x.shape, axis) or 1
    mean_square = along(np.add.reduce, x * x, axis=axis, keepdims=True) / count
    return _affine(x / np.sqrt(mean_square + _eps("rms_norm", eps)), weight, None)


def _eps(name: str, eps: Any) -> float:
    found = number(name, "eps", eps)
    if found < 0:
        raise ArgumentError(f"{name}: eps={eps!r}.", "numbers from 0", "Pass a small positive number.")
    return found


def _check_affine(name: str, x: Any, **arrays: Any) -> None:
    """Refuse a weight or bias that would enlarge `x`, or doesn't broadcast with it."""
    for key, array in arrays.items():
        shape = np.shape(array)
        lead = x.ndim - len(shape)
        if shape != x.shape[lead:] and (
            lead < 0 or any(n not in (1, m) for n, m in zip(shape, x.shape[lead:], strict=True))
        ):
            raise ShapeError(
                f"{name}: {key} is {shape}, x is {x.shape}.",
                f"a {key} that broadcasts to x: (n,) for a last axis of length n, 1 elsewhere.",
                f"Give the {key} the length of the axis, with axes of length 1 behind it.",
            )


def _affine(y: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


def _mean(F: Any, x: Any, axis: Axis) -> Any:
    return F.mean(x, axis=axis, keepdims=True)


def _scaled(F: Any, x: Any, axis: Axis, eps: float) -> tuple[Any, Any]:
    """x divided by its root mean square, and the reciprocal of that."""
    inverse = F.rsqrt(_mean(F, F.square(x), axis) + float(eps))
    return x * inverse, inverse


def normalized(F: Any, x: Any, axis: Axis, eps: float) -> tuple[Any, Any]:
    """For rules: x with mean 0 and variance 1 along axes, and one over its standard deviation."""
    return _scaled(F, x - _mean(F, x, axis), axis, eps)


def layer_norm_x(F: Any, g: Any, x: Any, weight: Any, axis: Axis, eps: float) -> Any:
    """The cotangent less its part along 1 and along the normalized x, over the standard deviation."""
    y, inverse = normalized(F, x, axis, eps)
    g = g if weight is None else g * weight
    return inverse * (g - _mean(F, g, axis) - y * _mean(F, g * y, axis))


def _layer_norm_weight(F: Any, g: Any, x: Any, weight_shape: Shape, axis: Axis, eps: float) -> Any:
    """The cotangent times the normalized x; kernels sum it to the shape of the weight."""
    return g * normalized(F, x, axis, eps)[0]


def _rms_norm_x(F: Any, g: Any, x: Any, weight: Any, axis: Axis, eps: float) -> Any:
    """The cotangent less its part along the normalized x, over the root mean square."""
    y, inverse = _scaled(F, x, axis, eps)
    g = g if weight is None else g * weight
    return inverse * (g - y * _mean(F, g * y, axis))


def _rms_norm_weight(F: Any, g: Any, x: Any, weight_shape: Shape, axis: Axis, eps: float) -> Any:
    """The cotangent times the normalized x; kernels sum it to the shape of the weight."""
    return g * _scaled(F, x, axis, eps)[0]


def _layer_norm_sample(rng: np.random.Generator) -> list[Case]:
    x = rng.standard_normal((2, 3, 4))
    weight, bias = rng.standard_normal((2, 4))
    return [
        ((x, weight, bias), {}),
        ((x, weight, None), {}),
        ((x, None, None), {"axis": (0, 2), "eps": 0.1}),
        ((x, rng.standard_normal((3, 4)), rng.standard_normal((3, 4))), {"axis": (-2, -1)}),
    ]


def _rms_norm_sample(rng: np.random.Generator) -> list[Case]:
    x, weight = rng.standard_normal((2, 3, 4)), rng.standard_normal(4)
    return [((x, weight), {}), ((x, None), {"axis": 1, "eps": 0.1})]


register(
    Op(
        "layer_norm",
        layer_norm,
        {"x": layer_norm_x, "weight": _layer_norm_weight, "bias": lambda F, g: g},
        accumulates=True,
        sample=_layer_norm_sample,
    )
)
register(
    Op(
        "rms_norm",
        rms_norm,
        {"x": _rms_norm_x, "weight": _rms_norm_weight},
        accumulates=True,
        sample=_rms_norm_sample,
    )
)
