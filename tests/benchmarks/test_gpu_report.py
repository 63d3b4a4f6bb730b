"""The report of the GPU benchmark, its tables, and the charts that the docs make of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
ON_CPU = os.environ.get("AUTOQ_TEST_DEVICE", "cpu") == "cpu"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scripts' folders be imported from, as they are when they run."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "docs"))


def report(folder: Path | None = None) -> Any:
    from gpu.report import Report

    return Report("trial", folder, quick=True, device=False)


def rows(made: Any, kind: str) -> list[dict[str, Any]]:
    return [row for row in made.rows if row["kind"] == kind]


def test_times_are_medians_beside_the_copy_rate() -> None:
    made, x = report(), np.ones(1 << 16)
    seconds = made.time("add", [lambda: x + x, lambda: x - x], moved=3 * x.nbytes, flops=x.size)
    (row,) = rows(made, "time")
    assert row["low"] <= row["seconds"] == seconds <= row["high"]
    assert row["of_copy"] == pytest.approx(3 * x.nbytes / seconds / made.copy_rate)
    assert (row["inputs"], row["launches"], row["peer"]) == (2, 0, False)


def test_launches_of_peers_are_not_told() -> None:
    made = report()
    made.time("theirs", lambda: None, peer=True)
    made.wall_time("theirs", lambda: None, peer=True)
    assert [row["launches"] for row in made.rows if row["kind"] in ("time", "wall")] == [None, None]


def test_a_check_that_raises_is_a_failure_and_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    made = report()
    assert made.check("fine", lambda: np.bool_(True))
    assert not made.failed
    assert not made.check("broken", lambda: 1 / 0)
    assert made.failed
    assert "ZeroDivisionError" in rows(made, "check")[1]["detail"]


@pytest.mark.parametrize(
    ("reached", "bar", "at_most", "met"),
    [
        (0.97, 0.96, False, True),
        (0.95, 0.96, False, False),
        (0.26, 0.28, True, True),
        (0.3, 0.28, True, False),
    ],
)
def test_bars(reached: float, bar: float, at_most: bool, met: bool) -> None:
    from gpu.tables import bar_line

    made = report()
    assert made.bars("work", reached, bar, at_most=at_most) is met
    (row,) = rows(made, "bar")
    assert bar_line(row).startswith("met" if met else "MISSED")
    assert f"{reached:.3f} / {'<=' if at_most else '>='} {bar}" in bar_line(row)


def test_figures_are_on_disk_before_the_section_ends(tmp_path: Path) -> None:
    made = report(tmp_path)
    made.figure("peak", 12.0, "MB")
    found = json.loads((tmp_path / "trial.json").read_text())
    assert found["state"] == "running"
    assert found["rows"][-1]["value"] == 12.0
    made.finish("done")
    assert json.loads((tmp_path / "trial.json").read_text())["state"] == "done"


def test_tables_show_every_row(tmp_path: Path) -> None:
    from gpu import tables

    made = report(tmp_path)
    made.time("ours", lambda: None, moved=1e6)
    made.time("theirs", lambda: None, flops=1e6, peer=True)
    made.host_time("small", lambda: None)
    made.figure("peak", 12.0, "MB")
    made.check("right", False, "no")
    made.bars("ours", 0.5, 0.9)
    made.note("torchao isn't installed")
    made.finish("done")
    (section,) = tables.load(tmp_path).values()
    for text in (tables.summary(section), tables.markdown(section)):
        for expected in ("ours", "theirs", "small", "12 MB", "0 of 1", "0.500", "torchao isn't installed"):
            assert expected in text
    assert "| *theirs* |" in tables.markdown(section)
    assert tables.short(section).splitlines() == [
        "== trial: done",
        "  WRONG right no",
        "  MISSED ours: 0.500 / >= 0.9",
    ]


def measured() -> dict[str, Any]:
    """Figures made up for this test, in the form of the benchmark's."""
    timed = {"kind": "time", "seconds": 1e-3, "low": 1e-3, "high": 1e-3, "peer": False, "launches": 1}
    names = ("quantize", "dequantize", "dequantize: 4 waves")
    moving = [{**timed, "name": name, "moved": 1e9, "of_copy": 0.9} for name in names]
    products = [{**timed, "name": "product", "moved": 1e9, "of_copy": 0.9, "flops": 1e12}]
    bar = {"kind": "bar", "name": "quantize", "reached": 0.9, "bar": 0.96, "at_most": False, "met": False}
    copy = {"kind": "copy", "name": "copy", "rate": 4e12}
    return {"made_up": {"rows": [copy, *moving, *products, bar], "machine": "a machine"}}


