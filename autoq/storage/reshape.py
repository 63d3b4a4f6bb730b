"""Reshape of packed tensors: metadata where axes merge and split between blocks (S34-S36)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from .gather import encoded
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


class Moves(NamedTuple):
    """How the storage axes of a reshape move: transposed, split or merged, and transposed again.

    Attributes:
        axes: Old storage axes, those of a group side by side, the last one last.
        split: New logical axes in the place of ``axes``, most axes of size 1 left out.
        order: New logical axes as they are stored: those of blocks and lines last.
        grid: Grid of blocks over ``split``.
    """

    axes: Shape
    split: Shape
    order: Shape
    grid: Shape


def _regrouped(q: QTensor, shape: Shape) -> tuple[QTensor, str] | None:
    """The reshaped tensor where the blocks can follow, else None."""
    groups = groups_of(q.shape, shape)
    fits = [_fit(q, group, shape) for group in groups]
    moves = None if None in fits else _moves(q, shape, groups)
    if moves is None:
        return None
    bits, parts = q.scheme.element_bits, tuple(shape[axis] for axis in moves.split)
    layout, stored = Layout(Layout(moves.order).inverse), tuple(shape[axis] for axis in moves.order)
    grid = grid_shape(stored, q.scheme.extents(len(shape)))
    if "copy" in fits:
        codes = _transposed(unpack(q.words, bits, q.storage_shape), moves.axes).reshape(parts)
        words = pack(_ordered(codes, moves).reshape(stored), bits)
        scales = _source_scales(q, groups[fits.index("copy")], shape, moves)
    else:
        words = _ordered(_transposed(q.words, moves.axes).reshape(words_shape(parts, bits)), moves)
        words = words.reshape(words_shape(stored, bits))
        scales = _transposed(q.scales, moves.axes)
    scales = _ordered(scales.reshape(moves.grid), moves).reshape(grid)
    shared = np.may_share_memory(words, q.words) and np.may_share_memory(scales, q.scales)
    return QTensor.make(
        words, scales, q.tensor_scale, q.scheme, shape, layout
    ), "view" if shared else "copy"


def _transposed(array: Array, axes: Shape) -> Array:
    return array.transpose(axes) if len(axes) > 1 else array


def _ordered(array: Array, moves: Moves) -> Array:
    return _transposed(array, tuple(moves.split.index(axis) for axis in moves.order if axis in moves.split))


def _moves(q: QTensor, shape: Shape, groups: list[Group]) -> Moves | None:
    """The moves of a reshape whose groups fit; None if an axis of blocks or lines has no place to go.

    One that has size 1 becomes some new axis of size 1. Other new axes of size 1 stand beside their
    neighbours.
    """
    pinned = Geometry.of(q.scheme, q.ndim).pinned
    first = q.ndim - pinned
    ones = [axis for axis, n in enumerate(shape) if n == 1]
    kept = [axis for axis in range(first, q.ndim) if q.storage_shape[axis] == 1]
    if len(kept) > len(ones) or len(shape) < pinned:
        return None
    homes, free = ones[len(ones) - len(kept) :], ones[: len(ones) - len(kept)]
    order_of = q.layout.order
    pieces = [([order_of[axis] for axis in group.old], group.new) for group in groups]
    pieces += [([axis], [home]) for axis, home in zip(kept, homes, strict=True)]
    pieces.sort(key=lambda piece: piece[0][-1])
    used = [axis for old, _ in pieces for axis in old]
    split = [axis for _, new in pieces for axis in new]
    tail = [new[-1] for old, new in pieces if old[-1] >= first]
    order = [axis for axis in split if axis not in tail] + tail
    for axis in reversed(free):
        after = order.index(axis + 1) if axis + 1 in order else len(order)
        order.insert(min(after, len(order) - pinned), axis)
    extents = dict(zip(order, q.scheme.extents(len(shape)), strict=True))
    grid = grid_shape(tuple(shape[axis] for axis in split), tuple(extents[axis] for axis in split))
    dropped = [axis for axis in range(q.ndim) if axis not in used]
    return Moves((*dropped, *used), tuple(split), tuple(order), grid)


def _fit(q: QTensor, group: Group, shape: Shape) -> str | None:
    """Whether a group's blocks follow as a ``view``, by a ``copy`` of codes, or not at all."""
    if len(group.old) == len(group.new) == 1:
        return "view"
    geometry = Geometry.of(q.scheme, q.ndim)
    first_pinned = q.ndim - geometry.pinned
    *before, last = (q.layout.order[axis] for axis in group.old)
    if any(axis >= first_pinned for axis in before):
        return None
    cut, n = geometry.cuts(last), q.storage_shape[last]
    if last < first_pinned or (n % cut == 0 and shape[group.new[-1]] % cut == 0):
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


def _source_scales(q: QTensor, group: Group, shape: Shape, moves: Moves) -> Array:
    """For each new block the scale of the old one it lies in, the group's lines cut anew."""
    blocks = math.prod(q.shape[axis] for axis in group.old[:-1]) * q.scales.shape[-1]
    sources = _block_sources(q, group, shape)
    assert sources is not None
    return np.take(_transposed(q.scales, moves.axes).reshape(-1, blocks), sources, axis=1)
