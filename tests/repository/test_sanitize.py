"""The script that puts the kernels' tests under compute-sanitizer, with a stand-in for that."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "gpu" / "sanitize.sh"
RACE = """========= Error: Race reported between Write access at {0}+0x120
=========     and Read access at {1}+0x570 [12 hazards]
=========
"""
SUMMARY = "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
CUBLAS, OURS = "nvjet_sm90_hsh_128x16_splitK", "autoq_kernel"


def run(folder: Path, said: str, status: int = 0, tool: str = "racecheck") -> tuple[int, str]:
    """The script's exit status and output, with a sanitizer that says that."""
    (folder / "said").write_text(said)
    sanitizer = folder / "sanitizer"
    sanitizer.write_text(f'#!/bin/sh\necho "$@" >>"{folder}/asked"\ncat "{folder}/said"\nexit {status}\n')
    sanitizer.chmod(0o755)
    environment = os.environ | {"SANITIZER": str(sanitizer), "LOGS": str(folder / "logs"), "PARTS": "2"}
    done = subprocess.run(
        ["sh", str(SCRIPT), tool], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_a_race_of_cublas_is_told_and_not_counted(tmp_path: Path) -> None:
    status, said = run(tmp_path, ".." + RACE.format(CUBLAS, CUBLAS) + "1 passed\n" + SUMMARY)
    assert status == 0, said
    assert "2 races of cuBLAS, not counted" in said
    assert said.endswith("== nothing reported\n")


@pytest.mark.parametrize("between", ["", "..", "..\n"])
@pytest.mark.parametrize("kernels", [(OURS, OURS), (CUBLAS, OURS), (OURS, CUBLAS)])
def test_any_other_race_fails(tmp_path: Path, kernels: tuple[str, str], between: str) -> None:
    races = [RACE.format(CUBLAS, CUBLAS), RACE.format(*kernels), RACE.format(CUBLAS, CUBLAS)]
    status, said = run(tmp_path, between.join(races) + SUMMARY)
    assert status == 1
    assert said.count("Race reported between") == 2  # one a process
    assert "nothing reported" not in said


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (SUMMARY, 1),  # a test fails
        ("..\n", 0),  # no summary: it was killed
        ("========= Internal Sanitizer Error: The Sanitizer failed\n" + SUMMARY, 0),
    ],
)
def test_a_run_that_does_not_end_well_fails(tmp_path: Path, said: str, status: int) -> None:
    assert run(tmp_path, said, status)[0] == 1


def test_memcheck_counts_all_and_each_process_has_its_share(tmp_path: Path) -> None:
    assert run(tmp_path, "========= ERROR SUMMARY: 0 errors\n", tool="memcheck")[0] == 0
    assert run(tmp_path, "========= ERROR SUMMARY: 1 error\n", 9, tool="memcheck")[0] == 1
    asked = (tmp_path / "asked").read_text()
    assert asked.count("--error-exitcode 9") == 4
    assert len(list((tmp_path / "logs").glob("memcheck-*.log"))) == 2
