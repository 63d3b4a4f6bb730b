"""Sums of blocks and their transpose: what the gradient of a scale needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autoq.devices import on_gpu
from autoq.ops.samples import moved
from autoq.tape.op import Op, register


def sum_blocks(x: Any, *, extents: Sequence[int]) -> Any:
    """The sum of each block, of the block grid's shape; an extent of 0 is the whole axis."""
    for axis, (n, extent) in enumerate(zip(x.shape, extents, strict=True)):
        if extent == 0 or extent >= n:
            x = x.sum(axis=axis, keepdims=True) if n or not extent else x
        elif extent > 1:
            x = _summed(x, axis, extent)
    return x


def _summed(x: Any, axis: int, extent: int) -> Any:
    """The sums of so many neighbours along an axis, the last ones of those that are left."""
    n = x.shape[axis]
    if not on_gpu(x):
        return np.add.reduceat(x, np.arange(0, n, extent), axis=axis)
    widths = [(0, -n % extent if i == axis else 0) for i in range(x.ndim)]
    whole = np.pad(x, widths)
    return whole.reshape(*x.shape[:axis], -1, extent, *x.shape[axis + 1 :]).sum(axis=axis + 1)


def spread_blocks(x: Any, *, extents: Sequence[int], shape: tuple[int, ...]) -> Any:
    """Each block's value at every place of the block: the transpose of `sum_blocks`."""
    for axis, (n, extent) in enumerate(zip(shape, extents, strict=True)):
        if extent != 1:
            x = np.repeat(x, extent or n, axis)[(slice(None),) * axis + (slice(n),)]
    return x


register(
    Op(
        "sum_blocks",
        sum_blocks,
        {"x": lambda F, g, x_shape, extents: F.spread_blocks(g, extents=extents, shape=x_shape)},
        accumulates=True,
        sample=moved((3, 5), {"extents": (1, 2)}, {"extents": (2, 4)}, {"extents": (0, 0)}),
    )
)
register(
    Op(
        "spread_blocks",
        spread_blocks,
        {"x": lambda F, g, extents: F.sum_blocks(g, extents=extents)},
        sample=moved((3, 2), {"extents": (1, 3), "shape": (3, 5)}, {"extents": (2, 2), "shape": (5, 4)}),
    )
)
