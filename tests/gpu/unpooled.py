"""A pytest plugin for the sanitizer: every array gets an allocation of its own, whose end it then knows.

From a pool, arrays are parts of larger allocations, and an access beyond one lies within the next. So do
those of a packed tensor that share an allocation.
"""

from __future__ import annotations

from typing import Any


def pytest_configure() -> None:
    """Take CuPy's pool away, and allocations of several arrays."""
    import cupy

    from autoq.storage import QTensor

    def apart(allocation: Any) -> QTensor:
        words, scales, *level = [cupy.empty(*form) for form in allocation.forms]
        return QTensor.make(
            words, scales, level[0] if level else None, allocation.scheme, allocation.shape, allocation.layout
        )

    cupy.cuda.set_allocator(None)
    QTensor.within = staticmethod(apart)  # type: ignore[method-assign]
