"""The stand-in flushes float32's subnormals to 0 where CuPy does: it compiles its functions so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .standin_device import SETTINGS

# What CuPy compiles to flush float32's subnormals to 0, what it reads and what it returns: universal
# functions but those that only look at bits, and these.
FLUSHING = ("max", "min", "amax", "amin", "argmax", "argmin", "sum", "prod", "mean", "var", "std", "any")
FLUSHING += ("all", "count_nonzero", "nonzero", "flatnonzero", "cumsum", "cumprod", "clip", "round")
FLUSHING += ("searchsorted",)
BITS = ("signbit", "copysign", "isnan", "isinf", "isfinite", "positive", "matmul")


def flush_of(function: Any) -> Callable[[Any], Any]:
    """What happens to the arguments and the result of CuPy's function of that name."""
    ufunc = getattr(function, "__self__", function)
    named = getattr(function, "__name__", "") in FLUSHING
    flushes = ufunc.__name__ not in BITS if isinstance(ufunc, np.ufunc) else named
    return flushed if SETTINGS["flush"] and flushes else unchanged


def flushed(value: Any) -> Any:
    """A value with 0 in place of float32's subnormals."""
    if getattr(getattr(value, "dtype", None), "name", "") not in ("float32", "bfloat16"):
        return value
    small = np.abs(value) < np.finfo(np.float32).tiny
    return np.where(small, np.copysign(value.dtype.type(0), value), value) if small.any() else value


def unchanged(value: Any) -> Any:
    """The value itself."""
    return value


@contextlib.contextmanager
def exact() -> Iterator[None]:
    """A block in which subnormals are what they are, as in autoq's own kernels."""
    previous, SETTINGS["flush"] = SETTINGS["flush"], False
    try:
        yield
    finally:
        SETTINGS["flush"] = previous
