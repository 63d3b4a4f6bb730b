"""Running a program in float64: recorded once, then repeated with every rounding and branch frozen.

The first run records each operation: what every encode got (v0) and gave (q0), which branches a forward took,
what left the tape. A replay runs the program again on moved inputs with each encode replaced by
``q0 + E(v - v0)``. That function is smooth, and its true derivative is the straight-through gradient.

All of it is computed on the CPU: inputs, and what a program reads beside them, are copied to the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from autoq.context import Observer, current, observing, using
from autoq.devices import to_host
from autoq.storage import QTensor
from autoq.tape.apply import _recorded
from autoq.tape.gradient import walk
from autoq.tape.node import LEAF, Node
from autoq.tape.op import Op
from autoq.tape.tensor import Tensor
from autoq.testing.branches import BRANCHES
from autoq.testing.choices import choosing, plain, watched
from autoq.testing.evaluate import Evaluated, evaluate, forward
from autoq.testing.events import Array, Call, Calls, Recomputed, run_checked_program
from autoq.testing.exact import constant, exact_tensor, is_exact, on_host, stored_float64, values_of
from autoq.testing.rules import noting_residual, slopes, without
from autoq.types import TensorType, float64


class Session(Observer):
    """One program under check.

    Args:
        f: A function of tensors.
        arguments: Its arguments: ``Input`` for those that move, anything else as it is.

    Attributes:
        calls: The recorded run.
        residuals: By call of ``quantize_grad``, rho = Q(g) - g of the last gradient.
        ledger: By call of ``quantize_grad``, its operand in the last run.
        steepest: The largest cotangent that the last gradient met.
    """

    def __init__(self, f: Any, arguments: Sequence[Any]) -> None:
        self.f, self.arguments = f, arguments
        self.calls = Calls()
        self.residuals: dict[Call, Array] = {}
        self.ledger: dict[Call, Array] = {}
        self.steepest = 0.0
        self._phase = "free"
        self._recomputed = Recomputed()

    def record(self) -> tuple[Any, list[Any]]:
        """Run the program the first time: its result, and its leaves."""
        return self._run("record", [x.value_exact for x in self._inputs])

    def replay(self, values: Sequence[Array], decoded: bool = True) -> Any:
        """Its result with inputs of other values, everything frozen; without rounding if not ``decoded``."""
        self.calls.rewind()
        result, _ = self._run("replay" if decoded else "undecoded", values)
        self.calls.finish()
        return result

    def gradients(self, seeds: Sequence[tuple[Any, Array]], leaves: Sequence[Any]) -> list[Array]:
        """The tape's gradients by the leaves, in float64; the tape is kept."""
        self.residuals, self.steepest = {}, 0.0
        with self._in("gradient"):
            found = walk(seeds, True, False)
        return [np.asarray(found[x], float64) if x in found else np.zeros(x.shape) for x in leaves]

    @contextmanager
    def free(self) -> Iterator[None]:
        """Run operations in float64 that are no part of the program."""
        with self._in("free"):
            yield

    @property
    def events(self) -> list[Call]:
        """The calls that encoded."""
        return [c for c in self.calls.made if c.event is not None]

    @property
    def _inputs(self) -> list[Any]:
        return [x for x in self.arguments if isinstance(x, Input)]

    @contextmanager
    def _in(self, phase: str) -> Iterator[None]:
        before, self._phase = self._phase, phase
        try:
            with observing(self), using(grad=True, device="cpu"):
                yield
        finally:
            self._phase = before

    def _run(self, phase: str, values: Sequence[Array]) -> tuple[Any, list[Any]]:
        leaves = [x.leaf(v) for x, v in zip(self._inputs, values, strict=True)]
        waiting = iter(leaves)
        arguments = [next(waiting) if isinstance(x, Input) else x for x in self.arguments]
        with self._in(phase), np.errstate(all="ignore"):
            return run_checked_program(self.f, arguments), leaves

    def op(self, proceed: Any, op: Op, operands: Any, static: dict[str, Any], out_dtype: Any) -> Any:
        """Run an operation in float64, or repeat a recorded one."""
        if not any(is_exact(x) for x in operands):
            return proceed(op, operands, static, out_dtype)
        if op.kind == "layout" and out_dtype is not None:
            return self.op(proceed, op, operands, static, None).astype(out_dtype)
        if op.name == "to_device":
            return operands[0]
        operands = tuple(on_host(x) for x in operands)
        static = {name: on_host(value) for name, value in static.items()}
        if self._phase in ("replay", "undecoded"):
            call = self.calls.follow(op, [np.shape(values_of(x)) for x in operands])
            if not call.tracked:
                return constant(call.value, call.type)
            return self._output(call, operands, self._repeated(call, operands))
        call = _called(op, operands, static, out_dtype)
        if self._phase == "record":
            call.key = self.calls.key()
            self.calls.made.append(call)
            self._recomputed.record(call)
        if self._phase == "gradient":
            self._recomputed.check(call)
        if not call.tracked:
            return constant(call.value, call.type)
        exact = call.dense if call.event is None else call.event.decoded
        assert exact is not None
        return self._output(call, operands, exact if call.event is None else call.event.result(_zeros(call)))

    def step(self, proceed: Any, node: Any, g: Any, grads: Any, owned: Any) -> None:
        """A node's rules, on the way back; notes how large its cotangent is."""
        if self._phase == "gradient" and isinstance(g, np.ndarray):
            self.steepest = max(self.steepest, float(np.max(np.abs(g), initial=0.0)))
        proceed(node, g, grads, owned)

    def _repeated(self, call: Call, operands: Any) -> Array:
        """The value of a recorded call at other operands."""
        values = [values_of(x) for x in operands]
        changes = [v - v0 if _moves(v) else None for v, v0 in zip(values, call.operands, strict=True)]
        event = call.event
        if event is not None and event.operands:
            return values[0] if self._phase == "undecoded" else event.result(changes)
        value = _again(call, values, changes)
        if event is None:
            return value
        return value if self._phase == "undecoded" else event.result([value - event.value])

    def _output(self, call: Call, operands: Any, exact: Array) -> Any:
        """The result on the tape."""
        node = _node(call, operands)
        if call.op.name == "quantize_grad":
            self.ledger[call] = exact
            if self._phase != "free":
                node.op = noting_residual(call.op, lambda rho: self._note(call, rho))
        return exact_tensor(call.value, call.type, node, exact)

    def _note(self, call: Call, rho: Array) -> None:
        if self._phase == "gradient":
            self.residuals[call] = rho


