"""The message of a failed gradient check: which op, direction and element, and how to see it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from autoq.errors import AutoqError
from autoq.storage import QTensor
from autoq.tape.apply import apply
from autoq.tape.op import REGISTRY
from autoq.tape.tensor import Tensor
from autoq.testing.differences import derivative
from autoq.testing.estimators import ESTIMATORS
from autoq.testing.events import Array, Call
from autoq.testing.exact import is_exact, on_host
from autoq.testing.failures import GradientMismatch
from autoq.testing.frozen import Input
from autoq.testing.programs import FrozenProgram, Program, moves
from autoq.types import float64

SHOWN = 64  # values of an input that a snippet spells out
SEARCHED = 48  # elements differenced one by one to find the worst


@dataclass
class Mismatch:
    """Two numbers that should be equal.

    Attributes:
        mode: ``"reverse"``, ``"forward"``, ``"dot"`` or ``"jacobian"``.
        number: Which direction.
        direction: By input.
        cotangents: By output.
        gradients: By input, where reverse mode was compared.
        place: The flat position in the outputs, where one output was compared.
        expected: From differences (of ``"dot"``: from forward mode).
        got: From the tape.
        allowed: How far apart they may be.
    """

    mode: str
    number: int
    direction: list[Array]
    cotangents: list[Array]
    gradients: list[Array] = field(default_factory=list)
    place: int | None = None
    expected: float = 0.0
    got: float = 0.0
    allowed: float = 0.0

    def between(self, expected: float, got: float, allowed: float) -> Mismatch:
        """The mismatch with its numbers."""
        return replace(self, expected=float(expected), got=float(got), allowed=float(allowed))


_WHAT = {
    "reverse": "reverse mode is wrong along direction {number}",
    "forward": "forward mode is wrong along direction {number}",
    "dot": "forward and reverse mode disagree along direction {number}",
    "jacobian": "the Jacobian is wrong in column {number}",
}


def report(
    f: Callable[..., Any],
    arguments: Sequence[Any],
    program: Program,
    mismatch: Mismatch,
    orders: tuple[int, int],
    seed: int,
) -> GradientMismatch:
    """The error of a mismatch; ``orders`` is which gradient, and of how many."""
    name = getattr(f, "__qualname__", type(f).__name__).replace("<lambda>", "f").rpartition(">.")[2]
    level, order = orders
    what = _WHAT[mismatch.mode].format(number=mismatch.number)
    lines = [
        f"gradient of {name}, order {level}: {what}: expected {mismatch.expected:.12g}, "
        f"got {mismatch.got:.12g}, {abs(mismatch.got - mismatch.expected):.2e} apart."
    ]
    lines += [f"  Worst element: {_worst(program, mismatch)}"]
    call = _blamed(f, arguments, program)
    lines += [f"  Op: {call} (its own rule isn't its forward's derivative)"] if call else []
    frozen = isinstance(program, FrozenProgram)
    hint = (
        "Correct the gradient rule."
        if frozen or (call and call.op.name not in ESTIMATORS)
        else "Correct the gradient rule; a program that quantizes is checked with through_rounding=True."
    )
    return GradientMismatch(
        "\n".join(lines),
        f"{mismatch.allowed:.2e} apart",
        f"{hint} To reproduce:\n{_snippet(name, call, arguments, program, order, seed)}",
    )


def _worst(program: Program, mismatch: Mismatch) -> str:
    if mismatch.mode == "jacobian" or (mismatch.mode == "forward" and mismatch.place is not None):
        assert mismatch.place is not None
        where = _place(mismatch.place, program.outputs)
        text = f"output {where}"
        if mismatch.mode == "jacobian":
            text += f" by input {_place(int(np.argmax(_flat(mismatch.direction))), program.leaves)}"
        return f"{text}, expected {mismatch.expected:.9g}, got {mismatch.got:.9g}"
    if not mismatch.gradients:
        return "not one (a sum over all)"
    return _worst_input(program, mismatch)


def _worst_input(program: Program, mismatch: Mismatch) -> str:
    """Difference by one input element after another."""
    gradient = _flat(mismatch.gradients)
    reachable = np.flatnonzero(_flat(mismatch.direction))
    rng = np.random.default_rng(0)
    chosen = reachable if reachable.size <= SEARCHED else rng.choice(reachable, SEARCHED, replace=False)
    worst, text = -1.0, "none found alone"
    for i in chosen:
        expected = _by_element(program, mismatch, int(i))
        off = abs(gradient[i] - expected)
        if np.isnan(off) or off > worst:
            worst = np.inf if np.isnan(off) else off
            text = f"input {_place(int(i), program.leaves)}, expected {expected:.9g}, got {gradient[i]:.9g}"
    return text


def _by_element(program: Program, mismatch: Mismatch, i: int) -> float:
    sizes = np.cumsum([0, *[x.size for x in program.inputs]])
    number = int(np.searchsorted(sizes, i, side="right")) - 1

    def at(t: float) -> Array:
        values = [np.array(x) for x in program.inputs]
        values[number].reshape(-1)[i - sizes[number]] += t
        pairs = zip(program.at(values), mismatch.cotangents, strict=True)
        return np.array([sum(float(np.sum(np.where(c != 0, o * c, 0))) for o, c in pairs) + program.extra()])

    return float(derivative(at, 1e-9).value[0])


def _place(i: int, like: Sequence[Any]) -> str:
    for number, x in enumerate(like):
        if i < x.size:
            return f"{number} at {tuple(int(k) for k in np.unravel_index(i, x.shape))}"
        i -= x.size
    return "?"


def _flat(arrays: Sequence[Array]) -> Array:
    return np.concatenate([np.ravel(a) for a in arrays])


def _blamed(f: Callable[..., Any], arguments: Sequence[Any], program: Program) -> Call | None:
    """The first operation whose own rule disagrees with differences of its own forward."""
    try:
        if isinstance(program, FrozenProgram):
            frozen = program
        else:
            frozen = FrozenProgram.of(f, [Input(x, float64) if moves(x) else x for x in arguments])
    except AutoqError:
        return None
    for call in frozen.session.calls.made:
        if call.tracked and call.op.name != "quantize_grad" and _is_wrong(call):
            return call
    return None


def _is_wrong(call: Call) -> bool:
    operands = [
        Input.of(x) if is_exact(x) else x.detach() if isinstance(x, Tensor) else x for x in call.tensors
    ]
    try:
        alone = FrozenProgram.of(lambda *x: apply(call.op, *x, **call.static), operands)
        rng = np.random.default_rng(1)
        c = [rng.standard_normal(o.shape) for o in alone.outputs]
        d = [rng.standard_normal(x.shape) for x in alone.inputs]
        gradients = alone.gradients(c)
        got = sum(float(np.sum(g * v)) for g, v in zip(gradients, d, strict=True))
    except (AutoqError, TypeError, ValueError):
        return False

    def at(t: float) -> Array:
        values = [x + t * v for x, v in zip(alone.inputs, d, strict=True)]
        return np.array([sum(float(np.sum(o * y)) for o, y in zip(alone.at(values), c, strict=True))])

    expected = float(derivative(at, 1e-9).value[0])
    return not abs(got - expected) <= 1e-5 * max(abs(expected), abs(got), 1e-8)


def _snippet(
    name: str, call: Call | None, arguments: Sequence[Any], program: Program, order: int, seed: int
) -> str:
    rounding = ", through_rounding=True" if isinstance(program, FrozenProgram) else ""
    lines = ["    import numpy as np, autoq as aq", "    from autoq.testing import check_grads"]
    registered = call is not None and REGISTRY.get(call.op.name) is call.op
    if call is not None and registered and all(_short(x) for x in call.operands):
        from_apply = "    from autoq.tape.apply import apply"
        names = [f"x{i}" for i in range(len(call.operands))]
        lines += [
            from_apply,
            *[f"    {n} = {_spelled(x)}" for n, x in zip(names, call.operands, strict=True)],
        ]
        static = "".join(f", {k}={v!r}" for k, v in call.static.items())
        listed = ", ".join(names)
        lines.append(
            f"    check_grads(lambda {listed}: apply({call.op.name!r}, {listed}{static}), {listed}, order=1)"
        )
        return "\n".join(lines)
    names = []
    for i, x in enumerate(arguments):
        value = on_host(x)
        value = value._value if isinstance(value, Tensor) else value
        value = value.dequantize() if isinstance(value, QTensor) else value
        names.append(f"x{i}")
        lines.append(f"    x{i} = {_spelled(value) if _short(value) else '...  # as passed'}")
    lines.append(f"    check_grads({name}, {', '.join(names)}, order={order}, seed={seed}{rounding})")
    return "\n".join(lines)


def _short(x: Any) -> bool:
    return not isinstance(x, np.ndarray) or x.size <= SHOWN


def _spelled(x: Any) -> str:
    if not isinstance(x, np.ndarray):
        return repr(x)
    return f"np.array({x.tolist()!r}, np.{x.dtype.name})"
