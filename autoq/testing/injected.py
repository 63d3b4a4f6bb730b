"""The frozen-rounding check for any framework: a program that is given its quantizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from autoq.testing.differences import derivative
from autoq.testing.events import Array
from autoq.testing.failures import ControlFlowDiverged, GradientMismatch, VacuousCheck


class Framework(NamedTuple):
    """How to reach a framework's arrays and gradients.

    Attributes:
        array: From a float64 NumPy array to the framework's.
        numpy: Back.
        gradient: ``gradient(f, inputs, cotangent)`` gives the gradients of ``<cotangent, f(*inputs)>``: NumPy
            arrays from NumPy arrays, ``f`` being a function of the framework's arrays.
    """

    array: Callable[[Array], Any]
    numpy: Callable[[Any], Array]
    gradient: Callable[..., Sequence[Array]]


class _Recorder:
    """The quantizer that a program is given: the real one the first time, then its frozen results."""

    def __init__(self, quantizer: Callable[[Any], Any], framework: Framework, mask: Any) -> None:
        self.quantizer, self.framework, self.mask = quantizer, framework, mask
        self.events: list[tuple[Array, Array, Array]] = []
        self.mode, self.next = "record", 0

    def __call__(self, value: Any) -> Any:
        if self.mode == "plain":
            return self.quantizer(value)
        v = np.asarray(self.framework.numpy(value), np.float64)
        if self.mode == "record":
            decoded = self.quantizer(value)
            kept = np.ones(v.shape) if self.mask is None else np.asarray(self.mask(v), np.float64)
            self.events.append((v, np.asarray(self.framework.numpy(decoded), np.float64), kept))
            return decoded
        if self.next >= len(self.events) or self.events[self.next][0].shape != v.shape:
            raise _diverged(self.next, f"encodes an array of shape {v.shape}")
        v0, q0, kept = self.events[self.next]
        self.next += 1
        return self.framework.array(v if self.mode == "undecoded" else q0 + kept * (v - v0))

    def replay(self, mode: str) -> None:
        """Start again."""
        self.mode, self.next = mode, 0


def check_injected(
    f: Callable[..., Any],
    *inputs: Array,
    quantizer: Callable[[Any], Any],
    framework: Framework,
    mask: Callable[[Array], Array] | None = None,
    tolerance: float = 1e-7,
    seed: int = 0,
) -> None:
    """Check straight-through gradients of a program in any framework, through the rounding.

    The program takes its quantizer as the first argument, and encodes with nothing else. It runs once with
    the quantizer under test, which is recorded; then it is differenced with every encode replaced by
    ``q0 + E (v - v0)``, as ``check_grads(..., through_rounding=True)`` does. Keep inputs away from kinks: the
    branches of a foreign program can't be frozen.

    Args:
        f: ``f(quantize, *inputs)`` over the framework's arrays; returns one array.
        inputs: Float64 arrays.
        quantizer: The framework's straight-through quantizer: rounds forward, passes the gradient.
        framework: How to convert arrays and take gradients.
        mask: For a clipping estimator, where the gradient passes, from what is encoded; everywhere if None.
        tolerance: Relative, against central differences.
        seed: Of direction and cotangent.

    Raises:
        GradientMismatch: The gradient isn't the derivative of the frozen program.
        ControlFlowDiverged: Encodes of other shapes, more, or fewer, at moved inputs.
        VacuousCheck: Rounding has no influence on the gradient.

    Example:
        >>> numpy = Framework(lambda a: a, lambda a: a, lambda f, inputs, c: [c * f(*inputs) * 2])
        >>> half = lambda v: np.round(v * 2) / 2
        >>> check_injected(lambda q, x: q(x) ** 2, np.array([0.3, 0.9]), quantizer=half, framework=numpy)
        Traceback (most recent call last):
        autoq.testing.failures.GradientMismatch: straight-through gradient: expected ..., got ...
    """
    recorder = _Recorder(quantizer, framework, mask)
    arrays = [np.asarray(x, np.float64) for x in inputs]
    rng = np.random.default_rng(seed)

    def at(values: Sequence[Array], mode: str) -> Array:
        recorder.replay(mode)
        found = np.asarray(framework.numpy(f(recorder, *[framework.array(v) for v in values])), np.float64)
        if mode != "record" and recorder.next < len(recorder.events):
            raise _diverged(recorder.next, "ends")
        return found

    c = rng.standard_normal(at(arrays, "record").shape)
    d = [rng.standard_normal(x.shape) for x in arrays]
    recorder.replay("plain")
    gradients = framework.gradient(lambda *x: f(recorder, *x), arrays, c)
    got = sum(float(np.sum(g * v)) for g, v in zip(gradients, d, strict=True))

    def slope(mode: str) -> tuple[float, float]:
        def along(t: float) -> Array:
            return np.array([np.sum(c * at([x + t * v for x, v in zip(arrays, d, strict=True)], mode))])

        found = derivative(along, tolerance / 10)
        return float(found.value[0]), float(found.error[0])

    expected, error = slope("frozen")
    if not abs(got - expected) <= tolerance * max(abs(got), abs(expected)) + 10 * error:
        raise GradientMismatch(
            f"straight-through gradient: expected {expected:.12g}, got {got:.12g}.",
            f"{tolerance:.0e} apart, relatively",
            "Check the quantizer's gradient and what the program does around it.",
        )
    rounded = any(not np.array_equal(v, q) for v, q, _ in recorder.events)
    if not rounded or abs(slope("undecoded")[0] - expected) < 100 * tolerance * abs(expected):
        raise VacuousCheck(
            f"vacuous: {len(recorder.events)} encodes, without influence on the gradient.",
            "values off the grid, and something nonlinear behind the quantizer",
            "Quantize before a product or a function.",
        )


def _diverged(place: int, what: str) -> ControlFlowDiverged:
    return ControlFlowDiverged(
        f"control flow diverged at encode {place}: the program {what} where it did otherwise before.",
        "the same encodes in the same order, however the inputs move by a small step",
        "Decide nothing on values that move.",
    )