def test_charts_and_bars_of_the_docs(tmp_path: Path) -> None:
    import roofline

    figures = tmp_path / "figures.json"
    figures.write_text(json.dumps(measured()))
    roofline.write_pages(tmp_path / "pages", figures)
    text = (tmp_path / "pages/performance_measured.md").read_text()
    assert "a machine" in text
    assert "| quantize | 0.900 | ≥ 0.96 | missed |" in text
    for name in ("performance_made_up.svg", "performance_roofline.svg"):
        drawn = (tmp_path / "pages" / name).read_bytes()
        assert b"<svg" in drawn
        assert b"waves" not in drawn  # variants are in the tables alone
        roofline.write_pages(tmp_path / "pages", figures)
        assert (tmp_path / "pages" / name).read_bytes() == drawn
    assert b"product" in drawn


def test_without_figures_the_docs_say_so(tmp_path: Path) -> None:
    import roofline

    roofline.write_pages(tmp_path, tmp_path / "missing.json")
    assert "No figures of a GPU" in (tmp_path / "performance_measured.md").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not ON_CPU, reason="the script runs on a device of its own")
def test_a_section_runs_on_the_stand_in_and_writes_no_results(tmp_path: Path) -> None:
    results = (ROOT / "benchmarks/RESULTS.md").read_bytes()
    command = [sys.executable, "benchmarks/gpu.py", "--quick", f"--out={tmp_path}", "latency"]
    environment = {**os.environ, "AUTOQ_TEST_DEVICE": "standin"}
    result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert "1 of 1 sections done" in result.stdout
    assert (ROOT / "benchmarks/RESULTS.md").read_bytes() == results


def run_sections(folder: Path, bodies: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """The script with made-up sections, on the stand-in; results go to ``folder / "out"``."""
    for name, body in bodies.items():
        (folder / f"{name}.py").write_text(f"def run(report):\n    {body}\n")
    command = [sys.executable, "benchmarks/gpu.py", *options, f"--out={folder / 'out'}", *bodies]
    environment = {**os.environ, "AUTOQ_TEST_DEVICE": "standin", "AUTOQ_BENCH_SECTIONS": str(folder)}
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.skipif(not ON_CPU, reason="the script runs on a device of its own")
def test_warming_up_times_nothing(tmp_path: Path) -> None:
    bodies = {
        "calls": "calls = []; report.time('x', lambda: calls.append(1)); assert 0 < len(calls) < 10",
        "fails": "report.check('wrong', False)",
    }
    result = run_sections(tmp_path, bodies, "--warm")
    assert result.returncode == 1
    assert "1 of 2 sections are warm; not: fails" in result.stdout
    section = json.loads((tmp_path / "out/warm/calls.json").read_text())
    assert section["state"] == "done"
    assert not any(row["kind"] == "time" for row in section["rows"])


@pytest.mark.slow
@pytest.mark.skipif(not ON_CPU, reason="the script runs on a device of its own")
def test_sections_that_fail_hang_or_die_lose_no_other(tmp_path: Path) -> None:
    bodies = {
        "dies": "import os; os._exit(5)",
        "fails": "raise KeyError('of the section')",
        "hangs": "import time; time.sleep(60)",
        "works": "report.figure('found', 1.0, 'MB')",
    }
    result = run_sections(tmp_path, bodies, "--quick", "--limit=2")
    assert result.returncode == 1
    states = {p.stem: json.loads(p.read_text())["state"] for p in (tmp_path / "out").glob("*.json")}
    assert states["dies"] == "process ended with 5"
    assert states["fails"] == "KeyError: 'of the section'"
    assert states["hangs"].startswith("TimeoutError")
    assert states["works"] == "done"
    assert "1 of 4 sections done; not: dies, fails, hangs" in result.stdout
