"""A pytest plugin for the sanitizer: every array gets an allocation of its own, whose end it then knows.

From a pool, arrays are parts of larger allocations, and an access beyond one lies within the next. With
``AUTOQ_TEST_PART=3/12`` a process runs the fourth of twelve shares of the tests.
"""

from __future__ import annotations

import os
from typing import Any


def pytest_configure() -> None:
    """Take CuPy's pool away."""
    import cupy

    cupy.cuda.set_allocator(None)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keep every n-th test, so that long ones, which are neighbours, are shared out."""
    part, parts = (int(number) for number in os.environ.get("AUTOQ_TEST_PART", "0/1").split("/"))
    items[:] = items[part::parts]
