"""Kernels of running sums, products and extrema, and of linear recurrences."""

from __future__ import annotations

from autoq.kernels.cuda.scan import first_kernel, recurrence_kernel, running_kernel

REPRESENTATIVES = [
    *[(running_kernel, (name,)) for name in ("add", "multiply", "maximum", "minimum")],
    *[(first_kernel, (largest,)) for largest in (False, True)],
    (recurrence_kernel, ()),
]
