"""Captured training of networks on a GPU, real or stood in for: optimizers, schedules, dropout, buffers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.errors import CaptureError

DEVICE = os.environ.get("AUTOQ_TEST_DEVICE", "cpu")
pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU, or AUTOQ_TEST_DEVICE=standin")

if DEVICE == "standin":
    from tests.capture import graphs

    graphs.install()

STEPS = 7
METHODS: dict[str, Callable[[Any], aq.optim.Optimizer]] = {
    "SGD": lambda parameters: aq.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: aq.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda parameters: aq.optim.Adam(parameters, lr=0.01, weight_decay=0.1),
    "AdamW": lambda parameters: aq.optim.AdamW(parameters, lr=0.01),
}


def batch(number: int) -> tuple[aq.Tensor, aq.Tensor]:
    rng = np.random.default_rng(number)
    x = rng.standard_normal((16, 64), dtype=np.float32)
    targets = rng.standard_normal((16, 10), dtype=np.float32)
    return aq.tensor(x, device="cuda"), aq.tensor(targets, device="cuda")


def squared(outputs: aq.Tensor, targets: aq.Tensor) -> aq.Tensor:
    return ((outputs - targets) ** 2).mean()


def classified(outputs: aq.Tensor, targets: aq.Tensor) -> aq.Tensor:
    return aq.nn.cross_entropy(outputs, aq.argmax(targets, axis=-1))


class Training:
    """A network, its optimizer and a schedule; how it is trained is an attribute."""

    def __init__(self, method: str = "SGD", *between: aq.nn.Module, signal: Any = None) -> None:
        rng = aq.Generator(0)
        with aq.default_device("cuda"):
            head = aq.nn.Linear(32, 10, rng=rng, out_dtype=aq.float32)
            self.model = aq.nn.Sequential(aq.nn.Linear(64, 32, rng=rng), aq.nn.ReLU(), *between, head)
        self.model.to("cuda")
        self.optimizer = METHODS[method](self.model.parameters())
        self.schedule = aq.optim.CosineSchedule(self.optimizer, steps=20, warmup=3)
        self.signal, self.scheduled_inside, self.loss = signal, False, squared

    def step(self, x: aq.Tensor, targets: aq.Tensor) -> aq.Tensor:
        x = x if self.signal is None else x.quantize(self.signal)
        loss = self.loss(self.model(x), targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.scheduled_inside:
            self.schedule.step()
        return loss

    def losses(self, step: Callable[..., aq.Tensor]) -> list[float]:
        found = []
        for number in range(STEPS):
            found.append(step(*batch(number)))
            if not self.scheduled_inside:
                self.schedule.step()
        return [loss.item() for loss in found]


def assert_same(make: Callable[[], Training]) -> None:
    """Captured training gives the losses, weights and optimizer state of eager training."""
    eager, captured = make(), make()
    assert eager.losses(eager.step) == captured.losses(aq.capture(captured.step))
    for one, other in zip(eager.model.parameters(), captured.model.parameters(), strict=True):
        assert np.array_equal(one.numpy(), other.numpy())
    states = eager.optimizer.state_dict(), captured.optimizer.state_dict()
    assert states[0].keys() == states[1].keys()
    for key in states[0]:
        assert np.array_equal(aq.tensor(states[0][key]).numpy(), aq.tensor(states[1][key]).numpy()), key


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("signal", [None, aq.mxfp8, aq.nvfp4])
def test_optimizers(method: str, signal: Any) -> None:
    assert_same(lambda: Training(method, signal=signal))


def test_a_schedule_within_the_step() -> None:
    def make() -> Training:
        made = Training("AdamW")
        made.scheduled_inside = True
        return made

    assert_same(make)


def test_cross_entropy() -> None:
    def make() -> Training:
        made = Training("AdamW", signal=aq.mxfp8)
        made.loss = classified
        return made

    assert_same(make)


def test_dropout() -> None:
    assert_same(lambda: Training("AdamW", aq.nn.Dropout(0.3, aq.Generator(5))))


def test_running_statistics() -> None:
    def make() -> Training:
        return Training("SGD", aq.nn.BatchNorm1d(32))

    assert_same(make)
    eager, captured = make(), make()
    eager.losses(eager.step)
    captured.losses(aq.capture(captured.step))
    for one, other in zip(eager.model.buffers(), captured.model.buffers(), strict=True):
        assert np.array_equal(one.numpy(), other.numpy())


def test_checkpoint() -> None:
    def make() -> Training:
        made = Training("SGD", aq.nn.Dropout(0.3, aq.Generator(5)), signal=aq.mxfp8)
        made.model.forward = aq.checkpoint(made.model.forward)
        return made

    assert_same(make)


def test_a_failed_capture_counts_no_step() -> None:
    training = Training("AdamW")

    def step(x: aq.Tensor, targets: aq.Tensor) -> aq.Tensor:
        loss = training.step(x, targets)
        loss.item()
        return loss

    captured = aq.capture(step)
    captured(*batch(0))
    before = training.optimizer.state_dict()
    with pytest.raises(CaptureError):
        captured(*batch(1))
    after = training.optimizer.state_dict()
    assert {key: int(after[key]) for key in after if key.endswith("steps")} == {
        key: int(before[key]) for key in before if key.endswith("steps")
    }


def test_loaded_optimizer_state_is_refused_until_reset() -> None:
    training = Training("AdamW")
    step = aq.capture(training.step)
    training.losses(step)
    training.optimizer.load_state_dict(training.optimizer.state_dict())
    with pytest.raises(CaptureError, match="replaced"):
        step(*batch(0))
    step.reset()
    training.losses(step)


def test_the_norm_before_clipping_is_a_tensor_in_every_call() -> None:
    w = aq.Parameter(np.ones(4, np.float32)).to("cuda")

    @aq.capture
    def step(x: aq.Tensor) -> aq.Tensor:
        (w * x).sum().backward()
        norm = aq.optim.clip_grad_norm([w], 1.0)
        w.grad = None
        return norm

    assert [step(aq.full(4, value, device="cuda")).item() for value in (1.0, 2.0, 3.0, 0.5)] == [2, 4, 6, 1]
    assert step.replays == 3


def test_a_grad_scaler_on_a_gpu_is_refused_in_the_first_call() -> None:
    w = aq.Parameter(np.ones(4, np.float32)).to("cuda")
    scaler, optimizer = aq.optim.GradScaler(), aq.optim.SGD([w], lr=0.1)

    @aq.capture
    def step(x: aq.Tensor) -> None:
        scaler.scale((w * x).sum()).backward()
        scaler.step(optimizer)

    with pytest.raises(CaptureError, match="GradScaler"):
        step(aq.ones(4, device="cuda"))
    assert (w.numpy() == 1).all()
