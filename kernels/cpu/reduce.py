"""Reductions over flat float32 arrays: the finite maximum, the first value that isn't finite."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ..bind import compile_cpu
from ..scalar.bits import INFINITY, MAGNITUDE, ZERO, U, bits, real
from .pool import PARALLEL_VALUES, ranges, run, threads
from .signatures import array, signature

Array = np.ndarray


def amax(x: Array) -> float:
    """Largest finite magnitude of a flat float32 array, 0 where there is none.

    Example:
        >>> amax(np.array([1, -3, np.nan, np.inf], np.float32))
        3.0
    """
    return max(_pieces(amax_kernel(), x), default=0.0)


def first_nonfinite(x: Array) -> int:
    """Index of the first NaN or infinity of a flat float32 array, -1 where there is none.

    Example:
        >>> first_nonfinite(np.array([1, -3, np.nan, np.inf], np.float32))
        2
    """
    kernel = first_kernel()
    pieces = ranges(len(x), threads() if x.size >= PARALLEL_VALUES else 1)
    found = run(lambda start, stop: kernel(x[start:stop]), pieces)
    return next((start + at for (start, _), at in zip(pieces, found, strict=True) if at >= 0), -1)


def _pieces(kernel: Callable[..., float], x: Array) -> list[float]:
    if x.size < PARALLEL_VALUES:
        return [kernel(x)]
    return run(lambda start, stop: kernel(x[start:stop]), ranges(len(x), threads()))


@cache
def amax_kernel() -> Callable[..., float]:
    """The compiled ``kernel(x) -> float32``."""

    def kernel(x):
        most = ZERO
        for i in range(x.shape[0]):
            a = U(bits(x[i]) & MAGNITUDE)
            most = max(most, a if a < INFINITY else ZERO)
        return real(most)

    return compile_cpu(kernel, signature("float32", array("float32", 1, False)))


@cache
def first_kernel() -> Callable[..., int]:
    """The compiled ``kernel(x) -> index``."""

    def kernel(x):
        for i in range(x.shape[0]):
            if U(bits(x[i]) & MAGNITUDE) >= INFINITY:
                return i
        return -1

    return compile_cpu(kernel, signature("int64", array("float32", 1, False)))
