"""SGD, Adam and AdamW against their papers' formulas, written out in float64."""

import numpy as np
import pytest

import autoq as aq
from autoq import optim
from autoq.errors import ArgumentError

STEPS = 7


def start(dtype=np.float32):
    return np.random.default_rng(0).standard_normal((3, 4)).astype(dtype)


def gradients():
    rng = np.random.default_rng(1)
    return [rng.standard_normal((3, 4)) for _ in range(STEPS)]


def trained(optimizer_of, dtype=np.float32):
    """The parameter after each step of an optimizer, fed the gradients above."""
    parameter = aq.Parameter(start(dtype))
    optimizer, path = optimizer_of([parameter]), []
    for gradient in gradients():
        parameter.grad = aq.tensor(gradient.astype(dtype))
        optimizer.step()
        path.append(np.array(parameter.numpy()))
    return path


def sgd(lr, momentum=0.0, nesterov=False, weight_decay=0.0):
    p, v, path = start().astype(np.float64), 0.0, []
    for g in gradients():
        d = g + weight_decay * p
        v = momentum * v + d
        p = p - lr * (d + momentum * v if nesterov else v)
        path.append(p)
    return path


def adam(lr, betas=(0.9, 0.999), eps=1e-8, l2=0.0, decoupled=0.0):
    p, m, s, path = start().astype(np.float64), 0.0, 0.0, []
    for t, g in enumerate(gradients(), 1):
        g = g + l2 * p
        m, s = betas[0] * m + (1 - betas[0]) * g, betas[1] * s + (1 - betas[1]) * g**2
        m_hat, s_hat = m / (1 - betas[0] ** t), s / (1 - betas[1] ** t)
        p = p - lr * (m_hat / (np.sqrt(s_hat) + eps) + decoupled * p)
        path.append(p)
    return path


CASES = {
    "sgd": (lambda p: optim.SGD(p, lr=0.1), sgd(0.1)),
    "decay": (lambda p: optim.SGD(p, lr=0.1, weight_decay=0.3), sgd(0.1, weight_decay=0.3)),
    "momentum": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), sgd(0.1, 0.9)),
    "nesterov": (
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.3),
        sgd(0.1, 0.9, True, 0.3),
    ),
    "adam": (lambda p: optim.Adam(p, lr=0.1), adam(0.1)),
    "adam, eps": (lambda p: optim.Adam(p, lr=0.1, betas=(0.8, 0.9), eps=0.5), adam(0.1, (0.8, 0.9), 0.5)),
    "adam, l2": (lambda p: optim.Adam(p, lr=0.1, weight_decay=0.3), adam(0.1, l2=0.3)),
    "adamw": (lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.3), adam(0.1, decoupled=0.3)),
}


@pytest.mark.parametrize("name", CASES)
def test_float32_follows_the_formula_to_float32_precision(name):
    method, expected = CASES[name]
    for ours, theirs in zip(trained(method), expected, strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_float64_parameters_are_updated_in_float64(name):
    method, _ = CASES[name]
    parameter = aq.Parameter(start(np.float64))
    assert parameter.dtype == np.float64
    for ours, narrow in zip(trained(method, np.float64), trained(method), strict=True):
        assert ours.dtype == np.float64
        assert not np.array_equal(ours, narrow)
        np.testing.assert_allclose(ours, narrow, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [aq.float16, aq.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_half_parameters_get_one_float32_update_cast_back(name, dtype):
    method, _ = CASES[name]
    half = start().astype(dtype)
    parameter, wide = aq.Parameter(half), aq.Parameter(half.astype(np.float32))
    gradient = gradients()[0].astype(dtype)
    for p in (parameter, wide):
        p.grad = aq.tensor(gradient if p is parameter else gradient.astype(np.float32))
        method([p]).step()
    assert parameter.dtype == dtype
    np.testing.assert_array_equal(parameter.numpy(), wide.numpy().astype(dtype))


def test_half_parameters_keep_float32_state():
    parameter = aq.Parameter(start().astype(np.float16))
    optimizer = optim.Adam([parameter])
    parameter.grad = aq.tensor(np.full((3, 4), 1e-3, np.float16))
    optimizer.step()
    state = optimizer.state_dict()
    assert state["state.0.square"].dtype == np.float32
    np.testing.assert_allclose(state["state.0.square"], 1e-9, rtol=1e-3)


def test_a_step_leaves_the_gradient_as_it_was():
    for method, _ in CASES.values():
        parameter = aq.Parameter(start())
        parameter.grad = aq.tensor(gradients()[0].astype(np.float32))
        method([parameter]).step()
        np.testing.assert_array_equal(parameter.grad.numpy(), gradients()[0].astype(np.float32))


def test_nesterov_without_momentum_is_refused():
    with pytest.raises(ArgumentError, match="nesterov=True with momentum=0"):
        optim.SGD([aq.Parameter([1.0])], lr=0.1, nesterov=True)
