"""Captured steps that change what no operation reads, nest, or find no memory."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, CaptureError, DeviceMemoryError
from autoq.recording import recording

DEVICE = os.environ.get("AUTOQ_TEST_DEVICE", "cpu")
pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU, or AUTOQ_TEST_DEVICE=standin")

if DEVICE == "standin":
    from tests.capture import graphs

    graphs.install()


def on_gpu(*shape: int) -> aq.Tensor:
    return aq.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32), device="cuda")


def test_running_statistics_go_on_from_replay_to_replay() -> None:
    found = []
    for wrap in (lambda step: step, aq.capture):
        norm = aq.nn.BatchNorm1d(4).to("cuda")
        step = wrap(norm)
        outputs = [step(on_gpu(8, 4) + number).numpy() for number in range(5)]
        found.append([*outputs, norm.running_mean.numpy(), norm.running_var.numpy()])
    for eager, captured in zip(*found, strict=True):
        assert eager.tobytes() == captured.tobytes()


def kept(packed: bool) -> Any:
    x = aq.zeros((2, 32), device="cuda")
    return x.quantize(aq.mxfp8) if packed else x


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("how", ["assign", "item", "augmented"])
def test_a_tensor_that_only_takes_values_keeps_them(how: str, packed: bool) -> None:
    found = []
    for wrap in (lambda step: step, aq.capture):
        held = kept(packed)

        def step(x: Any, held: Any = held) -> None:
            if how == "assign":
                held.assign(held.value.dequantize() + x.value if packed else held.value + x.value)
            elif how == "item":
                held[0] = x[0]
            else:
                held += x

        called = wrap(lambda x, step=step: step(x))
        for number in range(4):
            called(on_gpu(2, 32) + number)
        found.append(held.numpy())
    assert found[0].tobytes() == found[1].tobytes()
    assert found[0].any()


def test_a_captured_step_within_another_is_refused_and_said() -> None:
    inner = aq.capture(lambda x: x * 2)
    x = on_gpu(4)
    for _ in range(3):
        expected = inner(x)
    outer = aq.capture(lambda x: inner(x) + 1)
    outer(x)
    with pytest.raises(CaptureError, match="calls another captured step"):
        outer(x)
    assert inner(x).tolist() == expected.tolist()


def test_nan_is_the_same_argument_each_time() -> None:
    step = aq.capture(lambda x, fill: aq.where(x > 0, x, fill))
    found = [step(on_gpu(4), float("nan")).numpy() for _ in range(3)]
    assert found[0].tobytes() == found[2].tobytes()
    with pytest.raises(ArgumentError, match="fill=1.0"):
        step(on_gpu(4), 1.0)
    with pytest.raises(ArgumentError, match="fill=nan"):
        capture_with_number(step)


def test_arguments_keep_their_values_when_others_follow() -> None:
    step = aq.capture(lambda x: x.dequantize())
    for name in ("nvfp4", "mxfp8", "fp8_e4m3"):
        step.reset()
        given = [(on_gpu(4, 64) * scale).quantize(name) for scale in (1.0, 64.0, 512.0)]
        expected = [x.numpy() for x in given]
        found = [step(given[number]).numpy() for number in (0, 1, 2, 1, 0)]
        for number, result in zip((0, 1, 2, 1, 0), found, strict=True):
            np.testing.assert_array_equal(result, expected[number])
        for x, values in zip(given, expected, strict=True):
            np.testing.assert_array_equal(x.numpy(), values)


def test_a_copy_on_a_gpu_shares_no_memory_with_the_first() -> None:
    q: Any = on_gpu(4, 64).quantize("nvfp4").value
    level, before = q.tensor_scale.copy(), q.copy()
    q.tensor_scale[...] = 2 * level
    assert before.tensor_scale.get() == level.get()
    assert not before.shares_memory(q)


def test_tracked_arguments_are_refused_in_replays_too() -> None:
    step, x = aq.capture(lambda x: x * 2.0), on_gpu(4)
    w = aq.tensor(x, requires_grad=True)
    for _ in range(3):
        with pytest.raises(ArgumentError, match="computed by mul"):
            step(w * 1.0)
        step(x)
    with pytest.raises(ArgumentError, match="x with requires_grad"):
        step(w)
    assert step(w.detach()).tolist() == (x * 2.0).tolist()


class Descent:
    """A parameter and a step on it, captured or not."""

    def __init__(self, **options: Any) -> None:
        self.w = aq.Parameter(on_gpu(4, 3))
        self.optimizer = aq.optim.SGD([self.w], lr=0.1, **options)

    def step(self) -> None:
        (self.w * self.w).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.mark.parametrize(("option", "value"), [("momentum", 0.9), ("weight_decay", 0.1)])
def test_an_option_that_the_graph_has_no_arithmetic_for_is_not_passed_over(option: str, value: float) -> None:
    eager, recorded = Descent(), Descent()
    step = aq.capture(recorded.step)
    for number in range(8):
        for each in (eager, recorded):
            each.optimizer.groups[0][option] = value if number >= 4 else 0.0
        if number == 4:
            with pytest.raises(CaptureError, match=f"'{option}'"):
                step()
            step.reset()
        step()
        eager.step()
        assert eager.w.numpy().tobytes() == recorded.w.numpy().tobytes()


def test_options_that_the_graph_has_are_followed_down_to_zero() -> None:
    options = {"momentum": 0.5, "weight_decay": 0.1}
    eager, recorded = Descent(**options), Descent(**options)
    step = aq.capture(recorded.step)
    for number in range(5):
        for each in (eager, recorded):
            each.optimizer.groups[0].update({} if number < 3 else {"weight_decay": 0.0, "lr": 0.05})
        step()
        eager.step()
        assert eager.w.numpy().tobytes() == recorded.w.numpy().tobytes()


def test_a_state_that_was_dropped_is_told() -> None:
    recorded = Descent(momentum=0.5)
    fresh = recorded.optimizer.state_dict()
    step = aq.capture(recorded.step)
    for _ in range(3):
        step()
    recorded.optimizer.load_state_dict(fresh)
    with pytest.raises(CaptureError, match="the state of an optimizer, 'velocity'"):
        step()


def capture_with_number(step: Any) -> None:
    again = aq.capture(step.step)
    for _ in range(3):
        again(on_gpu(4), 1.0)
    again(on_gpu(4), float("nan"))


@pytest.mark.skipif(DEVICE != "standin", reason="the stand-in's memory can be made small")
def test_memory_that_a_recording_does_not_find_is_told_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from autoq.devices import namespace_of
    from tests.device.standin_device import memory_limit

    step, x = aq.capture(lambda x: x @ x.mT), on_gpu(100, 8)
    expected = step(x)
    pool = namespace_of("cuda").get_default_memory_pool()
    free = pool.free_all_blocks

    def free_unless_captured() -> None:
        if recording() is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        free()

    monkeypatch.setattr(pool, "free_all_blocks", free_unless_captured)
    with memory_limit(20_000), pytest.raises(DeviceMemoryError, match="40,000 bytes"):
        step(x)
    assert step(x).tolist() == expected.tolist()
    assert step(x).tolist() == expected.tolist()


@pytest.mark.parametrize("how", ["load", "assign", "grad"])
def test_what_was_replaced_is_told_as_what_the_step_met_it(how: str) -> None:
    model = aq.nn.Linear(4, 2, rng=aq.Generator(0)).to("cuda")
    step = aq.capture(lambda x: model(x).sum().backward())
    for _ in range(2):
        step(on_gpu(3, 4))
        model.zero_grad()
    if how == "load":
        model.load_state_dict(model.state_dict())
    elif how == "assign":
        with aq.no_grad():
            model.weight.assign(on_gpu(2, 4))
    told = "the gradient of " if how == "grad" else ""
    if how == "grad":
        model.weight.grad = on_gpu(*model.weight.shape)
    with pytest.raises(CaptureError, match=told + r"the parameter .* float32, weight of linear, ") as error:
        step(on_gpu(3, 4))
    assert ("zero_grad" if how == "grad" else "state dict") in error.value.remedy
