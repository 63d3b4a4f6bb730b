"""Kernels that users write: those of the page about custom operations."""

from __future__ import annotations

from typing import Any

from tests.custom.page import names

value_on_gpu: Any = names()["value_on_gpu"]
slope_on_gpu: Any = names()["slope_on_gpu"]
REPRESENTATIVES = [(value_on_gpu, ("float32",)), (slope_on_gpu, ("float32",)), (value_on_gpu, ("float64",))]

_LIBRARY = "functions of the compiler's library contract where they say so"
ALLOWED = {
    "value_on_gpu": {"fma.": _LIBRARY, ".f64": "operands of float64 stay float64"},
    "slope_on_gpu": {"fma.": _LIBRARY},
}
