"""Tensors rearranged block by block, for blocks that span several axes."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .inputs import contiguous
from .layout import Array, Shape, grid_shape


class Blocks(NamedTuple):
    """A tensor as rows of blocks.

    Attributes:
        values: (blocks, m), in grid order, padded with zeros.
        counts: int64 (blocks,), the real values of each; None where nothing is padded.
    """

    values: Array
    counts: Array | None


def to_blocks(x: Array, extents: Shape) -> Blocks:
    """Gather ``x`` block by block.

    Args:
        x: Any dtype, of the rank of ``extents``.
        extents: Block extent of each axis, at least 1.

    Example:
        >>> to_blocks(np.arange(16).reshape(4, 4), (2, 2)).values[1].tolist()
        [2, 3, 6, 7]
    """
    grid = grid_shape(x.shape, extents)
    padded = tuple(g * e for g, e in zip(grid, extents, strict=True))
    counts = None
    if padded != x.shape:
        counts = _counts(x.shape, extents, grid)
        x = np.pad(x, [(0, p - n) for p, n in zip(padded, x.shape, strict=True)])
    rank = len(grid)
    split = x.reshape([part for pair in zip(grid, extents, strict=True) for part in pair])
    rows = split.transpose([*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)])
    values = contiguous(rows.reshape(math.prod(grid), math.prod(extents)))
    return Blocks(values, counts)


def from_blocks(values: Array, shape: Shape, extents: Shape) -> Array:
    """The tensor of ``shape`` whose blocks are the rows of ``values``; undoes :func:`to_blocks`.

    Example:
        >>> x = np.arange(15).reshape(3, 5)
        >>> bool((from_blocks(to_blocks(x, (2, 4)).values, (3, 5), (2, 4)) == x).all())
        True
    """
    grid = grid_shape(shape, extents)
    rank = len(shape)
    split = values.reshape((*grid, *extents))
    merged = split.transpose(
        [axis for pair in zip(range(rank), range(rank, 2 * rank), strict=True) for axis in pair]
    )
    padded = merged.reshape([g * e for g, e in zip(grid, extents, strict=True)])
    return padded[tuple(slice(n) for n in shape)]


def _counts(shape: Shape, extents: Shape, grid: Shape) -> Array:
    """How many real values each block holds."""
    counts = np.ones((), np.int64)
    for n, e, g in zip(shape, extents, grid, strict=True):
        counts = np.multiply.outer(counts, np.minimum(n - np.arange(g) * e, e))
    return counts.reshape(-1)
