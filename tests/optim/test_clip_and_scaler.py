"""Clipping by the common norm, and loss scaling that skips steps which overflowed."""

import math

import numpy as np
import pytest

import autoq as aq
from autoq import optim
from autoq.errors import ArgumentError, GradientError, StateError


def parameters(*gradients, dtype=np.float32):
    made = []
    for gradient in gradients:
        parameter = aq.Parameter(np.ones(np.shape(gradient), dtype))
        parameter.grad = aq.tensor(np.asarray(gradient, dtype))
        made.append(parameter)
    return made


def test_gradients_are_scaled_together_to_the_norm():
    a, b = parameters([3.0, 0.0], [[4.0]])
    assert optim.clip_grad_norm([a, b], 2.5) == 5.0
    np.testing.assert_allclose(a.grad.numpy(), [1.5, 0.0])
    np.testing.assert_allclose(b.grad.numpy(), [[2.0]])


def test_a_smaller_norm_changes_nothing_and_missing_gradients_are_skipped(device):
    a, b = parameters([0.3], [0.4])
    b.grad = None
    kept = a.grad
    assert optim.clip_grad_norm([a, b], 1.0) == pytest.approx(0.3)
    assert a.grad.numpy().tobytes() == kept.numpy().tobytes()
    assert a.grad is kept or device == "cuda"  # where the norm isn't known when gradients are scaled
    assert b.grad is None


@pytest.mark.parametrize("value", [1e-30, 1e30])
def test_the_norm_neither_overflows_nor_vanishes(value):
    (a,) = parameters([value, value])
    assert optim.clip_grad_norm([a], 1.0) == pytest.approx(value * math.sqrt(2))
    assert np.linalg.norm(a.grad.numpy().astype(np.float64)) == pytest.approx(min(value * math.sqrt(2), 1.0))


def test_a_norm_that_is_not_finite_changes_no_gradient():
    a, b = parameters([math.inf], [2.0])
    assert optim.clip_grad_norm([a, b], 1.0) == math.inf
    assert b.grad.item() == 2.0


def test_a_norm_of_zero_to_clip_to_is_refused():
    with pytest.raises(ArgumentError, match="max_norm=0"):
        optim.clip_grad_norm(parameters([1.0]), 0)


def scaled_step(scaler, optimizer, parameter, gradient):
    parameter.grad = aq.tensor(np.asarray([gradient], np.float32))
    taken = scaler.step(optimizer)
    scaler.update()
    return taken


def test_a_scaled_loss_gives_the_same_step():
    plain, scaled = aq.Parameter([3.0]), aq.Parameter([3.0])
    (plain * plain).sum().backward()
    optim.SGD([plain], lr=0.1).step()
    optimizer, scaler = optim.SGD([scaled], lr=0.1), optim.GradScaler(scale=1024.0)
    scaler.scale((scaled * scaled).sum()).backward()
    assert scaled.grad.item() == 6.0 * 1024
    assert scaler.step(optimizer) is True
    assert scaled.item() == plain.item()
    assert scaled.grad.item() == 6.0


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_gradient_that_is_not_finite_skips_the_step_and_halves_the_scale(bad):
    p = aq.Parameter([1.0])
    optimizer, scaler = optim.SGD([p], lr=0.1), optim.GradScaler(scale=8.0)
    assert scaled_step(scaler, optimizer, p, bad) is False
    assert p.item() == 1.0
    assert scaler.factor == 4.0


def test_the_scale_doubles_after_its_interval_of_good_steps():
    p = aq.Parameter([1.0])
    optimizer, scaler = optim.SGD([p], lr=0.0), optim.GradScaler(scale=8.0, interval=3)
    factors = []
    for gradient in (1.0, 1.0, math.inf, 1.0, 1.0, 1.0, 1.0):
        scaled_step(scaler, optimizer, p, gradient)
        factors.append(scaler.factor)
    assert factors == [8, 8, 4, 4, 4, 8, 8]


def test_unscaling_for_clipping_happens_once():
    p = aq.Parameter([1.0])
    p.grad = aq.tensor([32.0])
    optimizer, scaler = optim.SGD([p], lr=1.0), optim.GradScaler(scale=8.0)
    assert scaler.unscale_(optimizer) is True
    assert optim.clip_grad_norm([p], 1.0) == 4.0
    scaler.step(optimizer)
    assert p.item() == 0.0


def test_a_forgotten_update_is_an_error():
    p = aq.Parameter([1.0])
    p.grad = aq.tensor([8.0])
    optimizer, scaler = optim.SGD([p], lr=1.0), optim.GradScaler(scale=8.0)
    scaler.step(optimizer)
    with pytest.raises(GradientError, match=r"without an update between(.|\n)*scaler.update\(\)"):
        scaler.step(optimizer)
    assert p.item() == 0.0


def test_float16_gradients_that_would_vanish_survive_the_scale():
    weight = aq.Parameter(np.ones((1, 1), np.float16))
    optimizer, scaler = optim.SGD([weight], lr=2.0**20), optim.GradScaler(scale=2.0**12)
    loss = aq.nn.mse_loss(aq.tensor([[2.0**-14]], dtype=aq.float16) * weight, np.zeros((1, 1), np.float16))
    loss.backward()
    assert weight.grad.item() == 0.0
    optimizer.zero_grad()
    loss = aq.nn.mse_loss(aq.tensor([[2.0**-14]], dtype=aq.float16) * weight, np.zeros((1, 1), np.float16))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    assert weight.grad.item() == 2.0**-27
    assert weight.item() == 1.0 - 2.0**-7


def test_a_scaler_goes_on_from_its_state():
    scaler = optim.GradScaler(scale=8.0)
    scaler.load_state_dict({"factor": 2.0, "good_steps": 5})
    assert scaler.state_dict() == {"factor": 2.0, "good_steps": 5}
    with pytest.raises(StateError, match="'factor' and 'good_steps'"):
        scaler.load_state_dict({"factor": 2.0})


@pytest.mark.parametrize(
    "bad", [{"scale": 0}, {"growth": 1}, {"backoff": 1}, {"interval": 0}, {"scale": math.inf}]
)
def test_scaler_arguments_out_of_range_are_refused(bad):
    with pytest.raises(ArgumentError, match="scale > 0, growth > 1"):
        optim.GradScaler(**bad)
