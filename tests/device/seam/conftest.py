"""These tests hold on a device; under ``make test`` a process of its own runs them on the stand-in."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what lies here where no device is under test."""
    if os.environ.get("AUTOQ_TEST_DEVICE", "cpu") == "cpu":
        here = os.path.dirname(__file__)
        for item in items:
            if str(item.path).startswith(here):
                item.add_marker(pytest.mark.skip(reason="run by tests/device/test_seam.py"))
