"""Kernels that cast from and to float64."""

from __future__ import annotations

from autoq.kernels.cuda.casts import cast_kernel

REPRESENTATIVES = [
    *[(cast_kernel, ("float64", target)) for target in ("float32", "float16", "bfloat16")],
    *[(cast_kernel, (source, "float64")) for source in ("float32", "float16", "bfloat16")],
]
ALLOWED = {"cast_kernel": {".f64": "what is cast is a float64"}}
