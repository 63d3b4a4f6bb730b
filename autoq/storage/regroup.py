"""What a reshape does to storage axes, by arithmetic on shapes alone: planned once and remembered."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..schemes import QuantScheme
from .layout import Array, Geometry, Layout, Shape, grid_shape, words_shape


class Source(NamedTuple):
    """The tensor that is reshaped, without its arrays."""

    scheme: QuantScheme
    shape: Shape
    layout: Layout

    @property
    def stored(self) -> Shape:
        """Its shape in storage order."""
        return self.layout.storage_shape(self.shape)


class Group(NamedTuple):
    """Old axes and the new ones that hold the same values; none of size 1."""

    old: list[int]
    new: list[int]


def groups_of(old: Shape, new: Shape) -> list[Group]:
    """The smallest groups of axes with equal products, axes of size 1 left out.

    Example:
        >>> groups_of((2, 1, 6, 5), (2, 3, 2, 5))
        [Group(old=[0], new=[0]), Group(old=[2], new=[1, 2]), Group(old=[3], new=[3])]
    """
    left = [axis for axis, n in enumerate(old) if n != 1]
    right = [axis for axis, n in enumerate(new) if n != 1]
    groups = []
    while left:
        group = Group([left.pop(0)], [right.pop(0)])
        a, b = old[group.old[0]], new[group.new[0]]
        while a != b:
            if a < b:
                group.old.append(left.pop(0))
                a *= old[group.old[-1]]
            else:
                group.new.append(right.pop(0))
                b *= new[group.new[-1]]
        groups.append(group)
    return groups


class Regrouping(NamedTuple):
    """How arrays in storage order are reshaped: transposed, split or merged, and transposed again.

    Attributes:
        axes: Old storage axes, those of a group side by side, the last one last; None where they are already.
        parts: Shape after splitting and merging.
        parts_words: The same for words.
        parts_grid: The same for the block grid.
        finish: The transposition that brings axes of blocks and lines to the end; None where they are.
        stored: The result's shape in storage order.
        words: Shape of its words.
        grid: Its block grid.
        layout: Its layout.
        cut: The group whose lines are cut off words or inside blocks: its codes are copied. None for views.
    """

    axes: Shape | None
    parts: Shape
    parts_words: Shape
    parts_grid: Shape
    finish: Shape | None
    stored: Shape
    words: Shape
    grid: Shape
    layout: Layout
    cut: Group | None


@lru_cache(maxsize=4096)
def regrouping(source: Source, shape: Shape) -> Regrouping | None:
    """How ``source`` is reshaped to ``shape`` if its blocks can follow, else None."""
    groups = groups_of(source.shape, shape)
    fits = [_fit(source, group, shape) for group in groups]
    orders = None if None in fits else _orders(source, shape, groups)
    if orders is None:
        return None
    axes, split, order = orders
    bits = source.scheme.element_bits
    extents = dict(zip(order, source.scheme.extents(len(shape)), strict=True))
    parts, stored = tuple(shape[axis] for axis in split), tuple(shape[axis] for axis in order)
    finish = tuple(split.index(axis) for axis in order if axis in split)
    return Regrouping(
        None if axes == tuple(range(len(axes))) else axes,
        parts,
        words_shape(parts, bits),
        grid_shape(parts, tuple(extents[axis] for axis in split)),
        None if finish == tuple(range(len(finish))) else finish,
        stored,
        words_shape(stored, bits),
        grid_shape(stored, tuple(extents[axis] for axis in order)),
        Layout(Layout(order).inverse),
        groups[fits.index("copy")] if "copy" in fits else None,
    )


def _orders(source: Source, shape: Shape, groups: list[Group]) -> tuple[Shape, Shape, Shape] | None:
    """Old storage axes, the new logical axes in their place, and these as they are stored in the end.

    An axis of blocks or lines that has size 1 becomes some new axis of size 1; None where there is none.
    Other new axes of size 1 stand beside their neighbours.
    """
    rank, order_of = len(source.shape), source.layout.order
    pinned = Geometry.of(source.scheme, rank).pinned
    ones = [axis for axis, n in enumerate(shape) if n == 1]
    kept = [axis for axis in range(rank - pinned, rank) if source.stored[axis] == 1]
    if len(kept) > len(ones) or len(shape) < pinned:
        return None
    homes, free = ones[len(ones) - len(kept) :], ones[: len(ones) - len(kept)]
    pieces = [([order_of[axis] for axis in group.old], group.new) for group in groups]
    pieces += [([axis], [home]) for axis, home in zip(kept, homes, strict=True)]
    pieces.sort(key=lambda piece: piece[0][-1])
    used = [axis for old, _ in pieces for axis in old]
    split = [axis for _, new in pieces for axis in new]
    tail = [new[-1] for old, new in pieces if old[-1] >= rank - pinned]
    order = [axis for axis in split if axis not in tail] + tail
    for axis in reversed(free):
        after = order.index(axis + 1) if axis + 1 in order else len(order)
        order.insert(min(after, len(order) - pinned), axis)
    dropped = [axis for axis in range(rank) if axis not in used]
    return (*dropped, *used), tuple(split), tuple(order)


def _fit(source: Source, group: Group, shape: Shape) -> str | None:
    """Whether a group's blocks follow as a ``view``, by a ``copy`` of codes, or not at all."""
    if len(group.old) == len(group.new) == 1:
        return "view"
    geometry = Geometry.of(source.scheme, len(source.shape))
    first_pinned = len(source.shape) - geometry.pinned
    *before, last = (source.layout.order[axis] for axis in group.old)
    if any(axis >= first_pinned for axis in before):
        return None
    cut, n = geometry.cuts(last), source.stored[last]
    if last < first_pinned or (n % cut == 0 and shape[group.new[-1]] % cut == 0):
        return "view"
    if last < len(source.shape) - 1 or source.scheme.block is None:
        return None
    return None if block_sources(source, group, shape) is None else "copy"


def block_sources(source: Source, group: Group, shape: Shape) -> Array | None:
    """Per new block of the group the old one it lies in, in row-major order; None if one lies in several."""
    extent, n, line = source.scheme.extents(len(source.shape))[-1], source.stored[-1], shape[group.new[-1]]
    lines = math.prod(shape[axis] for axis in group.new[:-1])
    within = np.arange(0, line, extent)
    starts = np.arange(lines)[:, None] * line + within
    ends = starts + np.minimum(extent, line - within) - 1
    first, last = ((at // n) * -(-n // extent) + at % n // extent for at in (starts, ends))
    return first.reshape(-1) if bool((first == last).all()) else None
