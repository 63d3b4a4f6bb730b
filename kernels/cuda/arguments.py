"""Which arrays of operands and results a kernel takes, worked out once and picked at every launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..codec import Codec
from .decode import scale_type
from .launch import SIMULATED
from .task import Task, pointer_type


class Pick(NamedTuple):
    """What is taken of an operand.

    Attributes:
        place: Its number.
        packed: Whether it is packed.
        two_level: Whether its tensor scale is taken too.
        view: What the simulator reads an array, or the scales of a packed one, as; None for what it is.
    """

    place: int
    packed: bool
    two_level: bool
    view: Any


def picks_of(task: Task) -> tuple[Pick, ...]:
    """Of the operands."""
    return tuple(_pick(each.place, each.kind, each.width) for each in task.inputs)


def result_picks(task: Task) -> tuple[Pick, ...] | None:
    """Of the result; None for sums and largest magnitudes."""
    kind = task.output.kind
    return None if kind in ("amax", "sum") else (_pick(0, kind, task.values),)


def _pick(place: int, kind: Any, wide: Any) -> Pick:
    if isinstance(kind, Codec):
        return Pick(place, True, kind.two_level, np.dtype(scale_type(kind)) if SIMULATED else None)
    return Pick(place, False, False, np.dtype(pointer_type(kind, wide)[:-1]) if SIMULATED else None)


def arrays_of(picks: Sequence[Pick], operands: Sequence[Any]) -> list[Any]:
    """The arrays, in the order of the kernel's parameters."""
    found: list[Any] = []
    for place, packed, two_level, view in picks:
        operand = operands[place]
        if packed:
            found.append(operand.words)
            found.append(operand.scales if view is None else operand.scales.view(view))
            if two_level:
                found.append(operand.tensor_scale)
        else:
            found.append(operand if view is None else operand.view(view))
    return found


def addresses_of(picks: Sequence[Pick], operands: Sequence[Any]) -> list[Any]:
    """The same as addresses: packed operands give theirs as ``addresses``."""
    found: list[Any] = []
    for place, packed, _, _ in picks:
        if packed:
            found += operands[place].addresses
        else:
            found.append(operands[place].data.ptr)
    return found
