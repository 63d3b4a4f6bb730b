"""Adding two MXFP8 tensors: time beside NumPy's float32 add, and the memory it needs meanwhile."""

from __future__ import annotations

import tracemalloc

import numpy as np
from report import markdown_table
from timing import side_by_side

import autoq as aq


def section(size: int, rounds: int) -> str:
    """The table of one addition."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size // 4096, 4096), dtype=np.float32) for _ in range(2))
    p, q = (aq.tensor(aq.QTensor.quantize(values, aq.mxfp8)) for values in (a, b))
    out = np.empty_like(a)
    timings = side_by_side({"NumPy": lambda: np.add(a, b, out=out), "autoq": lambda: p + q}, rounds)
    _check(p, q)
    ratio = timings["autoq"].median / timings["NumPy"].median
    rows = [
        ["NumPy float32, `np.add(a, b, out=out)`", timings["NumPy"].milliseconds(), "1", "0"],
        [
            "autoq `p + q`, all MXFP8",
            timings["autoq"].milliseconds(),
            f"{ratio:.2f} (bar 2.3)",
            f"{_peak(p, q):.2f} (bar 4)",
        ],
    ]
    header = (f"{size / 2**20:g} Mi values", "ms (quartiles)", "of NumPy's", "extra memory at the peak, MB")
    return "### a + b, both MXFP8, result MXFP8\n\n" + markdown_table(header, rows)


def _peak(p: aq.Tensor, q: aq.Tensor) -> float:
    """Megabytes allocated at the peak of an addition, the result left out."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        total = p + q
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (peak - before - total.nbytes) / 1e6


def _check(p: aq.Tensor, q: aq.Tensor) -> None:
    rows = slice(0, 64)
    total = (p + q).qtensor.dequantize()[rows]
    exact = p.qtensor.dequantize()[rows] + q.qtensor.dequantize()[rows]
    assert np.array_equal(total, aq.QTensor.quantize(exact, aq.mxfp8).dequantize())
