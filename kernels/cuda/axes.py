"""How operands lie along a result's axes: steps from place to place, and axes that can be walked as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .operand import WORD_BITS, Packed

Shape = tuple[int, ...]


class Span(NamedTuple):
    """An operand along one axis of the result.

    Attributes:
        step: From one place to the next: elements of an array, or bits of a packed operand. 0 repeats.
        scale: From one block's scale to the next.
        extent: Places a block.
    """

    step: int
    scale: int = 0
    extent: int = 1


STILL = Span(0)


def spans_of(operand: Any, shape: Shape) -> list[Span]:
    """An operand along every axis of a result of that shape, to which it broadcasts.

    Example:
        >>> import numpy as np
        >>> spans_of(np.zeros((3, 1), np.float32), (2, 3, 4))
        [Span(step=0, scale=0, extent=1), Span(step=1, scale=0, extent=1), Span(step=0, scale=0, extent=1)]
    """
    own = packed_spans(operand) if isinstance(operand, Packed) else dense_spans(operand)
    lead = len(shape) - len(own)
    return [STILL] * lead + [
        STILL if length == 1 else span for span, length in zip(own, logical_shape(operand), strict=True)
    ]


def logical_shape(operand: Any) -> Shape:
    """The shape that an operand has for ops."""
    if isinstance(operand, Packed) and operand.order is not None:
        return tuple(operand.shape[axis] for axis in operand.order)
    shape: Shape = operand.shape
    return shape


def dense_spans(array: Any) -> list[Span]:
    """The strides of an array, in elements."""
    return [Span(stride // array.itemsize) for stride in array.strides]


def packed_spans(packed: Packed) -> list[Span]:
    """A packed operand along its own axes, in their logical order."""
    rank = len(packed.shape)
    extents = (1,) * (rank - len(packed.extents)) + packed.extents if packed.extents else (0,) * rank
    spans = []
    for axis in range(rank):
        last = axis == rank - 1
        step = packed.codec.element.bits if last else packed.words.strides[axis] // 4 * WORD_BITS
        scale = packed.scales.strides[axis] // packed.scales.itemsize if extents[axis] else 0
        one = not scale or extents[axis] >= packed.shape[axis]
        spans.append(Span(step) if one else Span(step, scale, extents[axis]))
    return spans if packed.order is None else [spans[axis] for axis in packed.order]


def collapse(shape: Shape, operands: Sequence[Sequence[Span]]) -> tuple[Shape, list[list[Span]]]:
    """The same places on as few axes as possible: those of one place dropped, neighbours made one.

    The last axis stays, whatever its length. Of no axes it makes one of length 1.

    Args:
        shape: Of the result.
        operands: For every operand its spans along the result's axes.

    Example:
        >>> collapse((2, 3, 4), [[Span(12), Span(4), Span(1)], [Span(0), Span(0), Span(1)]])[0]
        (6, 4)
        >>> collapse((2, 3, 4), [[Span(12), Span(4), Span(1)]])
        ((24,), [[Span(step=1, scale=0, extent=1)]])
    """
    columns = list(zip(*operands, strict=True)) if operands else [()] * len(shape)
    axes = [(n, column) for n, column in zip(shape, columns, strict=True) if n != 1]
    if not axes or shape[-1] == 1:
        axes.append((1, columns[-1] if columns else (STILL,) * len(operands)))
    found = [axes[0]]
    for n, column in axes[1:]:
        outer_n, outer = found[-1]
        merged = [_merged(*pair, n) for pair in zip(outer, column, strict=True)]
        if None in merged:
            found.append((n, column))
        else:
            found[-1] = (outer_n * n, tuple(merged))
    lengths = tuple(n for n, _ in found)
    return lengths, [list(spans) for spans in zip(*[column for _, column in found], strict=True)]


def _merged(outer: Span, inner: Span, length: int) -> Span | None:
    """Two neighbours as one axis, the inner one of that length; None if they aren't one."""
    if outer.step != inner.step * length:
        return None
    if not outer.scale and not inner.scale:
        return Span(inner.step)
    blocks, over = divmod(length, inner.extent)
    if over or outer.extent != 1 or not inner.scale or outer.scale != inner.scale * blocks:
        return None
    return inner
