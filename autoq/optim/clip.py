"""Clipping of the gradients' common norm."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from autoq.errors import ArgumentError, DTypeError
from autoq.tape.parameter import Parameter
from autoq.tape.tensor import Tensor, tensor


def clip_grad_norm(parameters: Iterable[Parameter], max_norm: float) -> float:
    """Scale all gradients by one factor so that their common L2 norm is at most ``max_norm``.

    Source: Pascanu, Mikolov & Bengio 2013, "On the difficulty of training recurrent neural networks",
    algorithm 1. A norm that is not finite is returned and changes no gradient,
    so that :class:`GradScaler` can see it.

    Args:
        parameters: Parameters; those without a gradient are skipped.
        max_norm: Upper limit of the norm, above 0.

    Returns:
        The norm before clipping.

    Raises:
        ArgumentError: If ``max_norm`` is not above 0.

    Example:
        >>> import autoq as aq
        >>> p = aq.Parameter([3.0, 4.0])
        >>> (p * p / 2).sum().backward()
        >>> clip_grad_norm([p], 1.0)
        5.0
        >>> p.grad.numpy().round(2)
        array([0.6, 0.8], dtype=float32)
    """
    if not isinstance(max_norm, int | float | np.number) or not max_norm > 0:
        raise ArgumentError(
            f"clip_grad_norm: max_norm={max_norm!r}.", "max_norm > 0", "Pass the norm to clip to."
        )
    listed = _listed(parameters)
    pairs = [(parameter, parameter.grad.value) for parameter in listed if parameter.grad is not None]
    norm = math.sqrt(sum(float(squared_norm(gradient)) for _, gradient in pairs))
    if max_norm < norm < math.inf:
        for parameter, gradient in pairs:
            parameter.grad = tensor(scaled(gradient, max_norm / norm))
    return norm


def _listed(parameters: Any) -> list[Any]:
    """The parameters as a list, checked."""
    if isinstance(parameters, Tensor):
        return [parameters]
    found = list(parameters) if isinstance(parameters, Iterable) else [parameters]
    odd = [x for x in found if not isinstance(x, Tensor)]
    if odd:
        raise DTypeError(
            f"clip_grad_norm of a {type(odd[0]).__name__}.", "parameters", "Pass model.parameters()."
        )
    return found


def squared_norm(gradient: np.ndarray) -> float:
    """The sum of squares, in float64 where float32 overflows or underflows."""
    if gradient.dtype == np.float32:
        total = float(np.vdot(gradient, gradient))
        if 1e-30 < total < math.inf:
            return total
    wide = gradient.astype(np.float64)
    return float(np.vdot(wide, wide))


def scaled(gradient: np.ndarray, factor: float) -> np.ndarray:
    """``factor`` times a gradient, in at least float32, where a small factor doesn't make it vanish."""
    wide = np.float64 if gradient.dtype == np.float64 else np.float32
    return np.asarray(np.multiply(gradient, factor, dtype=wide))
