"""Capture without a GPU: on the CPU it calls the step; its graphs are tried on the stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import autoq as aq
from autoq.errors import ArgumentError
from autoq.recording import RECORDINGS, Recording, recorded_by, recording

HERE = Path(__file__).parent
STEPS = ("arguments", "captured", "misuse", "networks", "silent")
ON_CPU = os.environ.get("AUTOQ_TEST_DEVICE", "cpu") == "cpu"


@pytest.mark.skipif(not ON_CPU, reason="the tests run on a device of their own")
def test_captured_steps_on_the_stand_in() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [
            *command,
            *(
                str(HERE / f"test_{name}.py")
                for name in ("arguments", "captured", "misuse", "networks", "silent")
            ),
        ],
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
