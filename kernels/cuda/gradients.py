"""The common norm of many gradients and their scaling, a launch each for all of them.

The norm is summed in float64, in which no square of a float32 overflows or vanishes, and in one order:
each block's part by a tree, then the blocks' sums by another.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import F
from .compile import uses_cuda
from .intrinsics import floats_at, load4, store4
from .launch import empty, kernel
from .operand import float_reader
from .update import BLOCK, FOUR, GRADIENT, LENGTH, SIXTEEN, THREADS, VALUE, Table, pointer_at

cuda: Any = None
uses_cuda(globals())

D = np.float64


def tree_sum(threads: int):
    """``total(x)``: the sum of a float64 of every thread of a block, in a fixed order, for all of them."""

    @scalar
    def total(x):
        held, thread, half = cuda.shared.array(threads, D), cuda.threadIdx.x, threads >> 1
        cuda.syncthreads()
        held[thread] = x
        cuda.syncthreads()
        while half > 0:
            if thread < half:
                held[thread] = held[thread] + held[thread + half]
            cuda.syncthreads()
            half >>= 1
        return held[0]

    return total


@scalar
def squares(a, b, c, d):
    """The sum of four squares in float64."""
    w, x, y, z = D(a), D(b), D(c), D(d)
    return (w * w + x * x) + (y * y + z * z)


@kernel
def squares_kernel(kind):
    """The sum of squares of each block's part of a gradient."""
    gradient_at, read, total = pointer_at(kind), float_reader(kind), tree_sum(THREADS)
    floats = kind == "float32"

    def sums(table, owner, count, part, out):
        k = owner[cuda.blockIdx.x]
        start = (cuda.blockIdx.x - table[BLOCK * count + k]) * part
        stop = min(start + part, table[LENGTH * count + k])
        gradient = table[GRADIENT * count + k]
        g, found = gradient_at(gradient), D(0.0)
        if floats and gradient & SIXTEEN == 0:
            for i in range(start + FOUR * cuda.threadIdx.x, stop - 3, FOUR * THREADS):
                a = load4(g, i)
                found += squares(a[0], a[1], a[2], a[3])
            start += (stop - start) & -FOUR
        for i in range(start + cuda.threadIdx.x, stop, THREADS):
            x = D(read(g, i))
            found += x * x
        found = total(found)
        if cuda.threadIdx.x == 0:
            out[cuda.blockIdx.x] = found

    return sums, ("int64*", "int32*", "int64", "int64", "float64*")


@kernel
def norm_kernel():
    """The root of the sum of all blocks' sums, and the factor that limits it."""
    total = tree_sum(THREADS)

    def norm(sums, n, most, out, factor):
        found = D(0.0)
        for i in range(cuda.threadIdx.x, n, THREADS):
            found += sums[i]
        root = math.sqrt(total(found))
        if cuda.threadIdx.x == 0:
            out[0] = root
            factor[0] = F(most / root) if most < root and root < np.inf else F(1.0)

    return norm, ("float64*", "int64", "float64", "float64*", "float32*")


@kernel
def scale_kernel(kind, stored):
    """Every gradient times one factor, into float32 arrays."""
    gradient_at, read = pointer_at(kind), float_reader(kind)
    floats = kind == "float32"

    def scaled(table, owner, count, part, array, number):
        k = owner[cuda.blockIdx.x]
        start = (cuda.blockIdx.x - table[BLOCK * count + k]) * part
        stop = min(start + part, table[LENGTH * count + k])
        gradient, result = table[GRADIENT * count + k], table[VALUE * count + k]
        g, out = gradient_at(gradient), floats_at(result)
        factor = array[0] if stored else number
        if floats and (gradient | result) & SIXTEEN == 0:
            for i in range(start + FOUR * cuda.threadIdx.x, stop - 3, FOUR * THREADS):
                a = load4(g, i)
                store4(out, i, F(a[0] * factor), F(a[1] * factor), F(a[2] * factor), F(a[3] * factor))
            start += (stop - start) & -FOUR
        for i in range(start + cuda.threadIdx.x, stop, THREADS):
            out[i] = F(read(g, i) * factor)

    return scaled, ("int64*", "int32*", "int64", "int64", "float32*", "float32")


def norm(table: Table, kind: str, most: float = math.inf) -> tuple[Any, Any]:
    """The L2 norm of all gradients of a table, two launches.

    Args:
        table: Pointed at gradients.
        kind: ``"float32"``, ``"float16"`` or ``"bfloat16"``.
        most: The largest norm that is wanted.

    Returns:
        The norm as a 0-d float64 array, and the factor that makes it ``most`` as a 0-d float32 array: 1
        where it isn't larger, or not finite.
    """
    sums = empty(max(table.blocks, 1), D)
    out, factor = empty((), D), empty((), np.float32)
    if table.blocks:
        made = squares_kernel(kind)
        made(table.blocks, THREADS, table.array, table.owner, table.count, table.part, sums)
    norm_kernel()(1, THREADS, sums, table.blocks, float(most), out, factor)
    return out, factor


def scale(table: Table, kind: str, factor: Any) -> None:
    """All gradients of a table times one factor, one launch.

    Args:
        table: Pointed at gradients and, as ``VALUE``, at the float32 arrays that are written.
        kind: As of ``norm``.
        factor: A number, or a 0-d float32 array on the device.
    """
    if table.blocks:
        stored = not isinstance(factor, float)
        number, array = (0.0, factor) if stored else (factor, None)
        made = scale_kernel(kind, stored)
        made(table.blocks, THREADS, table.array, table.owner, table.count, table.part, array, number)
