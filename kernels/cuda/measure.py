"""Measures of whole arrays on the device: largest and mean magnitude, the first value that isn't finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import INFINITY, ZERO, F, U, bits, real
from .compile import uses_cuda
from .intrinsics import from_bfloat, from_half, load4, shuffle_xor
from .launch import SIMULATED, empty, grid, kernel, library
from .operand import float_bits, float_kind, float_reader, is_aligned, pointer_of
from .quantize_axes import AXES, five_axes
from .quantize_block import magnitude
from .quantize_instructions import atomic_max, atomic_min

cuda: Any = None
uses_cuda(globals())

I64, W = np.int64, np.uint64
DOUBLE = np.float64
THREADS = 32 if SIMULATED else 256
WAVES = 8
LANES = 32
HALF_BITS, HALF_MASK = U(16), U(0xFFFF)
NOWHERE = (1 << 63) - 1
FIVE = ("int64",) * AXES
Function = Callable[..., Any]


def amax(x: Any) -> Any:
    """The largest finite magnitude of an array as a 0-d float32 array; 0 where there is none.

    Args:
        x: float32, float16 or bfloat16, any shape and strides.
    """
    return measured(x)[0].view(np.float32).reshape(())


def first_nonfinite(x: Any) -> int:
    """The index in C order of the first NaN or infinity, -1 where there is none. Waits for the device.

    Args:
        x: float32, float16 or bfloat16, any shape and strides.
    """
    if x.size == 0:
        return -1
    out = library().full(1, NOWHERE, np.uint64)
    arguments, flat = walked(x)
    kind = float_kind(x)
    first_kernel(kind, flat)(grid(x.size, THREADS, WAVES), THREADS, *arguments[:1], out, *arguments[1:])
    found = int(out[0])
    return -1 if found == NOWHERE else found


def measured(x: Any) -> Any:
    """uint32 (2,): bits of the largest finite magnitude, and of the largest of all where one isn't finite."""
    out = library().zeros(2, np.uint32)
    if x.size == 0:
        return out
    kind = float_kind(x)
    per_vector = 4 if kind == "float32" else 8
    if x.flags.c_contiguous and x.size >= per_vector and is_aligned(x):
        flat = x.reshape(-1)
        vectors = x.size // per_vector
        whole = flat[: vectors * per_vector].view(np.uint32) if SIMULATED else flat
        blocks = grid(vectors, THREADS, WAVES)
        vectors_kernel(kind)(blocks, THREADS, whole, float_bits(flat), out, vectors, x.size)
        return out
    arguments, flat = walked(x)
    values_kernel(kind, flat)(grid(x.size, THREADS, WAVES), THREADS, *arguments[:1], out, *arguments[1:])
    return out


def mean_measured(x: Any) -> Any:
    """uint32 (2,): bits of the mean finite magnitude, and infinity's where a value isn't finite.

    The sum is float64 in storage order, value by value, as the CPU's: one warp walks the whole array.
    """
    out = empty(2, np.uint32)
    arguments, flat = walked(x)
    mean_kernel(float_kind(x), flat)(1, LANES, *arguments[:1], out, *arguments[1:])
    return out


def walked(x: Any) -> tuple[tuple[Any, ...], bool]:
    """The kernel arguments of an array: itself, size, five axes; and whether values are neighbours."""
    axes = five_axes(x, (), 32)
    if axes is None:
        x = contiguous(x)
        axes = five_axes(x, (), 32)
    assert axes is not None
    sizes, strides = [axis.size for axis in axes], [axis.stride for axis in axes]
    flat = x.size == sizes[-1] and strides[-1] == 1
    return (float_bits(x), x.size, *sizes, *strides), flat


def contiguous(x: Any) -> Any:
    """A contiguous array of the same bits: not every function of CuPy's knows bfloat16."""
    return library().ascontiguousarray(float_bits(x)).view(x.dtype)


