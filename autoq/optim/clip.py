"""Clipping of the gradients' common norm."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from autoq.context import OBSERVERS, noted
from autoq.devices import array_namespace, device_of, on_gpu, to_host, using_device
from autoq.errors import ArgumentError, DTypeError
from autoq.memory import within_memory
from autoq.optim.fused import are_on_one_gpu, read, scaled_on_gpu
from autoq.recording import in_captured_step
from autoq.tape.delivery import tensor_of
from autoq.tape.parameter import Parameter
from autoq.tape.tensor import Tensor


@within_memory("clip_grad_norm")
def clip_grad_norm(parameters: Iterable[Parameter], max_norm: float) -> float | Tensor:
    """Scale all gradients by one factor so that their common L2 norm is at most ``max_norm``.

    Source: Pascanu, Mikolov & Bengio 2013, "On the difficulty of training recurrent neural networks",
    algorithm 1. A norm that is not finite is returned and changes no gradient,
    so that :class:`GradScaler` can see it. Gradients on a GPU are clipped there, and the norm is read last.

    Args:
        parameters: Parameters; those without a gradient are skipped.
        max_norm: Upper limit of the norm, above 0.

    Returns:
        The norm before clipping: a number; in a step under ``aq.capture`` a float64 tensor without axes,
        whose value isn't read.

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
    if OBSERVERS:
        noted("clip_grad_norm", max_norm)
    if are_on_one_gpu([gradient for _, gradient in pairs]):
        return _clip_on_gpu(pairs, float(max_norm))
    if in_captured_step() and any(on_gpu(gradient) for _, gradient in pairs):
        return _clip_unread(pairs, float(max_norm))
    norm = math.sqrt(sum(float(squared_norm(gradient)) for _, gradient in pairs))
    if max_norm < norm < math.inf:
        for parameter, gradient in pairs:
            parameter.grad = tensor_of(scaled(gradient, max_norm / norm))
    return tensor_of(np.array(norm)) if in_captured_step() else norm


def _clip_on_gpu(pairs: list[tuple[Any, Any]], max_norm: float) -> float | Tensor:
    """Clip without waiting for the norm: by a factor that is 1 where nothing is to be clipped."""
    results, norm = scaled_on_gpu([gradient for _, gradient in pairs], None, max_norm)
    for (parameter, _), result in zip(pairs, results, strict=True):
        parameter.grad = tensor_of(result)
    return tensor_of(norm) if in_captured_step() else read(norm)


def _clip_unread(pairs: list[tuple[Any, Any]], max_norm: float) -> Tensor:
    """Clip gradients that no kernel takes together, of float64 or of several dtypes, and read nothing."""
    with using_device(device_of(pairs[0][1])):
        xp = array_namespace(pairs[0][1])
        norm = xp.sqrt(sum(_sum_of_squares(gradient) for _, gradient in pairs))
        clips = (norm > max_norm) & (norm < math.inf)
        factor = xp.where(clips, max_norm / xp.maximum(norm, max_norm), 1.0)
        for parameter, gradient in pairs:
            parameter.grad = tensor_of(scaled(gradient, factor))
    return tensor_of(norm)


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


def squared_norm(gradient: Any) -> float:
    """The sum of squares, in float64 where float32 overflows or underflows."""
    if on_gpu(gradient):
        with using_device(device_of(gradient)):
            return float(to_host(_sum_of_squares(gradient)))
    if gradient.dtype == np.float32:
        total = float(np.vdot(gradient, gradient))
        if 1e-30 < total < math.inf:
            return total
    wide = gradient.astype(np.float64)
    return float(np.vdot(wide, wide))


def _sum_of_squares(gradient: Any) -> Any:
    """In float64, an array without axes."""
    wide = gradient.astype(np.float64)
    return (wide * wide).sum()


def scaled(gradient: Any, factor: Any) -> Any:
    """``factor`` times a gradient, in at least float32, where a small factor doesn't make it vanish."""
    wide = np.float64 if gradient.dtype == np.float64 else np.float32
    with using_device(device_of(gradient)):
        factor = factor.astype(wide) if on_gpu(factor) else factor
        result = np.multiply(gradient, factor, dtype=wide)
    return result if on_gpu(result) else np.asarray(result)
