"""What the targets of the Makefile install before they run, by a Python that notes what it is asked for."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def run(tmp_path):
    """Run a target in an environment whose Python only writes down its arguments; return those lines."""
    python, log = tmp_path / "bin/python", tmp_path / "log"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    python.chmod(0o755)

    def run_target(*words: str) -> list[str]:
        log.write_text("")
        done = make(f"VENV={tmp_path}", *words)
        assert done.returncode == 0, done.stderr
        return log.read_text().splitlines()

    return run_target


def installed(lines: list[str]) -> list[str]:
    """The extras that were installed, in order."""
    return [line.rpartition(".[")[2].rstrip("]") for line in lines if " install " in line]


def test_training_on_the_cpu_installs_nothing_for_a_gpu(run):
    lines = run("train")
    assert installed(lines) == ["train"]
    assert lines[-1] == "-m autoq train digits --device cpu"


@pytest.mark.parametrize(
    ("words", "extra", "command"),
    [
        (["DEVICE=cuda"], "cuda13", "--device cuda"),
        (["DEVICE=cuda:1", "CUDA=12"], "cuda12", "--device cuda:1"),
        (["ARGS=--epochs 2 --device cuda"], "cuda13", "--device cpu --epochs 2 --device cuda"),
        (["ARGS=--device=cuda", "CUDA=12"], "cuda12", "--device cpu --device=cuda"),
    ],
)
def test_training_on_a_gpu_installs_its_packages_first(run, words, extra, command):
    lines = run("train", *words)
    assert installed(lines) == ["train", extra]
    assert lines[-1] == f"-m autoq train digits {command}"


@pytest.mark.parametrize(("target", "extra"), [("test-gpu", "test"), ("bench-gpu", "bench")])
@pytest.mark.parametrize("cuda", ["12", "13"])
def test_targets_for_a_gpu_take_the_version_of_cuda(run, target, extra, cuda):
    assert installed(run(target, f"CUDA={cuda}")) == [extra, f"cuda{cuda}"]


def test_a_second_run_installs_nothing(run):
    assert installed(run("test-gpu"))
    assert installed(run("test-gpu")) == []


def test_the_other_cupy_is_removed_before_one_is_installed(run):
    run("train", "DEVICE=cuda", "CUDA=12")
    lines = run("train", "DEVICE=cuda", "CUDA=13")
    assert lines[:2] == ["-m pip uninstall -qq --yes cupy-cuda12x", "-m pip install -qq --editable .[cuda13]"]
    assert installed(run("train", "DEVICE=cuda", "CUDA=12")) == ["cuda12"]


def test_packages_for_a_gpu_are_installed_again_after_those_of_the_tests(run):
    run("train", "DEVICE=cuda", "CUDA=12")
    assert installed(run("test-gpu", "CUDA=12")) == ["test", "cuda12"]


def test_another_version_of_cuda_is_refused_with_what_to_pass():
    done = make("CUDA=11", "help")
    assert done.returncode != 0
    assert "CUDA=11 has no packages here. Allowed: CUDA=12, CUDA=13." in done.stderr


def test_a_variable_of_the_environment_does_not_choose_the_version(run, monkeypatch):
    monkeypatch.setenv("CUDA", "/usr/local/cuda")
    assert installed(run("test-gpu")) == ["test", "cuda13"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_targets_that_there_are(page):
    there = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE))
    assert named <= there
