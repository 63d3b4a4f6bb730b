"""The tests in ``simulated`` pass in Numba's simulator: kernels as plain Python, a thread a CUDA thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "simulated"
ROOT = Path(__file__).parents[2]
WRONG = """
from autoq.kernels.cuda.launch import SIMULATED

def test_it():
    assert not SIMULATED, "simulated"
"""
SIMULATED = {"NUMBA_ENABLE_CUDASIM": "1", "AUTOQ_TEST_DEVICE": "cpu"}


def run_simulated(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        timeout=590,
        capture_output=True,
        text=True,
        env=os.environ | SIMULATED,
    )


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("test_*.py")))
def test_kernels_are_right_in_the_simulator(file: str) -> None:
    done = run_simulated(str(FOLDER / file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_failure_in_the_simulator_is_reported(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text(WRONG)
    done = run_simulated(str(tmp_path))
    assert done.returncode == 1
    assert "simulated" in done.stdout
