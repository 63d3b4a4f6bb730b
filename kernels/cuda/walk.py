"""Walking arrays of any strides: axes put in order and joined on the host, places worked out in kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..bind import scalar

# Axes that a kernel walks; what has more that can't be joined is launched in parts.
MOST_AXES = 4
W = np.uint64


class Axis(NamedTuple):
    """An axis as kernels walk it.

    Attributes:
        size: Places along it.
        block: Places that share a scale; 0 where all do.
        words: Words from one place to the next; on the axis that runs along lines, not regarded.
        scales: Scales from one block to the next.
        out: Values from one place to the next in the dense array.
        line: Whether it runs along lines of codes.
    """

    size: int
    block: int
    words: int
    scales: int
    out: int
    line: bool = False


def joined(axes: Sequence[Axis]) -> list[Axis]:
    """The same places on fewer axes: without those of one place, neighbours in one step made one.

    Example:
        >>> joined([Axis(3, 1, 8, 2, 32), Axis(2, 1, 4, 1, 16), Axis(16, 16, 1, 1, 1, line=True)])
        [Axis(size=6, block=1, words=4, scales=1, out=16, line=False),
         Axis(size=16, block=16, words=1, scales=1, out=1, line=True)]
    """
    found: list[Axis] = []
    for axis in axes:
        if axis.size == 1 and not axis.line:
            continue
        if found and _join(found[-1], axis):
            axis = axis._replace(size=found.pop().size * axis.size)
        found.append(axis)
    return found


def _join(outer: Axis, inner: Axis) -> bool:
    """Whether two axes are one: each place of the outer is the whole of the inner further."""
    same_scales = outer.scales == inner.scales * inner.size and outer.block == inner.block == 1
    return (
        not inner.line
        and not outer.line
        and outer.words == inner.words * inner.size
        and outer.out == inner.out * inner.size
        and (same_scales or outer.block == inner.block == 0)
    )


def shifts(block: int) -> int:
    """By how many bits a place is shifted to give its block, of extents that are powers of two or 0."""
    return block.bit_length() - 1 if block else 62


def divider(powers: bool) -> Callable[..., Any]:
    """``block_of(place, block)``: the block of a place, by a shift where blocks are powers of two."""

    @scalar
    def shifted(place, block):
        return place >> block

    return shifted if powers else quotient


@scalar
def quotient(a, b):
    """``a // b`` of numbers that aren't negative."""
    return np.int64(W(W(a) // W(b)))


def locator(rank: int, line: int, run: int, powers: bool) -> Callable[..., Any]:
    """``locate(item, size, words, out, scales, block) -> (word, place, scale, code)``.

    Items are numbered along the axes, the last one quickest; the results are where an item's line of words,
    its value in the dense array and its scale are, and its code in the line.

    Args:
        rank: Axes, at most ``MOST_AXES``.
        line: The axis that runs along lines.
        run: Codes an item has along it.
        powers: Whether ``block`` holds shifts.
    """
    block_of = divider(powers)

    @scalar
    def locate(item, size, words, out, scales, block):
        rest, word, place, scale, code = item, np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        for back in range(rank):
            axis = rank - 1 - back
            above = quotient(rest, size[axis]) if axis else np.int64(0)
            at = np.int64(rest - above * size[axis])
            rest = above
            if axis == line:
                at = at * run
                code = at
            else:
                word += at * words[axis]
            place += at * out[axis]
            scale += block_of(at, block[axis]) * scales[axis]
        return word, place, scale, code

    return locate
