"""What a captured step computes when it replaces values, starts state late, or runs in threads: as eager."""

from __future__ import annotations

import copy
import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.captured_stream import no_collection
from autoq.errors import ArgumentError, CaptureError

DEVICE = os.environ.get("AUTOQ_TEST_DEVICE", "cpu")
pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU, or AUTOQ_TEST_DEVICE=standin")

if DEVICE == "standin":
    from tests.capture import graphs

    graphs.install()

Step = Callable[..., Any]


def on_gpu(*shape: int, seed: int = 0, dtype: Any = np.float32) -> aq.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return aq.tensor(values, device="cuda")


def outcomes(step: Step, shape: tuple[int, ...], calls: int) -> list[Any]:
    """The bytes of what a step returns for a few arguments."""
    results = (step(on_gpu(*shape, seed=number)) for number in range(calls))
    return [[None if x is None else x.numpy().tobytes() for x in result] for result in results]


def check(make: Callable[[], Step], shape: tuple[int, ...] = (4, 4), calls: int = 6) -> None:
    """Compare a step with the captured one, call by call."""
    assert outcomes(make(), shape, calls) == outcomes(aq.capture(make()), shape, calls)


# Values that are replaced while something else refers to the old ones


def old_values_of_a_parameter() -> Step:
    w = aq.Parameter(on_gpu(4, 4, seed=9))

    def step(x: Any) -> Any:
        with aq.no_grad():
            old, turned, row, raw = w.detach(), w.mT, w[1:], w.value
            w.assign(w - x)
        return old, turned, row, w, aq.tensor(raw)

    return step


def old_values_of_a_packed_tensor() -> Step:
    held = on_gpu(4, 4, 32, seed=9).quantize("nvfp4")

    def step(x: Any) -> Any:
        nonlocal held
        old, turned = held.detach(), held.permute_dims(1, 0, 2)
        held += x
        return old, turned, held

    return step


def an_old_gradient() -> Step:
    w = aq.Parameter(on_gpu(4, 4, seed=9))

    def step(x: Any) -> Any:
        old = w.grad if w.grad is not None else x
        (w * x).sum().backward()
        return old, w.grad

    return step


def packed_tensors_that_swap() -> Step:
    a, b = (on_gpu(4, 32, seed=seed).quantize("mxfp8") for seed in (8, 9))

    def step(x: Any) -> Any:
        first = a.detach()
        a.assign(b)
        b.assign(first)
        return a, b.dequantize() * x.sum()

    return step


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (old_values_of_a_parameter, (4, 4)),
        (old_values_of_a_packed_tensor, (4, 4, 32)),
        (an_old_gradient, (4, 4)),
        (packed_tensors_that_swap, (4, 4)),
    ],
)
def test_what_refers_to_replaced_values_keeps_them(make: Any, shape: tuple[int, ...]) -> None:
    check(make, shape)


# Optimizers


class Trained:
    """Parameters and a step of an optimizer on them."""

    def __init__(self, kind: str, dtype: Any = np.float32, **options: Any) -> None:
        self.a, self.b = (aq.Parameter(on_gpu(4, seed=seed, dtype=dtype)) for seed in (8, 9))
        self.optimizer = getattr(aq.optim, kind)([self.a, self.b], lr=0.1, **options)

    def step(self, x: Any) -> Any:
        loss = ((self.a + self.b) * x).sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss, self.a, self.b


def test_a_momentum_that_starts_at_the_recording_goes_on() -> None:
    found = []
    for wrap in (lambda step: step, aq.capture):
        trained = Trained("SGD")
        step = wrap(trained.step)
        for number in range(6):
            trained.optimizer.groups[0]["momentum"] = 0.9 if number else 0.0
            step(on_gpu(4, seed=number))
        found.append((trained.a.numpy().tobytes(), trained.b.numpy().tobytes()))
    assert found[0] == found[1]


def test_a_recording_that_fails_leaves_new_state_at_zero() -> None:
    trained, calls = Trained("AdamW"), iter(range(9))
    step = aq.capture(lambda x: trained.step(x) if next(calls) else [x * 1.0])
    step(on_gpu(4))
    with pytest.raises(CaptureError, match="differs from its warm-up"):
        step(on_gpu(4))
    state = trained.optimizer.state_dict()
    assert state["state.0.steps"] == 0
    assert not any(state[f"state.0.{name}"].any() for name in ("mean", "square"))


def test_counts_of_steps_that_part_are_told_and_reset_takes_them_up() -> None:
    found = []
    for wrap in (lambda step: step, aq.capture):
        trained = Trained("AdamW")
        step = wrap(trained.step)
        for number in range(6):
            if number == 3:
                (trained.a * trained.a).sum().backward()
                trained.optimizer.step()
                trained.optimizer.zero_grad()
                if wrap is aq.capture:
                    with pytest.raises(CaptureError, match="as many steps each"):
                        step(on_gpu(4))
                    step.reset()
            step(on_gpu(4, seed=number))
        found.append((trained.a.numpy().tobytes(), trained.b.numpy().tobytes()))
    assert found[0] == found[1]


def test_float64_parameters_are_trained_at_one_rate_and_counted() -> None:
    eager, recorded = (Trained("SGD", np.float64, momentum=0.5) for _ in range(2))
    captured = aq.capture(recorded.step)
    for number in range(5):
        eager.step(on_gpu(4, seed=number))
        captured(on_gpu(4, seed=number))
    assert eager.a.numpy().tobytes() == recorded.a.numpy().tobytes()
    steps = [each.optimizer.state_dict()["state.1.steps"] for each in (eager, recorded)]
    assert steps == [5, 5]
    recorded.optimizer.lr = 0.05
    with pytest.raises(CaptureError, match="option 'lr' of an optimizer changed .* float64"):
        captured(on_gpu(4))


