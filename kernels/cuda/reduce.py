"""Sums of expressions over axes: packed operands are decoded where they are added, nothing is decoded whole.

Extrema of arrays are taken the same way.

The order of additions depends on shapes alone, and no atomic operation takes part: equal calls have equal
bits, whatever else the device does and however many multiprocessors it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .arguments import Pick, arrays_of, picks_of
from .axes import Shape, Span, collapse, spans_of
from .launch import SIMULATED, Kernel, current_device, empty, grid
from .map import SMALL, chosen_operands, input_of, signature
from .task import Output, Task, step_arguments
from .totals import Sum, sum_kernel
from .trace import Expression, traced

WARP, BLOCK = 32, 256
# Threads that share a sum of up to so many values; a block of them shares longer ones.
SHARES = ((8, 64), (WARP, 2048))
EACH = 64  # values that a thread adds
IDENTITY = traced(lambda x: x, "f")
# The divisor of a sum, or the start of an extremum, that changes nothing.
NEUTRAL = {"add": 1.0, "maximum": -np.inf, "minimum": np.inf}

_launches: dict[tuple[Any, ...], SumLaunch] = {}
LAUNCHES = 4096


class SumLaunch(NamedTuple):
    """How a sum is launched.

    Attributes:
        held: Objects whose identity is part of the key.
        picks: The operands' arrays that it takes.
        kernel: The kernel.
        blocks: Blocks, of ``threads``.
        threads: Threads a block.
        integers: What follows the divisor.
        parts: Results a sum; more than one are added in another launch.
        partial: The results' shape: kept places and parts in either order.
        axis: The parts' axis.
    """

    held: tuple[Any, ...]
    picks: tuple[Pick, ...]
    kernel: Kernel
    blocks: int
    threads: int
    integers: tuple[int, ...]
    parts: int
    partial: tuple[int, int]
    axis: int


def summed(
    expression: Expression,
    operands: Sequence[Any],
    numbers: Sequence[float],
    shape: Shape,
    axes: tuple[int, ...],
    divisor: float = 1.0,
    join: str = "add",
) -> Any:
    """The sum of an expression over axes, divided by a number.

    Args:
        expression: Of ``traced``.
        operands: By their numbers in the expression, as ``mapped`` takes them.
        numbers: By their numbers in the expression.
        shape: What the operands broadcast to; no axis is empty.
        axes: The axes to sum over, from 0 on.
        divisor: What the sum is divided by; of an extremum one more value.
        join: ``"add"``; ``"maximum"`` or ``"minimum"`` for extrema, NaN where one value is.

    Returns:
        A float32 array of the shape without the axes.

    Example:
        >>> x = np.ones((2, 3), np.float32)
        >>> if SIMULATED:
        ...     summed(traced(np.square, "f").expression, [x], (), (2, 3), (1,))
    """
    key: tuple[Any, ...] = (expression, shape, axes, join, 0 if SIMULATED else current_device())
    key += tuple([signature(operand) for operand in operands])
    launch = _launches.get(key)
    if launch is None:
        if len(_launches) >= LAUNCHES:
            _launches.clear()
        launch = _launches[key] = planned(expression, operands, shape, axes, join)
    used = [numbers[step[1]] for step in expression.steps if step[0] == "number"]
    out = empty(launch.partial, np.float32)
    last = divisor if launch.parts == 1 else NEUTRAL[join]
    launch.kernel(
        launch.blocks,
        launch.threads,
        *arrays_of(launch.picks, operands),
        out,
        *used,
        last,
        *launch.integers,
    )
    if launch.parts > 1:
        assert IDENTITY is not None
        out = summed(IDENTITY.expression, [out], (), launch.partial, (launch.axis,), divisor, join)
    return out.reshape(tuple([n for axis, n in enumerate(shape) if axis not in axes]))


def extremum(
    x: Any, axes: tuple[int, ...], largest: bool, start: float | None = None, shape: Shape | None = None
) -> Any:
    """The largest or smallest values over axes, subnormal ones too; NaN where one is.

    Args:
        x: float32, of any strides, or Packed; no axis is empty.
        axes: From 0 on, at least one.
        largest: The maximum, else the minimum.
        start: One more value to compare with each.
        shape: What ``x`` broadcasts to; an array's own shape by default.

    Returns:
        A float32 array without the axes.
    """
    assert IDENTITY is not None
    join = "maximum" if largest else "minimum"
    start = NEUTRAL[join] if start is None else start
    return summed(IDENTITY.expression, [x], (), x.shape if shape is None else shape, axes, start, join)


def planned(
    expression: Expression, operands: Sequence[Any], shape: Shape, axes: tuple[int, ...], join: str = "add"
) -> SumLaunch:
    """The launch of a sum."""
    chosen = chosen_operands(expression, operands, shape)
    spans = [spans_of(operand, shape) for operand in chosen.values()]
    stay = [axis for axis in range(len(shape)) if axis not in axes]
    kept, kept_spans = collapse(*_picked(shape, spans, stay))
    over, over_spans = collapse(*_picked(shape, spans, list(axes)))
    walked = [a + b for a, b in zip(kept_spans, over_spans, strict=True)]
    inputs = tuple(input_of(i, x, own) for (i, x), own in zip(chosen.items(), walked, strict=True))
    places, length, rank = prod(kept), prod(over), len(kept) + len(over)
    task = Task(expression, inputs, Output("sum"), rank, 0, places * length < SMALL, False)
    shared = _runs_along(walked, len(kept)) or places == 1
    threads = next((share for share, most in SHARES if length <= most), BLOCK) if shared else 0
    part = EACH * max(threads, 1)
    parts = -(-length // part)
    count = places * parts
    block = (WARP if SIMULATED else BLOCK) if threads < BLOCK else BLOCK
    integers = [count, parts if shared else places, length, *kept, *over, *step_arguments(task, walked)]
    held = tuple(each.codec for each in chosen.values() if hasattr(each, "codec"))
    return SumLaunch(
        held,
        picks_of(task),
        sum_kernel(Sum(task, len(kept), threads, part, join)),
        grid(count * max(threads, 1), block),
        block,
        tuple(integers),
        parts,
        (places, parts) if shared else (parts, places),
        1 if shared else 0,
    )


def _picked(shape: Shape, spans: list[list[Span]], axes: list[int]) -> tuple[Shape, list[list[Span]]]:
    return tuple(shape[axis] for axis in axes), [[own[axis] for axis in axes] for own in spans]


def _runs_along(spans: list[list[Span]], kept: int) -> bool:
    """Whether neighbours in memory are summed, rather than kept: of the first operand that tells."""
    for own in spans:
        inner, outer = abs(own[-1].step), abs(own[kept - 1].step)
        if inner or outer:
            return bool(inner) and (not outer or inner < outer)
    return True