class Input:
    """An argument of a checked program that moves.

    Args:
        value: A tensor, or an array of floats.
        dtype: The dtype that an array counts as.
    """

    def __init__(self, value: Any, dtype: Any) -> None:
        if isinstance(value, Tensor):
            self.type, stored = value._type, on_host(value)._value
        else:
            self.type, stored = TensorType(dtype), to_host(value)
        packed = isinstance(stored, QTensor)
        self.value_exact = np.array(stored_float64(stored))
        self.stored = stored if packed else self.value_exact

    @classmethod
    def of(cls, x: Any) -> Input:
        """An argument from a tensor of a float64 run."""
        made = cls(x, x._type.dtype)
        made.value_exact = np.asarray(x.exact)
        return made

    def leaf(self, values: Array) -> Any:
        """A leaf of the tape with these values."""
        return exact_tensor(self.stored, self.type, LEAF, np.asarray(values))


def _moves(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def _zeros(call: Call) -> list[Any]:
    event = call.event
    assert event is not None
    if not event.operands:
        return [np.zeros(event.value.shape)]
    return [np.zeros(np.shape(v)) if _moves(v) else None for v in call.operands]


def _called(op: Op, operands: Any, static: dict[str, Any], out_dtype: Any) -> Call:
    """Run an operation the first time."""
    found: Evaluated = evaluate(op, operands, static, out_dtype)
    call = Call(
        ("", 0), op, static, found.type, found.value, [values_of(x) for x in operands], list(operands)
    )
    call.choices, call.note, call.dense = found.choices, found.note, found.dense
    on_tape = any(isinstance(x, Tensor) and x._node is not None for x in operands)
    call.tracked = on_tape and current().grad and found.type.is_float and op.kind != "index"
    if call.tracked:
        node = _recorded(op, operands, static, float64, found.type, found.value, "")
        call.saved = {k: v for k, v in node.static.items() if k not in static}
        if op.elementwise:
            _note_kinks(call, node)
    found.encode(call)
    return call


def _note_kinks(call: Call, node: Node) -> None:
    """Where the rule's slope stands for the forward's (at ties), and where there is none."""
    assert call.dense is not None
    shape = call.dense.shape
    found = slopes(node, shape)
    regular = np.ones(shape, bool)
    for slope in found.values():
        regular &= np.isfinite(slope)
    if not regular.all():
        call.regular = regular
        call.dense = np.where(regular, call.dense, 0.0)
        call.value = call.dense
    ties = np.zeros(shape, bool)
    for tie in call.choices.ties:
        if len(np.shape(tie)) <= len(shape):
            ties |= np.broadcast_to(tie, shape)
    if ties.any():
        call.tied = ties, found


def _again(call: Call, values: list[Any], changes: list[Any]) -> Array:
    """The forward at other operands, on the recorded branches."""
    if call.op.kind == "cast":
        return np.asarray(values[0])
    branch = BRANCHES.get(call.op.name)
    if branch is not None:
        return branch(call.operands, call.static)(*values)
    with choosing(call.choices.replay()):
        value = np.asarray(plain(forward(call.op, [watched(v) for v in values], call.static)), float64)
    if call.tied is not None:
        ties, found = call.tied
        assert call.dense is not None
        line = call.dense + sum(slope * changes[i] for i, slope in found.items())
        value = np.where(ties, line, value)
    return value if call.regular is None else np.where(call.regular, value, 0.0)


def _node(call: Call, operands: Any) -> Node:
    """The tape's node, whose rules compute in float64."""
    node = _recorded(call.op, operands, {**call.static}, float64, call.type, call.value, call.note)
    node.dtypes = [float64] * len(node.dtypes)
    kept = call.event.kept if call.event is not None else None
    if kept is not None or call.regular is not None:
        node.op = without(call.op, kept, call.regular)
    return node
