"""What ``import autoq`` costs and needs: no heavy package, and nothing beyond the core packages to train."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = (
    "numba",
    "llvmlite",
    "cupy",
    "matplotlib",
    "hypothesis",
    "sklearn",
    "scipy",
    "tqdm",
    "safetensors",
    "torch",
)

REFUSE_ALL_BUT_CORE = """
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    refused = {"matplotlib", "safetensors", "sklearn", "scipy", "tqdm", "hypothesis", "pytest",
               "threadpoolctl", "cupy", "torch", "pandas", "PIL", "IPython"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.refused:
            raise ModuleNotFoundError(f"{name} is not a core package", name=name)

sys.meta_path.insert(0, Refuse())
"""

TRAIN = """
import numpy as np, autoq as aq

x = aq.tensor(np.random.default_rng(0).standard_normal((64, 32), dtype=np.float32))
labels = (x.numpy()[:, 0] > 0).astype(np.int64)
model = aq.nn.Sequential(
    aq.nn.Linear(32, 32, rng=aq.Generator(0), weight_scheme=aq.nvfp4), aq.nn.ReLU(),
    aq.nn.Linear(32, 2, rng=aq.Generator(1), out_dtype=aq.float32),
)
optimizer = aq.optim.AdamW(model, lr=1e-2)
losses = []
for step in range(30):
    loss = aq.nn.cross_entropy(model(x.quantize(aq.mxfp8)), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 4, losses
print("trained")
"""


def run(program: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run ``program`` in a fresh interpreter with warnings as errors for autoq."""
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", program]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def test_import_autoq_loads_no_heavy_package():
    result = run(f"import sys, autoq; print([name for name in {HEAVY} if name in sys.modules])")
    assert result.stdout.strip() == "[]", result.stderr


def test_importing_kernels_directly_names_the_right_module():
    result = run("import kernels")
    assert result.returncode != 0
    assert "import autoq.kernels instead" in result.stderr


@pytest.mark.slow
def test_the_core_packages_alone_train():
    result = run(REFUSE_ALL_BUT_CORE + TRAIN)
    assert result.stdout.strip() == "trained", result.stderr


def test_the_hook_refuses_what_is_not_core():
    result = run(REFUSE_ALL_BUT_CORE + "import matplotlib")
    assert "not a core package" in result.stderr
