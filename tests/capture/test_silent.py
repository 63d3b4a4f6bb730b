"""What a captured step does without a word, as the page about GPUs says: values of the host, lists, modes."""

from __future__ import annotations

import os

import numpy as np
import pytest

import autoq as aq

DEVICE = os.environ.get("AUTOQ_TEST_DEVICE", "cpu")
pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU, or AUTOQ_TEST_DEVICE=standin")

if DEVICE == "standin":
    from tests.capture import graphs

    graphs.install()


def test_a_tensor_made_of_host_values_stays_that_of_the_recording() -> None:
    calls = iter(range(10))
    step = aq.capture(lambda x: x + aq.tensor([float(next(calls))], device="cuda"))
    x = aq.zeros(1, device="cuda")
    assert [step(x).item() for _ in range(5)] == [0, 1, 1, 1, 1]
    assert step.replays == 4


def test_python_runs_in_two_calls_and_replays_write_over_what_it_kept() -> None:
    kept = []

    @aq.capture
    def step(x: aq.Tensor) -> aq.Tensor:
        kept.append(x * 2)
        return kept[-1]

    returned = [step(aq.tensor([float(number)], device="cuda")) for number in range(5)]
    assert [y.item() for y in kept] == [0, 8]
    assert [y.item() for y in returned] == [0, 2, 4, 6, 8]


def test_the_mode_of_a_model_is_that_of_the_recording_until_reset() -> None:
    model = aq.nn.Dropout(0.5, rng=aq.Generator(0))
    step = aq.capture(lambda x: model(x))
    x = aq.ones(256, device="cuda")
    dropped = [step(x).numpy() for _ in range(3)]
    model.eval()
    assert all((y == 0).any() for y in [*dropped, step(x).numpy()])
    step.reset()
    assert all(np.array_equal(step(x).numpy(), np.ones(256)) for _ in range(3))


def test_a_parameter_that_needs_no_gradient_any_more_is_trained_until_reset() -> None:
    weight = aq.Parameter([8.0], device="cuda")
    optimizer = aq.optim.SGD([weight], lr=0.25)

    @aq.capture
    def step(x: aq.Tensor) -> aq.Tensor:
        loss = ((weight - x) ** 2).sum()
        if loss.requires_grad:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return loss

    x = aq.zeros(1, device="cuda")
    for _ in range(3):
        step(x)
    assert weight.item() == 1
    weight.requires_grad = False
    step(x)
    assert weight.item() == 0.5
    step.reset()
    for _ in range(3):
        step(x)
    assert weight.item() == 0.5


def test_a_gradient_that_the_step_leaves_is_written_over_by_the_next_replay() -> None:
    weight = aq.Parameter([1.0], device="cuda")

    @aq.capture
    def step(x: aq.Tensor) -> None:
        weight.grad = None
        (weight * x).sum().backward()

    for number in range(3):
        step(aq.tensor([float(number)], device="cuda"))
    left, copied = weight.grad, aq.tensor(weight.grad)
    step(aq.tensor([7.0], device="cuda"))
    assert (left.item(), copied.item(), weight.grad.item()) == (7.0, 2.0, 7.0)
