"""Quotients without a fraction and remainders of float64 on GPUs, with NumPy's results at the edges."""

from __future__ import annotations

from typing import Any

from autoq.kernels.cuda.launch import library
from autoq.ops.on_device.elementwise import elementwise
from autoq.ops.rounding import divided
from autoq.storage import QTensor
from autoq.storage.inputs import converted
from autoq.tape.accelerated import accelerate
from autoq.tape.op import Op
from autoq.types import float64


@accelerate("floor_divide", "remainder")
def division(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """By a kernel in float32, by operations on arrays in float64."""
    if compute != float64:
        return elementwise(op, values, static, out, compute)
    whole, rest = divided(*[as_float64(x) for x in values])
    return whole if op.name == "floor_divide" else rest


def as_float64(x: Any) -> Any:
    """A stored operand, or a number, as a float64 array."""
    if x.__class__ is QTensor:
        return x.dequantize(float64)
    return converted(x, float64) if hasattr(x, "dtype") else library().full((), x, float64)
