"""Reshape of packed tensors: metadata where axes merge and split between blocks (S34-S36)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from .gather import encoded, worst
from .layout import Array, Geometry, Layout, Shape, grid_shape, words_shape
from .packing import pack, unpack
from .qtensor import QTensor


def resolve_shape(old: Shape, new: int | Sequence[int]) -> Shape:
    """The target of a reshape with its -1 filled in.

    Raises:
        ShapeError: If the sizes differ, or -1 appears twice or can't be filled.

    Example:
        >>> resolve_shape((4, 6), (2, -1))
        (2, 12)
    """
    shape = tuple(int(n) for n in (new if isinstance(new, Sequence | np.ndarray) else (new,)))
    known = math.prod(n for n in shape if n != -1)
    size = math.prod(old)
    unknown = shape.count(-1)
    if unknown == 1 and known and size % known == 0:
        shape = tuple(size // known if n == -1 else n for n in shape)
    if min(shape, default=1) < 0 or math.prod(shape) != size:
        raise ShapeError(
            f"reshape: a tensor of shape {old} to {shape}",
            f"a shape of {size} values, at most one -1",
            "Change the target shape.",
        )
    return shape


def reshape(q: QTensor, shape: int | Sequence[int]) -> tuple[Any, str]:
    """Reshape in logical row-major order.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.ones((2, 5, 64), np.float32), scheme("mxfp8"))
        >>> reshape(q, (2, 5, 2, 32))[1], reshape(q, (10, 64))[1], reshape(q, (2, 320))[1]
        ('view', 'view', 'view')
    """
    shape = resolve_shape(q.shape, shape)
    if shape == q.shape:
        return q, "view"
    if q.size == 0:
        return _empty(q, shape), "copy"
    result = _regrouped(q, shape)
    if result is not None:
        return result
    if q.scheme.block is None:
        words = pack(q.codes().reshape(shape), q.scheme.element_bits)
        scales = q.scales.reshape((1,) * len(shape))
        return QTensor.make(words, scales, None, q.scheme, shape), "copy"
    from .move import contiguous

    straight, how = contiguous(q)
    result = None if straight.layout == q.layout else _regrouped(straight, shape)
    if result is not None:
        return result[0], worst(how, result[1], "copy")
    return encoded(q.dequantize().reshape(shape), q.scheme), "decode"


def _empty(q: QTensor, shape: Shape) -> QTensor:
    """A tensor without values of another shape: only a shared scale is kept."""
    scheme = q.scheme.innermost(len(shape)) if len(q.scheme.block or ()) > len(shape) else q.scheme
    grid = grid_shape(shape, scheme.extents(len(shape)))
    scales = np.resize(q.scales, grid) if scheme.block is None else np.empty(grid, q.scales.dtype)
    words = np.empty(words_shape(shape, scheme.element_bits), np.uint32)
    return QTensor.make(words, scales, q.tensor_scale, scheme, shape)


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


def _regrouped(q: QTensor, shape: Shape) -> tuple[QTensor, str] | None:
    """The reshaped tensor where the blocks can follow, else None."""
    groups = groups_of(q.shape, shape)
    order = _storage_order(q, shape, groups)
    fits = [_fit(q, group, shape) for group in groups]
    if order is None or None in fits:
        return None
    stored = tuple(shape[axis] for axis in order)
    layout = Layout(Layout(order).inverse)
    grid = grid_shape(stored, q.scheme.extents(len(shape)))
    if "copy" in fits:
        words, scales = _repacked(q, groups[fits.index("copy")], shape, stored)
        return QTensor.make(words, scales.reshape(grid), q.tensor_scale, q.scheme, shape, layout), "copy"
    words = q.words.reshape(words_shape(stored, q.scheme.element_bits))
    scales = q.scales.reshape(grid)
    shared = np.may_share_memory(words, q.words) and np.may_share_memory(scales, q.scales)
    return QTensor.make(
        words, scales, q.tensor_scale, q.scheme, shape, layout
    ), "view" if shared else "copy"


def _storage_order(q: QTensor, shape: Shape, groups: list[Group]) -> Shape | None:
    """New logical axes in storage order: each group in its place, axes of size 1 beside their neighbours.

    An axis of blocks or lines that has size 1 becomes some new axis of size 1; None where there is none.
    """
    pinned = Geometry.of(q.scheme, q.ndim).pinned
    stored = q.storage_shape
    ones = [axis for axis, n in enumerate(shape) if n == 1]
    kept = stored[q.ndim - pinned :].count(1)
    if kept > len(ones) or len(shape) < pinned:
        return None
    homes, free = ones[len(ones) - kept :], ones[: len(ones) - kept]
    start = {q.layout.order[group.old[0]]: group.new for group in groups}
    order: list[int] = []
    for axis, n in enumerate(stored):
        if n != 1:
            order += start.get(axis, [])
        elif axis >= q.ndim - pinned:
            order.append(homes.pop(0))
    for axis in reversed(free):
        after = order.index(axis + 1) if axis + 1 < len(shape) and axis + 1 in order else len(order)
        order.insert(min(after, len(order) - pinned), axis)
    return tuple(order)


def _fit(q: QTensor, group: Group, shape: Shape) -> str | None:
    """Whether a group's blocks follow as a ``view``, by a ``copy`` of codes, or not at all."""
    if len(group.old) == len(group.new) == 1:
        return "view"
    geometry, stored = Geometry.of(q.scheme, q.ndim), q.storage_shape
    axes = [q.layout.order[axis] for axis in group.old]
    between = [axis for axis in range(axes[0], axes[-1] + 1) if stored[axis] != 1]
    first_pinned = q.ndim - geometry.pinned
    if axes != between or any(axis >= first_pinned for axis in axes[:-1]):
        return None
    last = axes[-1]
    cut = geometry.cuts(last)
    if last < first_pinned or (stored[last] % cut == 0 and shape[group.new[-1]] % cut == 0):
        return "view"
    if last < q.ndim - 1 or q.scheme.block is None:
        return None
    return None if _block_sources(q, group, shape) is None else "copy"


def _block_sources(q: QTensor, group: Group, shape: Shape) -> Array | None:
    """Per new block of the group the old one it lies in, in row-major order; None if one lies in several."""
    extent, n, line = q.scheme.extents(q.ndim)[-1], q.storage_shape[-1], shape[group.new[-1]]
    lines = math.prod(shape[axis] for axis in group.new[:-1])
    within = np.arange(0, line, extent)
    starts = np.arange(lines)[:, None] * line + within
    ends = starts + np.minimum(extent, line - within) - 1
    first, last = ((at // n) * -(-n // extent) + at % n // extent for at in (starts, ends))
    return first.reshape(-1) if bool((first == last).all()) else None


def _repacked(q: QTensor, group: Group, shape: Shape, stored: Shape) -> tuple[Array, Array]:
    """Words of lines cut anew, and the scale of the old block for each new one, (outer, blocks)."""
    bits = q.scheme.element_bits
    words = pack(unpack(q.words, bits, q.storage_shape).reshape(stored), bits)
    rows = math.prod(q.shape[axis] for axis in group.old[:-1]) * q.scales.shape[-1]
    sources = _block_sources(q, group, shape)
    assert sources is not None
    return words, np.take(q.scales.reshape(-1, rows), sources, axis=1)
