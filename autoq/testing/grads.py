"""The gradient check: what the tape gives against what the program does, through rounding too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoq.errors import ArgumentError, GradientError
from autoq.testing.differences import Derivative, derivative
from autoq.testing.events import Array
from autoq.testing.exact import stored_float64
from autoq.testing.failures import VacuousCheck
from autoq.testing.mismatch import Mismatch, report
from autoq.testing.programs import FrozenProgram, PlainProgram, Program, directional, moves

ROUGH = 2e-4
TINY = 12  # up to so many values on each side the whole Jacobian is compared


@dataclass(frozen=True)
class Bars:
    """How close is close enough.

    Attributes:
        differences: Relative, of a gradient to central differences.
        dot: Relative, of forward to reverse mode.
    """

    differences: float = 1e-7
    dot: float = 1e-12


def check_grads(
    f: Callable[..., Any],
    *inputs: Any,
    order: int = 2,
    through_rounding: bool = False,
    directions: int = 3,
    seed: int = 0,
    tolerance: float = 1e-7,
    dot_tolerance: float = 1e-12,
    allow_vacuous: bool = False,
) -> None:
    """Check the gradients of a program, to any order, in reverse and in forward mode, in float64.

    The program runs where its inputs are, arrays going to the default device; with ``through_rounding=True``
    it runs on the CPU, wherever they are, since codes are the same there, bit for bit.

    Reverse mode: the tape's gradient along random directions against central differences. Forward mode: the
    derivative that differentiating the tape's gradient gives, against differences of every output, and
    against reverse mode (<c, J d> = <J' c, d>). Of a dozen values or less the whole Jacobian is compared.

    ``through_rounding=True`` checks a program that quantizes. It runs once in float64, recording for every
    encode what went in (v0) and the decoded value that came out (q0); then the program is differenced with
    each encode replaced by ``q0 + E (v - v0)``, E the declared estimator, and with every branch (relu and
    where masks, orders, comparisons, ``item()``, random draws) as recorded. That function is smooth and its
    derivative is the straight-through gradient, so agreement proves the rules right through any depth of
    quantized signal. It doesn't prove that the estimator helps a training.

    Args:
        f: A function of tensors that returns a tensor, or a nest of tuples, lists and dicts of them.
        inputs: Float arrays and tensors, which are differentiated by; anything else is passed on. Arrays
            count as float64; through rounding as float32 (computed in float64 all the same), so that the
            dtypes resolve as in training, and packed tensors move around what they decode to.
        order: How often to differentiate: 1, 2 or more.
        through_rounding: Freeze rounding and branches.
        directions: How many random directions.
        seed: Of directions and cotangents.
        tolerance: Relative, against central differences.
        dot_tolerance: Relative, between the two modes.
        allow_vacuous: Accept a program through rounding whose gradient rounding has no influence on.

    Raises:
        GradientMismatch: A gradient is wrong; says which, where, the op to blame, and how to reproduce it.
        ControlFlowDiverged: The program ran other operations for inputs a small step away.
        VacuousCheck: Nothing was rounded, or rounding doesn't change the gradient by 100 tolerances.
        GradientError: Nothing in the result depends on the inputs.
        ArgumentError: An order below 1, or no float input.

    Example:
        >>> import autoq as aq
        >>> x = np.random.default_rng(0).standard_normal((2, 32))
        >>> check_grads(lambda x: aq.tanh(x) * x, x)
        >>> check_grads(lambda x: aq.tanh(x.quantize(aq.mxfp4)) * 2.0, x, through_rounding=True)
    """
    if order < 1 or not any(moves(x) for x in inputs):
        raise ArgumentError(
            f"check_grads of order {order} by {[type(x).__name__ for x in inputs]}.",
            "an order of at least 1, and a float array or tensor",
            "Pass the inputs to differentiate by after the function.",
        )
    bars = Bars(tolerance, dot_tolerance)
    rng = np.random.default_rng(seed)
    program = f
    for level in range(1, order + 1):
        made: Program = (FrozenProgram if through_rounding else PlainProgram)(program, inputs)
        run = _Run(f, inputs, made, bars, level, order, through_rounding, seed)
        influences = [_check_direction(run, rng, k) for k in range(max(1, directions + 1 - level))]
        if through_rounding and level == 1 and not allow_vacuous:
            _refuse_vacuous(run, influences)
        if sum(x.size for x in made.inputs) <= TINY and sum(o.size for o in made.outputs) <= TINY:
            _check_jacobian(run)
        if level < order:
            program = directional(program, _cotangents(made, rng), _direction(made, rng))


@dataclass
class _Run:
    f: Callable[..., Any]
    arguments: Sequence[Any]
    program: Program
    bars: Bars
    level: int
    order: int
    through_rounding: bool
    seed: int

    def fail(self, mismatch: Mismatch) -> None:
        raise report(self.f, self.arguments, self.program, mismatch, (self.level, self.order), self.seed)


def _check_direction(run: _Run, rng: np.random.Generator, k: int) -> float:
    """Both modes along one direction; how much rounding changes the derivative, relatively."""
    program = run.program
    c, d = _cotangents(program, rng), _direction(program, rng)
    gradients = program.gradients(c)
    got = _dot(gradients, d)
    moved = _differences(program, c, d, run.bars)
    expected = float(moved.value[-1])
    scale = max(_norm([g * x for g, x in zip(gradients, d, strict=True)]), abs(expected))
    allowed = run.bars.differences * scale + _noise(program, c, moved, -1)
    if not abs(got - expected) <= allowed:
        run.fail(Mismatch("reverse", k, d, c, gradients).between(expected, got, allowed))
    _check_forward(run, k, c, d, moved, got)
    if not isinstance(program, FrozenProgram):
        return 0.0
    change = abs(float(np.sum((moved.value[:-1] - _undecoded(program, c, d)) * _joined(c))))
    return change / scale if scale else 0.0


def _undecoded(program: FrozenProgram, c: list[Array], d: list[Array]) -> Array:
    """What the derivative of the outputs would be without rounding, to six digits."""
    ahead, behind = (
        _joined(program.at([x + h * v for x, v in zip(program.inputs, d, strict=True)], decoded=False))
        for h in (ROUGH, -ROUGH)
    )
    with np.errstate(invalid="ignore"):
        return np.where(_joined(c) != 0, (ahead - behind) / (2 * ROUGH), 0.0)


def _check_forward(
    run: _Run, k: int, c: list[Array], d: list[Array], moved: Derivative, reverse: float
) -> None:
    program = run.program
    try:
        forward = program.forward_mode(c, d)
    except GradientError:
        if run.order > 1:
            raise
        return  # a rule that can't be differentiated: only reverse mode, once
    got = np.where(_joined(c) != 0, _joined(forward), 0.0)
    _compare(run, Mismatch("forward", k, d, c), got, moved, float(np.max(np.abs(got), initial=0.0)))
    if isinstance(program, FrozenProgram) and program.quantizes_gradients:
        return  # Q(J' c) isn't linear in c: the two modes differ by the residuals, which reverse mode checked
    dot = float(np.sum(_joined(c) * got))
    allowed_dot = run.bars.dot * max(_norm(c) * _norm([got]), abs(reverse)) + 1e-14 * _norm(c) * _norm(d)
    if not abs(dot - reverse) <= allowed_dot:
        run.fail(Mismatch("dot", k, d, c).between(dot, reverse, allowed_dot))


def _differences(program: Program, c: list[Array], d: list[Array], bars: Bars) -> Derivative:
    """Of every output along a direction, and last of the product that reverse mode differentiates."""
    mask = _joined(c) != 0

    def at(t: float) -> Array:
        values = [x + t * v for x, v in zip(program.inputs, d, strict=True)]
        outputs = np.where(mask, _joined(program.at(values)), 0.0)
        return np.append(outputs, np.sum(outputs * _joined(c)) + program.extra())

    return derivative(at, bars.differences / 10)


def _noise(program: Program, c: list[Array], moved: Derivative, place: int) -> float:
    """What rounding of float64 may do to a difference."""
    size = np.abs(np.where(_joined(c) != 0, _joined([_stored(o) for o in program.outputs]), 0.0))
    total = float(np.sum(size * np.abs(_joined(c)))) if place else float(np.max(size, initial=0))
    # What cancels before it gets to the output leaves noise of its own size behind.
    largest = max(
        (float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0)) for x in program.inputs), default=0.0
    )
    cancelled = 1e-13 * largest * (float(np.sum(np.abs(_joined(c)))) if place else 1.0)
    return 1e-15 + cancelled + 1e-12 * total + 10 * float(moved.error[place] if place else 0.0)


def _check_jacobian(run: _Run) -> None:
    """Every derivative of every output."""
    program = run.program
    if isinstance(program, FrozenProgram) and program.quantizes_gradients:
        return
    if not all(x.size for x in program.outputs + program.leaves):
        return
    units = np.eye(sum(o.size for o in program.outputs))
    got = np.array([_joined(program.gradients(_split(e, program.outputs))) for e in units])
    finite = [np.where(np.isfinite(_stored(o)), 1.0, 0.0) for o in program.outputs]
    for i, e in enumerate(np.eye(got.shape[1])):
        d = _split(e, program.leaves)
        moved = _differences(program, finite, d, run.bars)
        column = np.where(_joined(finite) != 0, got[:, i], 0.0)
        scale = float(np.max(np.abs(got), initial=0.0))
        _compare(run, Mismatch("jacobian", i, d, finite), column, moved, scale)


def _compare(run: _Run, mismatch: Mismatch, got: Array, moved: Derivative, scale: float) -> None:
    """Every output's derivative against its differences."""
    allowed = run.bars.differences * scale + 10 * moved.error[:-1]
    allowed = allowed + _noise(run.program, mismatch.cotangents, moved, 0)
    expected = moved.value[:-1]
    off = np.abs(got - expected)
    if not np.all(off <= allowed):
        mismatch.place = worst = int(np.argmax(np.where(np.isnan(off), np.inf, off - allowed)))
        run.fail(mismatch.between(expected[worst], got[worst], allowed[worst]))


def _refuse_vacuous(run: _Run, influences: list[float]) -> None:
    assert isinstance(run.program, FrozenProgram)
    events = run.program.session.events
    rounded = any(not np.array_equal(c.event.value, c.event.decoded) for c in events if c.event)
    least = 100 * run.bars.differences
    if rounded and max(influences, default=0.0) >= least:
        return
    what = (
        "nothing was encoded"
        if not events
        else f"{len(events)} encodes changed no value"
        if not rounded
        else f"rounding changes the gradient by {max(influences, default=0.0):.1e}, relatively"
    )
    raise VacuousCheck(
        f"vacuous: {what}.",
        f"a program that rounds, and whose gradient without rounding differs by at least {least:.0e}",
        "Use values off the grid and put a nonlinear op behind the quantizer; allow_vacuous=True accepts it.",
    )


def _cotangents(program: Program, rng: np.random.Generator) -> list[Array]:
    """Random, 0 where an output isn't finite."""
    return [np.where(np.isfinite(_stored(o)), rng.standard_normal(o.shape), 0.0) for o in program.outputs]


def _direction(program: Program, rng: np.random.Generator) -> list[Array]:
    """Random and as large as the inputs, 0 where an input isn't finite."""
    found = []
    for x in program.inputs:
        finite = np.isfinite(x)
        size = float(np.sqrt(np.mean(np.square(x, where=finite, out=np.zeros(x.shape))))) if x.size else 0.0
        found.append(np.where(finite, rng.standard_normal(x.shape) * (min(size, 1e100) or 1.0), 0.0))
    return found


def _stored(output: Any) -> Array:
    return stored_float64(output.exact if hasattr(output, "exact") else output._value)


def _split(flat: Array, like: Sequence[Any]) -> list[Array]:
    parts = np.split(flat, np.cumsum([x.size for x in like])[:-1])
    return [p.reshape(x.shape) for p, x in zip(parts, like, strict=True)]


def _joined(arrays: Sequence[Array]) -> Array:
    return np.concatenate([np.ravel(a) for a in arrays]) if arrays else np.zeros(0)


def _dot(a: Sequence[Array], b: Sequence[Array]) -> float:
    return sum(float(np.sum(np.where(y != 0, x * y, 0.0))) for x, y in zip(a, b, strict=True))


def _norm(arrays: Sequence[Array]) -> float:
    return float(np.sqrt(sum(np.sum(np.square(np.nan_to_num(a))) for a in arrays)))
