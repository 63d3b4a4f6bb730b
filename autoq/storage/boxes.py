"""Boxes: how a large shape is cut into pieces that no block of any operand crosses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from ..schemes import QuantScheme
from .layout import Geometry, Shape
from .qtensor import QTensor

Box = tuple[slice, ...]


def box_extents(shape: Shape, cuts: Sequence[int], values: int) -> Shape:
    """The largest box of about ``values`` values whose edges are multiples of ``cuts``, trailing axes first.

    Example:
        >>> box_extents((100, 1000), (1, 32), 65536), box_extents((4, 100_000), (1, 32), 65536)
        ((65, 1000), (1, 65536))
    """
    extents = list(shape)
    for axis, (n, cut) in enumerate(zip(shape, cuts, strict=True)):
        whole = math.prod(extents)
        if whole <= values:
            break
        fit = values // (whole // n) // cut * cut
        extents[axis] = min(n, max(fit, cut))
    return tuple(extents)


def boxes(shape: Shape, extents: Shape) -> Iterator[Box]:
    """Boxes that cover ``shape``, in row-major order.

    Example:
        >>> [box[0].stop for box in boxes((5, 3), (2, 3))]
        [2, 4, 5]
    """
    axes = [
        [slice(start, min(start + extent, n)) for start in range(0, n, extent)]
        for n, extent in zip(shape, extents, strict=True)
    ]
    return itertools.product(*axes)


def cut_points(operands: Sequence[object], out: object, shape: Shape) -> Shape:
    """Per axis of the result the step at which every packed operand and the result may be cut."""
    rank = len(shape)
    cuts = [1] * rank
    if isinstance(out, QuantScheme):
        geometry = Geometry.of(out, rank)
        cuts = [1 if geometry.is_free(axis) else geometry.cuts(axis) for axis in range(rank)]
    for q in operands:
        if isinstance(q, QTensor):
            geometry = Geometry.of(q.scheme, q.ndim)
            for logical, stored in enumerate(q.layout.order):
                axis = rank - q.ndim + logical
                if not geometry.is_free(stored) and q.shape[logical] != 1:
                    cuts[axis] = math.lcm(cuts[axis], geometry.cuts(stored))
    return tuple(cuts)
