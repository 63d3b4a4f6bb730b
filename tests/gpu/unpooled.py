"""A pytest plugin for the sanitizer: every array gets an allocation of its own, whose end it then knows.

From a pool, arrays are parts of larger allocations, and an access beyond one lies within the next.
"""

from __future__ import annotations


def pytest_configure() -> None:
    """Take CuPy's pool away."""
    import cupy

    cupy.cuda.set_allocator(None)
