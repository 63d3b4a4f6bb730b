"""Tests that need a CUDA device: marked ``gpu`` here, and skipped where there is none."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@cache
def has_device() -> bool:
    """Whether CuPy finds a CUDA device."""
    if os.environ.get("AUTOQ_TEST_DEVICE") == "standin":
        return False
    try:
        import cupy
    except ImportError:
        return False
    try:
        return bool(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


@pytest.fixture(autouse=True)
def _device() -> None:
    if not has_device():
        pytest.skip("no CUDA device")


@pytest.fixture
def cupy(_device: None) -> Any:
    """The library of device arrays."""
    import cupy

    return cupy
