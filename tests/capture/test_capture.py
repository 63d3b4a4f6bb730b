"""Capture without a GPU: on the CPU it calls the step; its graphs are tried on the stand-in."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.captured_memory import STEPS, Uploads
from autoq.errors import ArgumentError
from autoq.recording import RECORDINGS, Recording, recorded_by, recording

HERE = Path(__file__).parent
ON_CPU = os.environ.get("AUTOQ_TEST_DEVICE", "cpu") == "cpu"


@pytest.mark.skipif(not ON_CPU, reason="the tests run on a device of their own")
def test_captured_steps_on_the_stand_in() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    names = sorted(path.name for path in HERE.glob("test_*.py") if path != Path(__file__))
    result = subprocess.run(
        [*command, *(str(HERE / name) for name in names)],
        env={**os.environ, "AUTOQ_TEST_DEVICE": "standin"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-6000:]
    assert " passed" in result.stdout
    assert "skipped" not in result.stdout


@pytest.mark.skipif(not ON_CPU, reason="about the CPU")
def test_the_cpu_calls_the_step() -> None:
    calls: list[object] = []

    @aq.capture
    def step(x: object) -> object:
        calls.append(x)
        return x

    assert step(aq.tensor([1.0])).tolist() == [1.0]
    assert step("anything") == "anything"
    assert [type(x) for x in calls] == [aq.AutodiffTensor, str]
    assert step.replays == 0


def test_capture_keeps_name_and_docstring() -> None:
    @aq.capture(warmup=2)
    def step(x: object) -> object:
        """One step."""
        return x

    assert step.__name__ == "step"
    assert step.__doc__ == "One step."
    assert repr(step) == "<captured step: not recorded>"


@pytest.mark.parametrize(
    "arguments", [{"step": 3}, {"step": print, "warmup": 0}, {"step": print, "warmup": 1.5}]
)
def test_what_is_no_step_is_refused(arguments: dict) -> None:
    with pytest.raises(ArgumentError, match="capture"):
        aq.capture(**arguments)


def test_a_recording_is_of_its_own_context() -> None:
    assert recording() is None
    with recorded_by(Recording(bytearray, lambda array: array)) as made:
        assert recording() is made
    assert recording() is None
    assert RECORDINGS == []


def test_failures_are_taken_back_last_first() -> None:
    made, order = Recording(bytearray, lambda array: array), []
    made.on_failure(lambda: order.append("first"))
    made.on_failure(lambda: order.append("second"))
    made.fail()
    assert order == ["second", "first"]


class LateDevice:
    """Stands for CuPy with a device that copies nothing before the host waits for an event."""

    def __init__(self) -> None:
        self.queue: list[tuple[int, int, int]] = []
        self.done: list[list[int]] = []
        self.waits = 0
        self.cuda = SimpleNamespace(
            Event=lambda disable_timing: LateEvent(self),
            alloc_pinned_memory=lambda size: np.zeros(size, np.uint8),
            runtime=SimpleNamespace(memcpyAsync=self.copy),
        )

    def copy(self, target: int, source: int, size: int, kind: int, stream: int) -> None:
        self.queue.append((target, source, size))

    def run(self, count: int) -> None:
        """Do the first copies, so many in all since the beginning."""
        while len(self.done) < count:
            target, source, size = self.queue[len(self.done)]
            self.done.append([target, *ctypes.string_at(source, size)])


class LateEvent:
    """A point in the queue."""

    def __init__(self, device: LateDevice) -> None:
        self.device, self.count = device, 0

    def record(self, stream: Any) -> None:
        self.count = len(self.device.queue)

    def synchronize(self) -> None:
        self.device.waits += 1
        self.device.run(self.count)


def test_the_host_overwrites_nothing_that_a_late_device_has_to_read() -> None:
    device, stream = LateDevice(), SimpleNamespace(ptr=0)
    first, second = np.zeros(2, np.uint8), np.zeros(3, np.uint8)
    places = [SimpleNamespace(data=SimpleNamespace(ptr=place)) for place in (10, 20)]
    uploads = Uploads(device, list(zip(places, (first, second), strict=True)))
    steps = 5 * STEPS + 3
    for number in range(steps):
        first[...], second[...] = number, 100 + number
        uploads.start(stream)
    behind = len(device.queue) - len(device.done)
    device.run(2 * steps)
    expected = [[[10, *[n] * 2], [20, *[100 + n] * 3]] for n in range(steps)]
    assert device.done == [copy for step in expected for copy in step]
    assert behind > 2 * STEPS  # two copies a step: the host stays ahead
    assert device.waits == -(-steps // STEPS)


def test_a_step_without_values_of_the_host_waits_for_nothing() -> None:
    device = LateDevice()
    uploads = Uploads(device, [])
    for _ in range(3 * STEPS):
        uploads.start(SimpleNamespace(ptr=0))
    assert (device.queue, device.waits) == ([], 0)


@pytest.mark.skipif(not ON_CPU, reason="about the CPU")
def test_the_norm_before_clipping_is_a_tensor_on_the_cpu_too() -> None:
    w = aq.Parameter([3.0, 4.0])

    @aq.capture
    def step(x: aq.Tensor) -> aq.Tensor:
        (w * w * x / 2).sum().backward()
        return aq.optim.clip_grad_norm([w], 1.0)

    assert step(aq.ones(2)).item() == 5.0
    (w * w / 2).sum().backward()
    assert isinstance(aq.optim.clip_grad_norm([w], 1.0), float)
