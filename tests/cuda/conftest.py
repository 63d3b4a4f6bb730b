"""Kernels for CUDA without a device: compiled to PTX, and run in Numba's simulator in other processes."""

from __future__ import annotations

import importlib.util
import os

import pytest

# Numba decides once a process, when it is imported, whether it simulates.
collect_ignore = [] if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1" else ["simulated"]


@pytest.fixture(autouse=True)
def _compiler() -> None:
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda, which compiles the kernels, isn't installed")
