"""The frozen-rounding check of foreign programs: NumPy by hand, and PyTorch where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.testing import ControlFlowDiverged, GradientMismatch, VacuousCheck
from autoq.testing.injected import Framework, check_injected

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((2, 8)), RNG.standard_normal((8, 3))


def half(v):
    return np.round(v * 2) / 2


def by_hand(rule):
    return Framework(lambda a: a, lambda a: a, rule)


def test_a_gradient_by_hand_passes_and_a_wrong_one_does_not():
    def rule(f, inputs, c):
        return [c * 2 * half(inputs[0])]

    check_injected(lambda q, x: q(x) ** 2, X, quantizer=half, framework=by_hand(rule))
    wrong = by_hand(lambda f, inputs, c: [c * 2 * inputs[0]])  # at the float instead of the decoded value
    with pytest.raises(GradientMismatch, match="straight-through gradient"):
        check_injected(lambda q, x: q(x) ** 2, X, quantizer=half, framework=wrong)


def test_a_clipping_estimator_passes_with_its_mask():
    def clipped(v):
        return np.clip(half(v), -1, 1)

    inside = by_hand(lambda f, inputs, c: [c * 2 * clipped(inputs[0]) * (np.abs(inputs[0]) < 1)])
    program = {"quantizer": clipped, "framework": inside}
    check_injected(lambda q, x: q(x) ** 2, X, mask=lambda v: np.abs(v) < 1, **program)
    with pytest.raises(GradientMismatch):
        check_injected(lambda q, x: q(x) ** 2, X, **program)


def test_a_program_without_influence_is_vacuous():
    linear = by_hand(lambda f, inputs, c: [c * 3])
    with pytest.raises(VacuousCheck):
        check_injected(lambda q, x: q(x) * 3, X, quantizer=half, framework=linear)


def test_other_encodes_at_moved_inputs_diverge():
    count = iter(range(100))
    rule = by_hand(lambda f, inputs, c: [c * 2 * half(inputs[0])])
    with pytest.raises(ControlFlowDiverged, match="encode 0"):
        check_injected(lambda q, x: q(x) ** 2 if next(count) < 1 else x**2, X, quantizer=half, framework=rule)


def test_torch_programs_are_checked():
    torch = pytest.importorskip("torch")

    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return torch.round(v * 4) / 4

        @staticmethod
        def backward(ctx, g):
            return g

    def gradient(f, inputs, cotangent):
        leaves = [torch.tensor(x, requires_grad=True) for x in inputs]
        f(*leaves).backward(torch.tensor(cotangent))
        return [x.grad.numpy() for x in leaves]

    framework = Framework(torch.tensor, lambda t: t.detach().numpy(), gradient)

    def program(quantize, x, w):
        return torch.tanh(quantize(torch.tanh(quantize(x)) @ quantize(w)))

    check_injected(program, X, W, quantizer=Round.apply, framework=framework)
    doubled = type("Doubled", (Round,), {"backward": staticmethod(lambda ctx, g: 2 * g)})
    with pytest.raises(GradientMismatch):
        check_injected(program, X, W, quantizer=doubled.apply, framework=framework)


def test_jax_programs_are_checked():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    jax.config.update("jax_enable_x64", True)

    def gradient(f, inputs, cotangent):
        return [np.asarray(g) for g in jax.vjp(f, *map(jnp.asarray, inputs))[1](jnp.asarray(cotangent))]

    def straight_through(v):
        return v + jax.lax.stop_gradient(jnp.round(v * 4) / 4 - v)

    def program(quantize, x, w):
        return jnp.tanh(quantize(jnp.tanh(quantize(x)) @ quantize(w)))

    framework = Framework(jnp.asarray, np.asarray, gradient)
    check_injected(program, X, W, quantizer=straight_through, framework=framework)
