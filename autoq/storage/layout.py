"""Index arithmetic of packed tensors: lines of words, grids of blocks, and the order of the axes.

A tensor is *stored* in an axis order of its own. Blocks are rectangles over the trailing storage
axes, and a line, the innermost storage axis, is a little-endian stream of codes in 32-bit words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..schemes import QuantScheme

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]
WORD_BITS = 32


def line_words(n: int, bits: int) -> int:
    """Words in a line of ``n`` codes.

    Example:
        >>> line_words(5, 6)
        1
    """
    return (n * bits + WORD_BITS - 1) // WORD_BITS


def word_unit(bits: int) -> int:
    """Fewest codes that fill whole words: a line may be cut at their multiples.

    Example:
        >>> word_unit(4), word_unit(6)
        (8, 16)
    """
    return WORD_BITS // math.gcd(WORD_BITS, bits)


def words_shape(storage_shape: Shape, bits: int) -> Shape:
    """Shape of the words of a tensor; one without axes is a line of one value.

    Example:
        >>> words_shape((2, 3, 32), 8)
        (2, 3, 8)
    """
    if not storage_shape:
        return (1,)
    return (*storage_shape[:-1], line_words(storage_shape[-1], bits))


def grid_shape(storage_shape: Shape, extents: Shape) -> Shape:
    """Shape of the block grid, a partial block counted as one; extent 0 is one block whatever the size.

    Example:
        >>> grid_shape((5, 40), (1, 32)), grid_shape((5, 40), (0, 0))
        ((5, 2), (1, 1))
    """
    return tuple(-(-n // e) if e else 1 for n, e in zip(storage_shape, extents, strict=True))


@lru_cache(maxsize=4096)
def stored_shapes(scheme: QuantScheme, storage_shape: Shape) -> tuple[Shape, Shape]:
    """Shapes of the words and of the block grid; ShapeError if the blocks have more axes.

    Example:
        >>> from autoq.schemes import scheme
        >>> stored_shapes(scheme("mxfp8"), (2, 3, 40))
        ((2, 3, 10), (2, 3, 2))
    """
    extents = scheme.extents(len(storage_shape))
    return words_shape(storage_shape, scheme.element_bits), grid_shape(storage_shape, extents)


@dataclass(frozen=True)
class Layout:
    """The axis order of a view: logical axis ``i`` is storage axis ``order[i]``.

    Example:
        >>> Layout((1, 0)).storage_shape((3, 4))
        (4, 3)
    """

    order: tuple[int, ...]

    @staticmethod
    def identity(rank: int) -> Layout:
        """The layout whose logical axes are the storage axes."""
        return _identity(rank)

    @property
    def is_identity(self) -> bool:
        """Whether logical and storage axes agree."""
        return self is _identity(len(self.order)) or self.order == tuple(range(len(self.order)))

    @property
    def inverse(self) -> tuple[int, ...]:
        """Logical axis of each storage axis."""
        inverse = [0] * len(self.order)
        for logical, storage in enumerate(self.order):
            inverse[storage] = logical
        return tuple(inverse)

    def storage_shape(self, shape: Shape) -> Shape:
        """Shape in storage order of a tensor of logical ``shape``."""
        return tuple(shape[logical] for logical in self.inverse)

    def permuted(self, axes: tuple[int, ...]) -> Layout:
        """The layout after logical axes are permuted: new axis ``i`` is old axis ``axes[i]``."""
        return Layout(tuple(self.order[axis] for axis in axes))


@lru_cache(maxsize=64)
def _identity(rank: int) -> Layout:
    return Layout(tuple(range(rank)))


@dataclass(frozen=True)
class Geometry:
    """What the layout functions ask of a scheme on tensors of one rank.

    Attributes:
        bits: Bits a code.
        unit: Codes that fill whole words.
        extents: Extent of a block along each storage axis; 1 spans nothing, 0 is the whole axis.
        pinned: How many trailing storage axes must stay in place: those of blocks and lines.
    """

    bits: int
    unit: int
    extents: Shape
    pinned: int

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(scheme: QuantScheme, rank: int) -> Geometry:
        """The geometry of ``scheme`` at ``rank``; ShapeError if its blocks have more axes."""
        bits = scheme.element_bits
        pinned = 1 if scheme.block is None else len(scheme.block)
        return Geometry(bits, word_unit(bits), scheme.extents(rank), min(pinned, rank))

    def is_free(self, axis: int) -> bool:
        """Whether storage ``axis`` moves by whole lines and no block spans more than one of its places."""
        return self.extents[axis] < 2 and axis != len(self.extents) - 1

    def cuts(self, axis: int) -> int:
        """Places along storage ``axis`` between which a view can be cut: whole blocks and words."""
        extent = self.extents[axis] or 1
        return math.lcm(extent, self.unit) if axis == len(self.extents) - 1 else extent


def source_blocks(index: Array, extent: int) -> Array | None:
    """The block each result block comes from when an axis is gathered; None if one mixes several.

    Args:
        index: Source place of every result place, int64 (n,).
        extent: Block extent along the axis; 0 is one block for the whole tensor.

    Example:
        >>> source_blocks(np.arange(63, -1, -1), 32)
        array([1, 0])
        >>> source_blocks(np.arange(8, 40), 32) is None
        True
    """
    if extent == 0:
        return np.zeros(1, np.int64)
    blocks = index // extent
    first = blocks[::extent]
    mixes = bool((np.repeat(first, extent)[: len(blocks)] != blocks).any())
    return None if mixes else first
