"""Import time, time to the first training step and peak memory, with a warm and a cold kernel cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from report import markdown_table

# A process's ru_maxrss starts at its parent's on Linux, so the peak is read from the kernel's own count.
PEAK = """
import json, re, time
start = time.perf_counter()
{program}
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
print(json.dumps({{**times, "peak": peak}}))
"""
AUTOQ = """
import autoq as aq
times = {{"import": time.perf_counter() - start}}
import numpy as np
x = aq.tensor(np.random.default_rng(0).standard_normal((128, 64), dtype=np.float32)).quantize(aq.mxfp8)
rng, packed = aq.Generator(0), {{"weight_scheme": aq.mxfp8}}
model = aq.nn.Sequential(aq.nn.Linear(64, 128, rng=rng, **packed), aq.nn.ReLU(),
                         aq.nn.Linear(128, 10, rng=rng, out_dtype=aq.float32, **packed))
optimizer = aq.optim.SGD(model.parameters(), lr=0.1)
aq.nn.cross_entropy(model(x), np.arange(128) % 10).backward()
optimizer.step()
times["first step"] = time.perf_counter() - start
""".replace("{{", "{").replace("}}", "}")
TORCH = """
import torch
times = {"import": time.perf_counter() - start}
x = torch.randn(128, 64)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.nn.functional.cross_entropy(model(x), torch.arange(128) % 10).backward()
optimizer.step()
times["first step"] = time.perf_counter() - start
"""
NUMPY = """
import numpy as np
times = {"import": time.perf_counter() - start, "first step": float("nan")}
"""


def section(repeats: int = 5) -> str:
    """The table of cold and warm starts."""
    rows = [_row("NumPy alone", NUMPY, repeats), _row("autoq MXFP8, warm kernel cache", AUTOQ, repeats)]
    with tempfile.TemporaryDirectory() as folder:
        rows.append(_row("autoq MXFP8, cold kernel cache", AUTOQ, 1, {"NUMBA_CACHE_DIR": folder}))
    if find_spec("torch") is not None:
        rows.append(_row("torch float32", TORCH, repeats))
    header = ("process", "import, s", "first training step done, s", "peak RSS, MB")
    return "### Start of a process: import, then one training step of 64-128-10\n\n" + markdown_table(
        header, rows
    )


def fresh_clone() -> str:
    """The table of what a newcomer waits for: a clone, its installation, the first training step."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "autoq"
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(Path(folder) / "kernels")}
        python = str(clone / ".venv/bin/python")
        commands = {
            "git clone": ["git", "clone", "--quiet", str(Path(__file__).parents[1]), str(clone)],
            "a virtual environment": [sys.executable, "-m", "venv", str(clone / ".venv")],
            "pip install, core packages": [python, "-m", "pip", "install", "-qq", "--editable", str(clone)],
            "the first step, kernels compiled": [python, "-c", PEAK.format(program=AUTOQ)],
        }
        rows, total = [], 0.0
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
            total += time.perf_counter() - started
            rows.append([name, f"{time.perf_counter() - started:.1f}", f"{total:.1f}"])
    return "### From nothing to the first training step\n\n" + markdown_table(
        ("after", "s", "s in all"), rows
    )


def _row(name: str, program: str, repeats: int, environment: dict[str, str] | None = None) -> list[str]:
    runs = [_run(program, environment or {}) for _ in range(repeats + 1)][repeats > 1 :]
    medians = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
    first = "" if np.isnan(medians["first step"]) else f"{medians['first step']:.2f}"
    return [name, f"{medians['import']:.3f}", first, f"{medians['peak']:.0f}"]


def _run(program: str, environment: dict[str, str]) -> dict[str, float]:
    command = [sys.executable, "-c", PEAK.format(program=program)]
    result = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)
