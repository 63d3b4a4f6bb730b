"""Sums of blocks and their transpose: what the gradient of a scale needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autoq.ops.samples import moved
from autoq.tape.op import Op, register


def sum_blocks(x: Any, *, extents: Sequence[int]) -> Any:
    """The sum of each block, of the block grid's shape; an extent of 0 is the whole axis."""
    for axis, (n, extent) in enumerate(zip(x.shape, extents, strict=True)):
        if extent == 0 or extent >= n:
            x = x.sum(axis=axis, keepdims=True) if n or not extent else x
        elif extent > 1:
            x = np.add.reduceat(x, np.arange(0, n, extent), axis=axis)
    return x


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
