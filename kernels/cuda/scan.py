"""Running sums, products and extrema, and linear recurrences: one thread a line, in the order of the CPU.

Lines run along the middle axis of arrays ``(before, n, after)``; a thread keeps the running value in a
register and reads four values ahead. The bits are those of NumPy's ``accumulate``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import F
from .compile import uses_cuda
from .launch import SIMULATED, grid, kernel

cuda: Any = None
uses_cuda(globals())

I64 = np.int64
THREADS = 32 if SIMULATED else 128
Function = Callable[..., Any]


def running(name: str, x: Any, out: Any) -> None:
    """Write the sum, product or extremum of each value and those before it.

    Args:
        name: ``"add"``, ``"multiply"``, ``"maximum"`` or ``"minimum"``; NaN stays from the first on.
        x: float32 (before, n, after), contiguous.
        out: The same; written.

    Example:
        >>> x = np.arange(1, 4, dtype=np.float32).reshape(1, 3, 1)
        >>> out = np.zeros_like(x)
        >>> if SIMULATED:
        ...     running("add", x, out)
    """
    _over_lines(running_kernel(name), x, out)


def first_extrema(largest: bool, x: Any, out: Any) -> None:
    """Write the position at which the extremum of each value and those before it first stood.

    Args:
        largest: The maximum, else the minimum.
        x: float32 (before, n, after), contiguous.
        out: int64, the same; written.
    """
    _over_lines(first_kernel(largest), x, out)


def recurrence(a: Any, b: Any, out: Any) -> None:
    """Write y[i] = b[i] + a[i] * y[i - 1], from y[-1] = 0.

    Args:
        a: float32 (before, n, after), contiguous; the first value of a line isn't used.
        b: The same.
        out: The same; written.
    """
    _over_lines(recurrence_kernel(), a, b, out)


def _over_lines(launched: Any, *arrays: Any) -> None:
    before, count, after = arrays[0].shape
    lines = before * after
    if lines and count:
        launched(grid(lines, THREADS), THREADS, *arrays, lines, count, after)


@cache
def stepped(name: str) -> Function:
    """``step(total, value)``: the running value with one more taken in."""
    if name == "add":

        @scalar
        def step(total, value):
            return F(total + value)

    elif name == "multiply":

        @scalar
        def step(total, value):
            return F(total * value)

    else:
        behind = outdone(name == "maximum")

        @scalar
        def step(total, value):
            return value if behind(total, value) else total

    return step


@cache
def outdone(largest: bool) -> Function:
    """``behind(total, value)``: whether a value takes the place of the extremum, as the first NaN does."""
    if largest:

        @scalar
        def behind(total, value):
            return value > total or (value != value and total == total)

    else:

        @scalar
        def behind(total, value):
            return value < total or (value != value and total == total)

    return behind


@kernel
def running_kernel(name):
    """One thread a line."""
    step = stepped(name)

    def running(x, out, lines, count, after):
        line = I64(cuda.blockIdx.x) * I64(cuda.blockDim.x) + I64(cuda.threadIdx.x)
        if line < lines:
            at = line // after * count * after + line % after
            end = at + count * after
            total = x[at]
            out[at] = total
            at += after
            # Four reads at a time, which wait neither for each other nor for the sums.
            while at + 3 * after < end:
                a, b, c, d = x[at], x[at + after], x[at + 2 * after], x[at + 3 * after]
                total = step(total, a)
                out[at] = total
                total = step(total, b)
                out[at + after] = total
                total = step(total, c)
                out[at + 2 * after] = total
                total = step(total, d)
                out[at + 3 * after] = total
                at += 4 * after
            while at < end:
                total = step(total, x[at])
                out[at] = total
                at += after

    return running, ("float32*", "float32*", "int64", "int64", "int64")


@kernel
def first_kernel(largest):
    """One thread a line."""
    behind = outdone(largest)

    def first(x, out, lines, count, after):
        line = I64(cuda.blockIdx.x) * I64(cuda.blockDim.x) + I64(cuda.threadIdx.x)
        if line < lines:
            start = line // after * count * after + line % after
            total, place = x[start], I64(0)
            for k in range(count):
                value = x[start + k * after]
                if behind(total, value):
                    total, place = value, I64(k)
                out[start + k * after] = place

    return first, ("float32*", "int64*", "int64", "int64", "int64")


@kernel
def recurrence_kernel():
    """One thread a line."""

    def recurrence(a, b, out, lines, count, after):
        line = I64(cuda.blockIdx.x) * I64(cuda.blockDim.x) + I64(cuda.threadIdx.x)
        if line < lines:
            at = line // after * count * after + line % after
            end = at + count * after
            total = b[at]
            out[at] = total
            at += after
            while at + after < end:
                first, second, add, then = a[at], a[at + after], b[at], b[at + after]
                total = F(add + F(first * total))
                out[at] = total
                total = F(then + F(second * total))
                out[at + after] = total
                at += 2 * after
            if at < end:
                out[at] = F(b[at] + F(a[at] * total))

    return recurrence, ("float32*", "float32*", "float32*", "int64", "int64", "int64")
