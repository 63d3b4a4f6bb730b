"""Casts of arrays of floats, with the bits of NumPy's: CuPy's take numbers below the normal ones for 0."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..bind import scalar
from .compile import uses_cuda
from .intrinsics import half_of_double, to_bfloat
from .launch import SIMULATED, grid, kernel, library
from .map import mapped
from .operand import float_bits, float_reader, float_writer, pointer_of
from .trace import Traced, traced

cuda: Any = None
uses_cuda(globals())

I64, DOUBLE, F = np.int64, np.float64, np.float32
THREADS = 32 if SIMULATED else 256
Function = Callable[..., Any]


def cast(x: Any, out: Any) -> None:
    """Write the values of an array into one of another dtype: to the nearest, ties to even.

    Args:
        x: float64, float32, float16 or bfloat16, any strides.
        out: Likewise, of the same shape, contiguous; written.

    Example:
        >>> out = np.zeros(2, np.float16)
        >>> if SIMULATED:
        ...     cast(np.ones(2), out)
    """
    if not x.size:
        return
    source, target = x.dtype.name, out.dtype.name
    if "float64" in (source, target):
        values = float_bits(library().ascontiguousarray(x))
        cast_kernel(source, target)(grid(x.size, THREADS), THREADS, values, float_bits(out), x.size)
    else:
        mapped(_itself().expression, [x], (), out)


@cache
def _itself() -> Traced:
    found = traced(lambda x: x, "f")
    assert found is not None
    return found


def pointer(name: str) -> str:
    """The pointer type of an array of a float dtype."""
    return "float64*" if name == "float64" else pointer_of(name)


@kernel
def cast_kernel(source, target):
    """From float64 to a float dtype, or to it."""
    read = float_reader("float32" if source == "float64" else source)
    write = _writer_of_doubles(target) if source == "float64" else float_writer("float32")

    def cast(x, out, n):
        i = I64(cuda.blockIdx.x) * I64(cuda.blockDim.x) + I64(cuda.threadIdx.x)
        if i < n:
            write(out, i, read(x, i))

    return cast, (pointer(source), pointer(target), "int64")


@cache
def _writer_of_doubles(kind: str) -> Function:
    """``write(pointer, index, value)`` of a float64; to bfloat16 by way of float32, as on the CPU."""
    if kind == "float16":

        @scalar
        def write(pointer, index, value):
            pointer[index] = half_of_double(value)

    elif kind == "bfloat16":

        @scalar
        def write(pointer, index, value):
            pointer[index] = to_bfloat(F(value))

    else:

        @scalar
        def write(pointer, index, value):
            pointer[index] = F(value)

    return write
