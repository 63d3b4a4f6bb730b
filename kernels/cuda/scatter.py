"""Values added to entries by position, in the order in which they come: no atomic operation takes part.

Positions are sorted, equal ones staying in order, and whoever meets the first of several equal ones adds them
all, one after the other: the bits are those of NumPy's ``add.at``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..scalar.bits import F
from .compile import uses_cuda
from .launch import SIMULATED, grid, kernel, library

cuda: Any = None
uses_cuda(globals())

I64 = np.int64
THREADS = 32 if SIMULATED else 256


def add_rows(out: Any, rows: Any, values: Any) -> None:
    """Add rows of values to rows of an array, by number.

    Args:
        out: float32 (before, extent, after), contiguous; changed.
        rows: Integers (n,), any of them several times; negative ones count from the end, modulo ``extent``.
        values: float32 (before, n, after), contiguous.

    Example:
        >>> out = np.zeros((1, 2, 1), np.float32)
        >>> if SIMULATED:
        ...     add_rows(out, np.array([1, 1]), np.ones((1, 2, 1), np.float32))
    """
    before, count, after = values.shape
    extent = out.shape[1]
    if not values.size:
        return
    keys = rows.astype(I64, copy=False) % extent
    order = library().argsort(keys, kind="stable").astype(I64, copy=False)
    items = before * count * after
    add_kernel()(grid(items, THREADS), THREADS, out, keys, order, values, items, count, after, extent)


def add_at(out: Any, places: Any, values: Any) -> None:
    """Add values to the entries of an array at flat positions.

    Args:
        out: float32, contiguous; changed.
        places: Integers, any of them several times.
        values: float32 of as many values as there are places, contiguous.
    """
    add_rows(out.reshape(1, -1, 1), places.reshape(-1), values.reshape(1, -1, 1))


@kernel
def add_kernel():
    """The first of several equal keys adds all their values; the others do nothing."""

    def add(out, keys, order, values, items, count, after, extent):
        at = I64(cuda.blockIdx.x) * I64(cuda.blockDim.x) + I64(cuda.threadIdx.x)
        if at < items:
            line, column = at // after, at % after
            before, k = line // count, line % count
            key = keys[order[k]]
            if k == 0 or keys[order[k - 1]] != key:
                place = (before * extent + key) * after + column
                start, total = before * count, out[place]
                # Four reads at a time, which don't wait for each other.
                while k + 4 <= count and keys[order[k + 3]] == key:
                    a = values[(start + order[k]) * after + column]
                    b = values[(start + order[k + 1]) * after + column]
                    c = values[(start + order[k + 2]) * after + column]
                    d = values[(start + order[k + 3]) * after + column]
                    total = F(F(F(F(total + a) + b) + c) + d)
                    k += 4
                while k < count and keys[order[k]] == key:
                    total = F(total + values[(start + order[k]) * after + column])
                    k += 1
                out[place] = total

    return add, ("float32*", "int64*", "int64*", "float32*", "int64", "int64", "int64", "int64")
