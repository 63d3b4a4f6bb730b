"""Arrays of any rank and strides as the five axes that kernels walk, and how they are cut into patches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import ShapeError

AXES = 5
# Values of a patch, and neighbours along the quickest axis, that make it worth a thread block.
PATCH_VALUES, NEIGHBOURS = 1024, 32
# Extents up to this one are the same for any shape; longer ones are cut to the axis, rounded up.
LEAST_CUT = 64
WORD_BITS = 32


class Axis(NamedTuple):
    """An axis: places along it, values from one to the next, block extent."""

    size: int
    stride: int
    extent: int


def five_axes(array: Any, extents: Sequence[int], bits: int) -> list[Axis] | None:
    """The axes of an array, joined where that changes no index; None where five aren't enough.

    Args:
        array: An array of at least one value.
        extents: Block extents of the trailing axes.
        bits: Of a code: lines that end on words may be joined; 32 where there are no lines.

    Example:
        >>> import numpy as np
        >>> five_axes(np.zeros((2, 3, 64), np.float32), (32,), 8)[-1]
        Axis(size=384, stride=1, extent=32)
        >>> five_axes(np.zeros((64, 6), np.float32).T, (32,), 8)[-2:]
        [Axis(size=6, stride=1, extent=1), Axis(size=64, stride=6, extent=32)]
    """
    shape = array.shape or (1,)
    strides = [stride // array.itemsize for stride in array.strides] or [1]
    padded = (1,) * (len(shape) - len(extents)) + tuple(extents)
    axes = [Axis(*axis) for axis in zip(shape, strides, padded, strict=True)]
    found: list[Axis] = []
    for i, axis in enumerate(axes):
        last = i == len(axes) - 1
        if axis.size == 1 and not last:
            continue
        if found and _joins(found[-1], axis, last, bits):
            axis = Axis(found.pop().size * axis.size, axis.stride, axis.extent)
        found.append(axis)
    if len(found) > AXES:
        return None
    return [Axis(1, 0, 1)] * (AXES - len(found)) + found


def _joins(outer: Axis, inner: Axis, last: bool, bits: int) -> bool:
    if outer.extent != 1 or outer.stride != inner.stride * inner.size:
        return False
    if not last:
        return inner.extent == 1
    return inner.size * bits % WORD_BITS == 0 and inner.size % inner.extent == 0


def too_many_axes(extents: Sequence[int]) -> ShapeError:
    """The error for blocks that span too many axes."""
    return ShapeError(
        f"quantize on a GPU: blocks of extents {tuple(extents)}",
        f"at most {AXES - 1} axes longer than 1 on a tensor with further axes, {AXES} otherwise",
        "Reshape the tensor so that a block spans fewer axes, or quantize on the CPU.",
    )


class Patch(NamedTuple):
    """How an array is cut up: extents of a block, of a patch, and the axis that threads walk along."""

    extents: tuple[int, ...]
    sizes: tuple[int, ...]
    fast: int


def patch_of(axes: Sequence[Axis], bits: int, whole: bool) -> Patch:
    """The patches of an array.

    Sizes depend on the shape by powers of two only, so that few kernels are compiled.

    Args:
        axes: Of the array.
        bits: Of a code.
        whole: Whether the tensor is one block, so that a patch is any part of it.

    Example:
        >>> lines = [Axis(1, 0, 1)] * 3 + [Axis(100, 50, 1), Axis(50, 1, 32)]
        >>> patch_of(lines, 8, whole=False)
        Patch(extents=(1, 1, 1, 1, 32), sizes=(1, 1, 1, 16, 64), fast=4)
    """
    extents = [axis.extent if axis.size >= axis.extent else _cut(axis) for axis in axes]
    sizes = extents.copy()
    sizes[-1] = math.lcm(sizes[-1], WORD_BITS // math.gcd(WORD_BITS, bits))
    moving = [i for i in range(AXES) if axes[i].size > 1]
    fast = min(moving, key=lambda i: (abs(axes[i].stride), -i), default=AXES - 1)
    while sizes[fast] < min(NEIGHBOURS, axes[fast].size):
        sizes[fast] *= 2
    for i in reversed(range(AXES)):
        while math.prod(sizes) < PATCH_VALUES and sizes[i] < axes[i].size:
            sizes[i] *= 2
    return Patch(tuple(sizes if whole else extents), tuple(sizes), fast)


def _cut(axis: Axis) -> int:
    return min(axis.extent, max(LEAST_CUT, 1 << (axis.size - 1).bit_length()))