def placer(flat: bool) -> Function:
    """``place(i, n, s)``: where value ``i`` in C order lies."""

    @scalar
    def place(i, n, s):
        if flat:
            return I64(i)
        a, i4 = I64(i // n[4]), I64(i % n[4])
        b, i3 = I64(a // n[3]), I64(a % n[3])
        c, i2 = I64(b // n[2]), I64(b % n[2])
        return I64(I64(c // n[1]) * s[0] + I64(c % n[1]) * s[1] + i2 * s[2] + i3 * s[3] + i4 * s[4])

    return place


@scalar
def publish(out, finite, highest):
    """Make the words of ``out`` at least the warp's largest magnitudes."""
    for step in (16, 8, 4, 2, 1):
        finite = max(finite, shuffle_xor(finite, step))
        highest = max(highest, shuffle_xor(highest, step))
    if cuda.threadIdx.x % LANES == 0:
        atomic_max(out, 0, finite)
        if highest >= INFINITY:
            atomic_max(out, 1, highest)


@scalar
def lower(a):
    """The magnitude where it is finite, else 0."""
    return a if a < INFINITY else ZERO


def pair_reader(kind: str) -> Function:
    """``pair(u) -> two magnitudes``: bits of the float32 equal to the two 16-bit floats of a word."""
    value = from_half if kind == "float16" else from_bfloat

    @scalar
    def pair(u):
        return magnitude(value(U(u & HALF_MASK))), magnitude(value(U(u >> HALF_BITS)))

    @scalar
    def single(u):
        return magnitude(real(u)), ZERO

    return single if kind == "float32" else pair


@kernel
def vectors_kernel(kind: str) -> tuple[Function, tuple[str, ...]]:
    """The magnitudes of neighbours, read 16 bytes at a time."""
    pair, read = pair_reader(kind), float_reader(kind)
    each = 4 if kind == "float32" else 8

    def largest(whole, x, out, vectors, size):
        finite, highest = ZERO, ZERO
        step = I64(cuda.gridDim.x) * cuda.blockDim.x
        start = I64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        for i in range(start, vectors, step):
            for word in load4(whole, i * 4):
                a, b = pair(word)
                highest = max(highest, max(a, b))
                finite = max(finite, max(lower(a), lower(b)))
        for i in range(vectors * each + start, size, step):
            a = magnitude(read(x, i))
            highest = max(highest, a)
            finite = max(finite, lower(a))
        publish(out, finite, highest)

    return largest, ("uint32*", pointer_of(kind), "uint32*", "int64", "int64")


@kernel
def values_kernel(kind: str, flat: bool) -> tuple[Function, tuple[str, ...]]:
    """The magnitudes of values at any strides."""
    read, place = float_reader(kind), placer(flat)

    def largest(x, out, size, n0, n1, n2, n3, n4, s0, s1, s2, s3, s4):
        finite, highest = ZERO, ZERO
        n, s = (n0, n1, n2, n3, n4), (s0, s1, s2, s3, s4)
        step = I64(cuda.gridDim.x) * cuda.blockDim.x
        for i in range(I64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x, size, step):
            a = magnitude(read(x, place(i, n, s)))
            highest = max(highest, a)
            finite = max(finite, lower(a))
        publish(out, finite, highest)

    return largest, (pointer_of(kind), "uint32*", "int64", *FIVE, *FIVE)


@kernel
def first_kernel(kind: str, flat: bool) -> tuple[Function, tuple[str, ...]]:
    """The least index of a value that isn't finite."""
    read, place = float_reader(kind), placer(flat)

    def first(x, out, size, n0, n1, n2, n3, n4, s0, s1, s2, s3, s4):
        n, s = (n0, n1, n2, n3, n4), (s0, s1, s2, s3, s4)
        step = I64(cuda.gridDim.x) * cuda.blockDim.x
        for i in range(I64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x, size, step):
            if magnitude(read(x, place(i, n, s))) >= INFINITY:
                atomic_min(out, 0, W(i))

    return first, (pointer_of(kind), "uint64*", "int64", *FIVE, *FIVE)


@kernel
def mean_kernel(kind: str, flat: bool) -> tuple[Function, tuple[str, ...]]:
    """The mean finite magnitude, summed by one thread; its warp reads ahead."""
    read, place = float_reader(kind), placer(flat)

    def mean(x, out, size, n0, n1, n2, n3, n4, s0, s1, s2, s3, s4):
        held = cuda.shared.array(LANES, np.float64)
        counts = cuda.shared.array(LANES, np.int64)
        n, s, lane = (n0, n1, n2, n3, n4), (s0, s1, s2, s3, s4), cuda.threadIdx.x
        total, count = DOUBLE(0.0), I64(0)
        for start in range(0, size, LANES):
            value, i = F(0.0), start + lane
            if i < size:
                value = abs(read(x, place(i, n, s)))
                count += 1 if bits(value) < INFINITY else 0
            held[lane] = DOUBLE(value) if bits(value) < INFINITY else DOUBLE(0.0)
            cuda.syncthreads()
            if lane == 0:
                for k in range(LANES):
                    total += held[k]
            cuda.syncthreads()
        counts[lane] = count
        cuda.syncthreads()
        if lane == 0:
            finite = I64(0)
            for k in range(LANES):
                finite += counts[k]
            out[0] = bits(F(total / DOUBLE(max(finite, I64(1)))))
            out[1] = ZERO if finite == size else INFINITY

    return mean, (pointer_of(kind), "uint32*", "int64", *FIVE, *FIVE)
