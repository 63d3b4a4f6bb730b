"""What every test shares: one BLAS thread a worker, hypothesis profiles, the float and device under test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# Before NumPy is imported: the workers of pytest-xdist already fill the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import autoq
from autoq import context
from autoq.schemes import CATALOG
from tests.examples import PROFILE

DEVICES = ("cpu", "standin", "cuda")
DEVICE = os.environ.get("AUTOQ_TEST_DEVICE", "cpu")
ROOT = Path(__file__).parents[1]
# What is about the real kernels of a GPU, in whose place the stand-in has its own.
WITHOUT_STANDIN = [
    str(ROOT / path)
    for path in ("autoq/kernels/cuda", "autoq/ops/on_device", "tests/gpu", "docs/extending/custom_op.md")
]
FLOATS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}

settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", parent=settings.get_profile("ci"), derandomize=False, max_examples=1000)
settings.register_profile("coverage", parent=settings.get_profile("ci"), max_examples=3)
settings.register_profile("nightly", parent=settings.get_profile("ci"), derandomize=False, max_examples=500)
settings.load_profile(PROFILE)


WARM_UP = """
import sys, numpy as np, autoq as aq
x = np.ones((2, 64), np.float32)
for name in sys.argv[1:]:
    aq.QTensor.quantize(x, aq.scheme(name)).dequantize()
"""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compile the kernels of every named scheme once, before the workers start."""
    names = sorted(CATALOG)
    parts = [names[start::2] for start in range(2)]
    running = [subprocess.Popen([sys.executable, "-c", WARM_UP, *part]) for part in parts]
    if [process.wait() for process in running] != [0, 0]:
        raise pytest.UsageError("The kernels of the named schemes do not compile: see the error above.")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a float or a device that is none, and choose the device, before anything runs.

    What interpreted kernels warn of is passed over.
    """
    _float_name()
    if DEVICE not in DEVICES:
        raise pytest.UsageError(f"AUTOQ_TEST_DEVICE={DEVICE}: allowed are {', '.join(DEVICES)}.")
    if DEVICE == "standin":  # before anything asks for CuPy
        from tests.capture import graphs
        from tests.device.standin import install

        install()
        graphs.install()
        config.option.ignore = [*(config.option.ignore or ()), *WITHOUT_STANDIN]
    if DEVICE != "cpu":
        autoq.set_default_device("cuda")
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":  # compiled arithmetic overflows silently
        config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning:autoq[.]kernels")


@pytest.fixture
def device() -> str:
    """The device under test, as AUTOQ_TEST_DEVICE chose it: "cpu", or "cuda" (real or stood in for)."""
    return "cpu" if DEVICE == "cpu" else "cuda"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the doctests that need compiled kernels, and run all on the CPU: that is what they print of."""
    for item in items:
        if item.name in ("start.md", "autoq.kernels.cpu.reduce.amax"):
            item.add_marker("compiled")
        if isinstance(item, pytest.DoctestItem):
            item.runtest = _on_cpu(item.runtest)  # type: ignore[method-assign]


def _on_cpu(run: Callable[[], None]) -> Callable[[], None]:
    def run_on_cpu() -> None:
        defaults = context._Defaults.context
        try:
            with autoq.default_device("cpu"):
                run()
        finally:
            context._Defaults.context = defaults  # some examples set them

    return run_on_cpu


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse to run a test in settings, such as the default device, that an earlier one left changed."""
    settings = context.current()
    assert settings.device == ("cpu" if DEVICE == "cpu" else "cuda"), "the default device was changed"
    assert settings == context.Context(device=settings.device), f"settings were changed: {settings}"


def pytest_report_header() -> str:
    """Say at the top of a run which float and which device are under test."""
    stood_in = " (a stand-in that computes with NumPy)" if DEVICE == "standin" else ""
    return f"float under test: {_float_name()}; device: {'cpu' if DEVICE == 'cpu' else 'cuda'}{stood_in}"


@pytest.fixture(scope="session")
def float_dtype() -> np.dtype:
    """The float dtype under test, as ``make test FLOAT=…`` chose it; float32 by default."""
    return np.dtype(FLOATS[_float_name()])


def _float_name() -> str:
    name = os.environ.get("AUTOQ_TEST_FLOAT", "float32")
    if name not in FLOATS:
        raise pytest.UsageError(f"AUTOQ_TEST_FLOAT={name}: allowed are {', '.join(FLOATS)}.")
    return name
