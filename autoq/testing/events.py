"""What is recorded of each operation, encodes above all, and by which key a replay finds it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from autoq.storage import QTensor
from autoq.tape.checkpoint import Segment
from autoq.tape.op import Op
from autoq.testing.choices import Choices
from autoq.testing.failures import ControlFlowDiverged
from autoq.types import TensorType

Array = np.ndarray[Any, np.dtype[Any]]
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PROGRAMS = os.path.join(_PACKAGE, "nn")


@dataclass(eq=False)
class Event:
    """One encode: what went in, what came out, and the estimator between their changes.

    Attributes:
        value: v0, what was encoded.
        decoded: q0, what the codes mean.
        estimator: E, from the changes of the operation's operands (of the value, for an op's output) to the
            change of the result.
        encode: From float64 values to packed ones.
        operands: Whether the estimator takes all operands' changes.
        kept: False where a block isn't finite, which is left out; None for nowhere.
    """

    value: Array
    decoded: Array
    estimator: Callable[..., Array]
    encode: Callable[[Array], Any]
    operands: bool = False
    kept: Array | None = None

    def result(self, change: Sequence[Any]) -> Array:
        """q0 + E(v - v0)."""
        with np.errstate(all="ignore"):
            moved = self.decoded + self.estimator(*change)
        return moved if self.kept is None else np.where(self.kept, moved, 0.0)


@dataclass(eq=False)
class Call:
    """One operation of the recorded run.

    Attributes:
        key: Call path and ordinal on it.
        op: The record.
        static: Its static arguments, draws included: a replay uses these.
        type: The result's type.
        value: The result as stored: float64 values, or packed ones.
        operands: The operands' float64 values.
        tensors: The operands.
        tracked: Whether a gradient reaches the result; it is a constant otherwise.
        choices: The branches of its forward.
        event: The encode at its end, if there is one.
        note: How a layout op moved packed values.
        dense: The float64 result before any encode.
        regular: For an element-wise op, False where a slope isn't finite, which is left out.
        tied: For an element-wise op, where a kink was hit: the mask, and by operand the rule's slope there.
        saved: The residuals that backward reads.
    """

    key: tuple[str, int]
    op: Op
    static: dict[str, Any]
    type: TensorType
    value: Any
    operands: list[Any]
    tensors: list[Any]
    tracked: bool = False
    choices: Choices = field(default_factory=Choices)
    event: Event | None = None
    note: str = ""
    dense: Array | None = None
    regular: Array | None = None
    tied: tuple[Array, dict[int, Array]] | None = None
    saved: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        path, ordinal = self.key
        kind = self.value.scheme.name if isinstance(self.value, QTensor) else self.type.dtype.name
        again = f", time {ordinal + 1}" if ordinal else ""
        return f"{self.op.name} -> {kind} {self.value.shape} at {path or 'the top'}{again}"


class Calls:
    """The calls of a run in order, with the place where a replay stands."""

    def __init__(self) -> None:
        self.made: list[Call] = []
        self._count: dict[str, int] = {}
        self._next = 0

    def key(self) -> tuple[str, int]:
        """Call path and ordinal of the operation that runs now."""
        path = call_path()
        ordinal = self._count.get(path, 0)
        self._count[path] = ordinal + 1
        return path, ordinal

    def rewind(self) -> None:
        """Start a replay."""
        self._next, self._count = 0, {}

    def follow(self, op: Op, shapes: list[Any]) -> Call:
        """The recorded call that an operation of a replay repeats.

        Raises:
            ControlFlowDiverged: The recorded run did something else here.
        """
        key = self.key()
        found = self.made[self._next] if self._next < len(self.made) else None
        self._next += 1
        recorded = None if found is None else [np.shape(x) for x in found.operands]
        if found is None or found.key != key or found.op.name != op.name or recorded != shapes:
            raise diverged(f"{op.name} of shapes {shapes} at {key[0] or 'the top'}", found)
        return found

    def finish(self) -> None:
        """End a replay.

        Raises:
            ControlFlowDiverged: The recorded run went on.
        """
        if self._next < len(self.made):
            raise diverged("the end of the program", self.made[self._next])


def diverged(now: str, recorded: Call | None) -> ControlFlowDiverged:
    """The error of a program that took another way than the recorded one."""
    where = now.rpartition(" at ")[2] if " at " in now else str(recorded).rpartition(" at ")[2]
    return ControlFlowDiverged(
        f"control flow diverged at {where}: now {now}, recorded {recorded or 'the end of the program'}.",
        "the same operations and encodes in the same order, however the inputs move by a small step",
        "Decide on what .item() or a comparison gives, not on arrays kept from an earlier call.",
    )


def call_path(until: Any = None) -> str:
    """The functions between the checked program, or a frame, and the operation; the outermost first."""
    names: list[str] = []
    frame: Any = sys._getframe(1)
    while frame is not None and frame is not until and frame.f_code.co_name != PROGRAM:
        if _is_program(frame.f_code):
            names.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return "/".join(reversed(names))


@lru_cache(maxsize=4096)
def _is_program(code: Any) -> bool:
    """Whether code is the program's own, or a module's: not the engine's."""
    file = os.path.abspath(code.co_filename)
    return not file.startswith(_PACKAGE) or file.startswith(_PROGRAMS)


class Recomputed:
    """The calls within checkpoints, by segment: what is computed again in backward must repeat them."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, str, int], Call] = {}
        self._frame: Any = None
        self._count: dict[str, int] = {}

    def record(self, call: Call) -> None:
        """Note a call of the recorded run, if it is within a checkpoint."""
        key = self._key()
        if key is not None:
            self._calls[key] = call

    def check(self, call: Call) -> None:
        """Compare a call of a backward pass with the one it repeats.

        Raises:
            ControlFlowDiverged: It is another one, or encodes to other codes.
        """
        key = self._key()
        if key is None or not any(known[0] == key[0] for known in self._calls):
            return
        found = self._calls.get(key)
        same = found is not None and found.op.name == call.op.name and _same_value(found.value, call.value)
        if not same:
            call.key = (key[1], key[2])
            raise diverged(f"{call}, computed again", found)

    def _key(self) -> tuple[int, str, int] | None:
        frame = _segment_frame()
        if frame is None:
            return None
        if frame is not self._frame:
            self._frame, self._count = frame, {}
        path = call_path(frame)
        ordinal = self._count.get(path, 0)
        self._count[path] = ordinal + 1
        return id(frame.f_locals["self"]), path, ordinal


def _segment_frame() -> Any:
    """The innermost run of a checkpoint's segment around the operation."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != PROGRAM:
        if frame.f_code is Segment.run.__code__:
            return frame
        frame = frame.f_back
    return None


def _same_value(a: Any, b: Any) -> bool:
    if isinstance(a, QTensor) and isinstance(b, QTensor):
        return a.same_bits(b)
    return not isinstance(a, QTensor) and not isinstance(b, QTensor) and np.array_equal(a, b, equal_nan=True)


PROGRAM = "run_checked_program"


def run_checked_program(f: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Call a program under check: call paths begin here."""
    return f(*arguments)
