"""Gated activations: one half of an axis gates the other, decoded once and encoded once (S47)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autoq.errors import ShapeError
from autoq.ops.activation import gelu, gelu_rule, sigmoid, sigmoid_rule, silu, silu_rule
from autoq.ops.axes import one_axis
from autoq.ops.samples import moved
from autoq.tape.op import Op, register

_Rule = Callable[..., Any]


def glu(x: Any, *, axis: int = -1) -> Any:
    """The first half along an axis times the sigmoid of the second.

    Source: Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2016.

    Args:
        x: (..., 2 n) along the axis.
        axis: The axis that is halved.

    Returns:
        (..., n).

    Raises:
        ShapeError: An axis that `x` does not have, or of odd length.

    Example:
        >>> import autoq as aq
        >>> aq.glu([1.0, 2.0, 0.0, 100.0])
        tensor([0.5 2. ], float32)
    """
    first, second = _halves("glu", x, axis)
    return first * sigmoid(second)


def geglu(x: Any, *, axis: int = -1) -> Any:
    """The gelu of the first half along an axis times the second.

    Source: Shazeer, "GLU Variants Improve Transformer", 2020.

    Args:
        x: (..., 2 n) along the axis.
        axis: The axis that is halved.

    Returns:
        (..., n).

    Raises:
        ShapeError: An axis that `x` does not have, or of odd length.

    Example:
        >>> import autoq as aq
        >>> aq.geglu([0.0, 2.0, 1.0, 0.5])
        tensor([0. 0.9772...], float32)
    """
    first, second = _halves("geglu", x, axis)
    return gelu(first) * second


def swiglu(x: Any, *, axis: int = -1) -> Any:
    """The silu of the first half along an axis times the second.

    Source: Shazeer, "GLU Variants Improve Transformer", 2020.

    Args:
        x: (..., 2 n) along the axis.
        axis: The axis that is halved.

    Returns:
        (..., n).

    Raises:
        ShapeError: An axis that `x` does not have, or of odd length.

    Example:
        >>> import autoq as aq
        >>> aq.swiglu([0.0, 2.0, 1.0, 0.5])
        tensor([0. 0.8807...], float32)
    """
    first, second = _halves("swiglu", x, axis)
    return silu(first) * second


def _halves(name: str, x: Any, axis: int) -> tuple[Any, Any]:
    axis = one_axis(name, axis, np.shape(x))
    n = x.shape[axis]
    if n % 2:
        raise ShapeError(
            f"{name}: axis {axis} of shape {x.shape} has an odd length.", "an even one.", "Pad or slice x."
        )
    return x[_half(x, axis, 0)], x[_half(x, axis, 1)]


def _half(x: Any, axis: int, which: int) -> tuple[slice, ...]:
    n = x.shape[axis] // 2
    return (slice(None),) * (axis % len(x.shape)) + (slice(which * n, (which + 1) * n),)


def _gated_x(act: str, rule: _Rule, gate: int) -> _Rule:
    """The rule of act(gate half) * other half."""

    def gated(F: Any, g: Any, x: Any, axis: int) -> Any:
        a, b = F.getitem(x, index=_half(x, axis, gate)), F.getitem(x, index=_half(x, axis, 1 - gate))
        parts = [rule(F, g * b, a), g * getattr(F, act)(a)]
        return F.concat(parts if gate == 0 else parts[::-1], axis=axis)

    return gated


_sample = moved((3, 4), {}, {"axis": -1})
_axes = moved((2, 4, 3), {"axis": 1}, {"axis": 0})

register(
    Op(
        "glu",
        glu,
        {"x": _gated_x("sigmoid", sigmoid_rule, 1)},
        sample=lambda rng: _sample(rng) + _axes(rng),
    )
)
register(
    Op(
        "geglu",
        geglu,
        {"x": _gated_x("gelu", gelu_rule, 0)},
        sample=lambda rng: _sample(rng) + _axes(rng),
    )
)
register(
    Op(
        "swiglu",
        swiglu,
        {"x": _gated_x("silu", silu_rule, 0)},
        sample=lambda rng: _sample(rng) + _axes(rng),
    )
)