def test_float64_parameters_are_refused_where_steps_are_counted() -> None:
    trained = Trained("AdamW", np.float64)
    step = aq.capture(trained.step)
    step(on_gpu(4))
    before = trained.a.numpy()
    with pytest.raises(CaptureError, match=r"counts its steps, on a parameter \(4,\) float64"):
        step(on_gpu(4))
    assert trained.a.numpy().tobytes() == before.tobytes()
    assert trained.optimizer.state_dict()["state.0.steps"] == 1


# What Python counts, and what is on the CPU


def test_a_number_that_changes_is_refused_as_a_result() -> None:
    trained = Trained("SGD")
    schedule = aq.optim.LinearWarmup(trained.optimizer, 5)

    def step(x: Any) -> Any:
        result = trained.step(x)
        schedule.step()
        return {"loss": result[0], "same": 3, "lr": schedule.lr}

    captured = aq.capture(step)
    captured(on_gpu(4))
    with pytest.raises(CaptureError, match=r"returned 0\.04\d* in its warm-up and then 0\.06"):
        captured(on_gpu(4))
    assert schedule.count == 1
    assert trained.optimizer.state_dict()["state.0.steps"] == 1


@pytest.mark.parametrize("what", ["backward", "update"])
def test_a_backward_or_an_update_each_second_time_is_refused(what: str) -> None:
    trained, calls = Trained("SGD"), iter(range(9))
    for parameter in (trained.a, trained.b):
        parameter.grad = on_gpu(4)

    def step(x: Any) -> Any:
        loss = ((trained.a + trained.b) * x).sum()
        if next(calls) % 2 == 0:
            loss.backward() if what == "backward" else trained.optimizer.step()
        return loss

    captured = aq.capture(step)
    captured(on_gpu(4))
    with pytest.raises(CaptureError, match="it had . operations, gradients and changes in place, and then "):
        captured(on_gpu(4))


@pytest.mark.parametrize("how", ["augmented", "item", "read", "update"])
def test_what_is_on_the_cpu_is_refused_before_it_is_changed(how: str) -> None:
    w = aq.Parameter(np.ones(4, np.float32), device="cpu")
    counter = aq.zeros(4, device="cpu")
    optimizer = aq.optim.SGD([w], lr=0.1)
    w.grad = aq.ones(4, device="cpu")

    def step(x: Any) -> Any:
        nonlocal counter
        if how == "augmented":
            counter += 1.0
        elif how == "item":
            counter[0] = 5.0
        elif how == "update":
            optimizer.step()
        return x * w.to("cuda") if how == "read" else x * 2.0

    captured = aq.capture(step)
    captured(on_gpu(4))
    before = (w.tolist(), counter.tolist())
    with pytest.raises(CaptureError, match="on the CPU: no replay would read or change it"):
        captured(on_gpu(4))
    assert (w.tolist(), counter.tolist()) == before


def test_tensors_that_the_step_makes_on_the_cpu_are_no_state() -> None:
    def step(x: Any) -> Any:
        mask = aq.zeros(4, device="cpu")
        mask[1:] = 2.0
        return [x * mask.to("cuda")]

    check(lambda: step, (4,))


# Calls


def test_calls_in_several_threads_get_their_own_results() -> None:
    step, wrong = aq.capture(lambda x: x * 2.0), []
    for _ in range(2):
        step(on_gpu(16))

    def work(number: int) -> None:
        x = aq.full((16,), float(number), device="cuda")
        for _ in range(60):
            if (step(x).numpy() != 2.0 * number).any():
                wrong.append(number)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    assert step.replays == 1 + 4 * 60


class Trainer:
    """A step that is captured in its class."""

    def __init__(self) -> None:
        self.w = aq.Parameter(on_gpu(4, seed=9))

    @aq.capture
    def step(self, x: Any) -> Any:
        return self.w * x


def test_a_method_is_captured_for_one_instance() -> None:
    trainer = Trainer()
    Trainer.step.reset()
    for number in range(4):
        x = on_gpu(4, seed=number)
        assert trainer.step(x).numpy().tobytes() == (trainer.w * x).numpy().tobytes()
    assert Trainer.step.replays == 3
    with pytest.raises(ArgumentError, match="got self="):
        Trainer().step(on_gpu(4))
    Trainer.step.reset()


def test_a_copy_of_a_captured_step_is_not_recorded() -> None:
    step = aq.capture(lambda x: x * 2.0, warmup=2)
    for _ in range(4):
        step(on_gpu(4))
    made = copy.deepcopy(step)
    assert (made.replays, made.warmup) == (0, 2)
    assert made(on_gpu(4)).tolist() == step(on_gpu(4)).tolist()


def test_a_result_that_finds_no_memory_leaves_the_step_done(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Trained("SGD")
    step = aq.capture(lambda x: trained.step(x)[0])
    for _ in range(3):
        step(on_gpu(4))
    version = trained.a._version[0]
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["autoq.capture"], "fresh", _no_memory)
        with pytest.raises(MemoryError):
            step(on_gpu(4))
    assert trained.a._version[0] > version
    step(on_gpu(4))


def _no_memory(*given: Any) -> Any:
    raise MemoryError


@pytest.mark.parametrize("collected", [True, False])
def test_garbage_is_collected_again_after_the_last_of_several_captures(collected: bool) -> None:
    before = gc.isenabled()
    try:
        gc.enable() if collected else gc.disable()
        first, second = no_collection(), no_collection()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert not gc.isenabled()
        second.__exit__(None, None, None)
        assert gc.isenabled() is collected
    finally:
        gc.enable() if before else gc.disable()
