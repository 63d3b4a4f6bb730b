"""What a map kernel depends on, as hashable records, and the parameters that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..codec import Codec
from .axes import Span
from .decode import scale_type
from .trace import Expression

HALVES = ("float16", "bfloat16")
WORD = 32


class Move(NamedTuple):
    """How an operand moves along an axis.

    Attributes:
        step: Whether it moves at all; how far is a parameter.
        extent: Places a block with a scale of its own; 0 where the scale stays.
        line: Whether it moves along a line of codes.
        near: Whether the next block's scale is the next one in memory; else how far is a parameter.
    """

    step: bool
    extent: int = 0
    line: bool = False
    near: bool = False


class Input(NamedTuple):
    """An operand as a kernel reads it.

    Attributes:
        place: Its number in the expression.
        kind: ``"float32"``, ``"float16"``, ``"bfloat16"``, ``"bool"``, or the codec of a packed one.
        moves: Along every axis.
        width: 32-bit words of a wide load in the walk by lanes; 0 reads values one by one.
    """

    place: int
    kind: Any
    moves: tuple[Move, ...]
    width: int = 0

    @property
    def is_packed(self) -> bool:
        """Whether it is packed."""
        return isinstance(self.kind, Codec)

    @property
    def repeats(self) -> bool:
        """Whether it has one value along the last axis."""
        return not any(self.moves[-1])

    def passes_step(self, axis: int) -> bool:
        """Whether the step along an axis is a parameter: not that along a line, or from lane to lane."""
        last = axis == len(self.moves) - 1
        return self.moves[axis].step and not self.moves[axis].line and not (last and self.width)


class Output(NamedTuple):
    """The result as a kernel writes it.

    Attributes:
        kind: As of an input; or ``"amax"``, which writes no value but the largest magnitudes.
        block: Values a block of a packed one; 0 where the whole tensor has one scale.
    """

    kind: Any
    block: int = 0

    @property
    def is_packed(self) -> bool:
        """Whether it is packed."""
        return isinstance(self.kind, Codec)

    @property
    def needs_amax(self) -> bool:
        """Whether the tensor's largest magnitude is an argument."""
        return self.is_packed and (self.kind.two_level or not self.block)


class Task(NamedTuple):
    """All that a map kernel depends on.

    Attributes:
        expression: What is computed.
        inputs: The operands.
        output: The result.
        rank: Axes of the walk.
        values: Neighbours that a lane takes; 0 for the walk by items.
        small: Whether items and lengths fit 31 bits, for quicker division.
        converts: Whether the device converts to and from E4M3 and E5M2.
        ragged: Whether lines end within a lane, or blocks after the line's end.
    """

    expression: Expression
    inputs: tuple[Input, ...]
    output: Output
    rank: int
    values: int
    small: bool
    converts: bool
    ragged: bool = False


def parameters_of(task: Task) -> list[tuple[str, str]]:
    """Names and types: the operands' arrays, the result's, numbers, lengths, steps."""
    found = array_parameters(task) + _results_of(task.output, bool(task.values))
    found += [(f"p{step[1]}", "float32") for step in task.expression.steps if step[0] == "number"]
    found += [("count", "int64"), ("last", "int64")]
    if task.ragged or (task.output.is_packed and not task.values):
        found += [("per_line", "int64")]
    found += [(f"n{axis}", "int64") for axis in range(1, task.rank - 1)]
    return found + step_parameters(task)


def array_parameters(task: Task) -> list[tuple[str, str]]:
    """Names and types of the operands' arrays."""
    return [parameter for each in task.inputs for parameter in _arrays_of(each)]


def step_parameters(task: Task) -> list[tuple[str, str]]:
    """Names and types of the operands' steps."""
    return [(name, "int64") for _, _, _, name in steps_of(task)]


def _arrays_of(each: Input) -> list[tuple[str, str]]:
    at = each.place
    if isinstance(each.kind, Codec):
        level = [(f"t{at}", "float32*")] if each.kind.two_level else []
        return [(f"w{at}", "uint32*"), (f"s{at}", f"{scale_type(each.kind)}*"), *level]
    return [(f"x{at}", pointer_type(each.kind, each.width))]


def _results_of(output: Output, lanes: bool) -> list[tuple[str, str]]:
    if output.kind == "amax":
        return [("amax", "uint32*")]
    if not isinstance(output.kind, Codec):
        return [("out", pointer_type(output.kind, lanes))]
    found = [("words", "uint32*"), ("scales", f"{scale_type(output.kind)}*")]
    found += [("level_out", "float32*")] if output.kind.two_level else []
    return found + ([("amax", "uint32*")] if output.needs_amax else [])


def pointer_type(kind: str, wide: Any) -> str:
    """How an array is passed: floats of 16 bits and bools as words where they are read several at once."""
    if kind == "float32":
        return "float32*"
    return "uint32*" if wide else ("uint16*" if kind in HALVES else "uint8*")


def steps_of(task: Task) -> Iterator[tuple[int, int, str, str]]:
    """The steps that are parameters: number of the input, axis, field of its span, name."""
    for number, each in enumerate(task.inputs):
        for axis, move in enumerate(each.moves):
            if each.passes_step(axis):
                yield number, axis, "step", f"a{each.place}_{axis}"
            if move.extent and not move.near:
                yield number, axis, "scale", f"b{each.place}_{axis}"


def step_arguments(task: Task, spans: Sequence[Sequence[Span]]) -> list[int]:
    """The values of those parameters; steps of packed operands in words."""
    found = []
    for number, axis, field, _ in steps_of(task):
        value = getattr(spans[number][axis], field)
        found.append(value // WORD if field == "step" and task.inputs[number].is_packed else value)
    return found


def moves_of(spans: Sequence[Span], bits: int = 0) -> tuple[Move, ...]:
    """Spans as moves; ``bits`` is the width of a packed operand's codes.

    Example:
        >>> moves_of([Span(256, 1), Span(8, 1, 32)], 8)
        (Move(step=True, extent=1, line=False, near=True), Move(step=True, extent=32, line=True, near=True))
    """
    return tuple(
        Move(
            span.step != 0,
            span.extent if span.scale else 0,
            bool(bits) and span.step % WORD != 0,
            span.scale == 1,
        )
        for span in spans
    )
