"""Gradients of operands that were broadcast: sums over the axes along which they were."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.devices import on_gpu
from autoq.tape.accelerated import raw_on_device
from autoq.tape.apply import apply
from autoq.tape.op import REGISTRY
from autoq.tape.tensor import Tensor


def unbroadcast(g: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sum an array over the axes along which an operand of ``shape`` was broadcast.

    Example:
        >>> unbroadcast(np.ones((3, 2)), (1, 2))
        array([[3., 3.]])
    """
    if g.shape == shape:
        return g
    if g.size != 0 and g.ndim < len(shape) or g.ndim == 0:
        return np.broadcast_to(g, shape)
    lead = g.ndim - len(shape)
    if lead > 0:
        g = _summed(g, tuple(range(lead)), False)
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] != 1)
    if axes:
        g = _summed(g, axes, True)
    return g if g.shape == shape else np.broadcast_to(g, shape)


def _summed(g: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if not on_gpu(g):
        return g.sum(axis=axes, keepdims=keepdims)
    return raw_on_device(REGISTRY["sum"], g, axis=axes, keepdims=keepdims)


def unbroadcast_recorded(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same on a recorded tensor."""
    lead = g.ndim - len(shape)
    if lead < 0:
        return apply("broadcast_to", g, shape=shape)
    if lead:
        g = apply("sum", g, axis=tuple(range(lead)), keepdims=False)
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] != 1)
    if axes:
        g = apply("sum", g, axis=axes, keepdims=True)
    return g if g.shape == shape else apply("broadcast_to", g, shape=shape)
