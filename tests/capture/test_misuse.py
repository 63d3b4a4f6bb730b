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
