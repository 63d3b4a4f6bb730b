"""Central differences with two steps, extrapolated, and how well they are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
STEPS = (2e-3, 2e-4, 2e-5)


class Derivative(NamedTuple):
    """A derivative along a direction.

    Attributes:
        value: By output value.
        error: By output value, about how far off it is.
    """

    value: Array
    error: Array


def derivative(f: Callable[[float], Array], enough: float) -> Derivative:
    """The derivative of ``f`` at 0 by central differences.

    Differences with steps h and h / 2 are extrapolated (Richardson), and what the two extrapolations of
    neighbouring pairs leave between them is the error. The step is made smaller until the error is small.

    Args:
        f: From a step to float64 values of one shape.
        enough: The relative error to be content with.

    Example:
        >>> slope = derivative(lambda t: np.array([np.exp(t)]), 1e-9)
        >>> bool(abs(slope.value[0] - 1) < 1e-9)
        True
    """
    best: Derivative | None = None
    for h in STEPS:
        found = _extrapolated(f, h)
        if best is None or _worst(found) < _worst(best):
            best = found
        if _worst(best) <= enough * np.max(np.abs(best.value), initial=0):
            break
    assert best is not None
    return best


def _worst(found: Derivative) -> float:
    return float(np.max(np.where(np.isfinite(found.value), found.error, np.inf), initial=0))


def _extrapolated(f: Callable[[float], Array], h: float) -> Derivative:
    wide, half, quarter = (_central(f, h / k) for k in (1, 2, 4))
    first, second = (4 * half - wide) / 3, (4 * quarter - half) / 3
    return Derivative((16 * second - first) / 15, np.abs(second - first) / 15)


def _central(f: Callable[[float], Array], h: float) -> Array:
    ahead = np.asarray(f(h), np.float64)
    return (ahead - f(-h)) / (2 * h)
