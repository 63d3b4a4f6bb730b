"""Matrix products of device arrays by cuBLAS, in row-major order and without copies of transposes.

nvmath's bindings are called rather than CuPy, which refuses cuBLAS while a stream is captured. Every call
takes its workspace from CuPy's pool and gives it back, so that products on two streams never share one and
a captured graph owns what it uses. Without nvmath, or without the library that it loads, CuPy multiplies.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .launch import SIMULATED, library

# What NVIDIA advises for Hopper; algorithms that need more are not chosen. Partial sums along the summed axis
# lie there: a result with so many values that its tiles keep all processors busy has none.
WORKSPACE, LITTLE, MANY = 32 << 20, 4 << 20, 1 << 22
MOST_INT = (1 << 31) - 1
TYPES = {
    "float32": "CUDA_R_32F",
    "float64": "CUDA_R_64F",
    "float16": "CUDA_R_16F",
    "bfloat16": "CUDA_R_16BF",
}
# How a product of two arrays of one dtype is computed, by what is asked for.
COMPUTE = {
    "highest": "COMPUTE_32F",
    "tf32": "COMPUTE_32F_FAST_TF32",
    "bf16": "COMPUTE_32F_FAST_16BF",
    "exact": "COMPUTE_64F",
}
# On the host: 0 and 1 as cuBLAS reads them.
NUMBERS = {dtype: np.array([0, 1], dtype) for dtype in ("float32", "float64")}
ADDRESSES = {dtype: array.ctypes.data for dtype, array in NUMBERS.items()}
SIZES = {"float32": 4, "float64": 8}

# cuBLAS's own numbers of these.
HOST_POINTERS, DEVICE_POINTERS, DEFAULT_ALGORITHM = 0, 1, -1

# Calls kept by how operands lie, and the most places that one keeps.
MOST_CALLS, MOST_PLACES = 1024, 64
_calls: dict[tuple[Any, ...], Calls] = {}

_local = threading.local()


class Handle(NamedTuple):
    """What a thread holds for a device.

    Attributes:
        number: cuBLAS's handle.
        constants: 0 and 1 on the device, for calls whose alpha lies there.
        library: The bindings.
    """

    number: int
    constants: Any
    library: Any


class Matrices(NamedTuple):
    """Matrices as cuBLAS takes them.

    Attributes:
        array: What owns the memory.
        transposed: Whether columns are what lies together.
        step: Elements from one row (column) to the next.
    """

    array: Any
    transposed: bool
    step: int


class Calls(NamedTuple):
    """What cuBLAS is called with, but for pointers, and where each call's operands begin.

    Attributes:
        function: The name of the binding.
        sizes: Which operand is transposed, and the sizes, after the handle.
        right: What follows the right operand's pointer, which cuBLAS takes for the left one.
        left: What follows the left operand's pointer.
        result: What follows the result's pointer.
        places: Of each call, bytes from the beginning of the left operand, the right one and the result.
    """

    function: str
    sizes: tuple[int, ...]
    right: tuple[int, ...]
    left: tuple[int, ...]
    result: tuple[int, ...]
    places: Sequence[tuple[int, int, int]]


class Axis(NamedTuple):
    """Leading axes that are walked in one step: a size, and the elements from one product to the next."""

    size: int
    a: int
    b: int
    out: int


@cache
def available() -> bool:
    """Whether cuBLAS is reached through nvmath's bindings."""
    # The kernels' other arrays are CuPy's own; what tests put in its place has no memory on a device.
    if SIMULATED or not hasattr(library(), "_core"):
        return False
    try:
        from nvmath.bindings import cublas

        # The bindings look for the library when they are first called.
        cublas.destroy(cublas.create())
    except (ImportError, RuntimeError):
        return False
    return True


def handle() -> Handle:
    """The current thread's handle of the current device, which works on the current stream from now on."""
    import cupy

    handles: dict[int, Handle] = _local.__dict__.setdefault("handles", {})
    device = cupy.cuda.runtime.getDevice()
    found = handles.get(device)
    if found is None:
        from nvmath.bindings import cublas

        number = cublas.create()
        # Partial sums of one product are never rounded to 16 bits.
        cublas.set_math_mode(number, cublas.Math.DISALLOW_REDUCED_PRECISION_REDUCTION)
        found = handles[device] = Handle(number, _constants(), cublas)
    return found


def _constants() -> Any:
    """0 and 1 on the device, there before any stream reads them, even where the current one is captured."""
    import cupy

    with cupy.cuda.Stream(non_blocking=True) as stream:
        made = cupy.empty(2, np.float32)
        made.set(NUMBERS["float32"], stream=stream)
        stream.synchronize()
    return made


def gemm(
    a: Any, b: Any, out: Any, alpha: Any = 1.0, accumulate: bool = False, precision: str = "highest"
) -> None:
    """Write ``alpha * a @ b`` to ``out``, or add it.

    Args:
        a: (..., m, k): float64, float32, float16 or bfloat16, any strides.
        b: (..., k, n) of the same dtype; leading axes are the result's, broadcast ones by a stride of 0.
        out: (..., m, n), the values of a row together: float64 with float64, else float32 or ``a.dtype``.
        alpha: A number, or a 0-d float32 device array, which isn't read on the host.
        accumulate: Add to what ``out`` holds.
        precision: How float32 is multiplied: ``"highest"``, ``"tf32"`` or ``"bf16"``.
    """
    if not out.size:
        return
    if not a.shape[-1]:
        if not accumulate:
            out.fill(0)
        return
    if not available():
        _by_arrays(a, b, out, alpha, accumulate)
        return
    key = a.shape, a.strides, b.shape, b.strides, out.shape, out.strides, a.dtype, out.dtype, precision
    calls = _calls.get(key)
    if calls is None:
        left, right = matrices(a), matrices(b)
        calls = calls_of(left, right, out, precision)
        if left.array is a and right.array is b and len(calls.places) <= MOST_PLACES:
            if len(_calls) >= MOST_CALLS:
                _calls.clear()
            _calls[key] = calls
        a, b = left.array, right.array
    _run(calls, a, b, out, alpha, accumulate)


def matrices(x: Any) -> Matrices:
    """An array as cuBLAS takes it, copied only where neither rows nor columns lie together.

    Example:
        >>> x = np.zeros((3, 5), np.float32)
        >>> matrices(x)[1:], matrices(x.T)[1:], matrices(x[::2, :3])[1:]
        ((False, 5), (True, 5), (False, 10))
    """
    rows, columns = x.shape[-2:]
    down, across = (s // x.dtype.itemsize for s in x.strides[-2:])
    if across == 1 or columns == 1:
        step = down if rows > 1 else max(columns, 1)
        if step >= max(columns, 1):
            return Matrices(x, False, step)
    if down == 1 or rows == 1:
        step = across if columns > 1 else max(rows, 1)
        if step >= max(rows, 1):
            return Matrices(x, True, step)
    return Matrices(_copied(x), False, columns)


def _copied(x: Any) -> Any:
    """A contiguous copy; 16-bit floats are moved as integers."""
    if x.dtype.itemsize != 2:
        return library().ascontiguousarray(x)
    return library().ascontiguousarray(x.view(np.uint16)).view(x.dtype)


def _walk(a: Any, b: Any, out: Any) -> tuple[Axis, Iterator[tuple[int, int, int]]]:
    """The axis that one call walks, and where each call begins: elements of the three arrays."""
    axes = joined(
        [
            Axis(size, *(x.strides[i] // x.dtype.itemsize for x in (a, b, out)))
            for i, size in enumerate(out.shape[:-2])
        ]
    )
    batch = max(axes, key=lambda axis: axis.size, default=Axis(1, 0, 0, 0))
    others = [axis for axis in axes if axis is not batch]
    places = itertools.product(*[range(axis.size) for axis in others])
    return batch, (_offsets(others, place) for place in places)


def _offsets(axes: Sequence[Axis], place: Sequence[int]) -> tuple[int, int, int]:
    pairs = list(zip(axes, place, strict=True))
    return (
        sum(axis.a * i for axis, i in pairs),
        sum(axis.b * i for axis, i in pairs),
        sum(axis.out * i for axis, i in pairs),
    )


def joined(axes: Sequence[Axis]) -> list[Axis]:
    """The same products on fewer axes: neighbours that all arrays walk in one step are one.

    Example:
        >>> joined([Axis(2, 24, 0, 8), Axis(1, 0, 0, 0), Axis(3, 8, 0, 4), Axis(2, 4, 0, 2)])
        [Axis(size=2, a=24, b=0, out=8), Axis(size=6, a=4, b=0, out=2)]
    """
    found: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        if found and found[-1][1:] == tuple(axis.size * step for step in axis[1:]):
            axis = axis._replace(size=axis.size * found.pop().size)
        found.append(axis)
    return found


def calls_of(a: Matrices, b: Matrices, out: Any, precision: str) -> Calls:
    """The calls of a product. cuBLAS's columns are our rows: it computes the transpose of the product."""
    batch, offsets = _walk(a.array, b.array, out)
    m, n, k = out.shape[-2], out.shape[-1], a.array.shape[-1]
    step = out.strides[-2] // out.dtype.itemsize if m > 1 else n
    if batch.b == 0 and not a.transposed and batch.a == m * a.step and batch.out == m * step:
        m, batch = m * batch.size, Axis(1, 0, 0, 0)  # a shared matrix: all rows in one product
    wide = "_64" if max(m, n, k, a.step, b.step, step) > MOST_INT else ""
    kind, result = data_type(a.array.dtype), data_type(out.dtype)
    compute, many = _compute(a.array.dtype, precision), batch.size > 1
    sizes = [x.dtype.itemsize for x in (a.array, b.array, out)]
    return Calls(
        ("gemm_strided_batched_ex" if many else "gemm_ex") + wide,
        (int(b.transposed), int(a.transposed), n, m, k),
        (kind, b.step, batch.b) if many else (kind, b.step),
        (kind, a.step, batch.a) if many else (kind, a.step),
        (result, step, *((batch.out, batch.size) if many else ()), compute, DEFAULT_ALGORITHM),
        [(x * sizes[0], y * sizes[1], z * sizes[2]) for x, y, z in offsets],
    )


def _run(calls: Calls, a: Any, b: Any, out: Any, alpha: Any, accumulate: bool) -> None:
    """Call cuBLAS."""
    current = handle()
    workspace = prepare(current, LITTLE if out.size >= MANY else WORKSPACE)
    alpha_at, beta_at, keep = _factors(current, out, alpha, accumulate)
    function, number = getattr(current.library, calls.function), current.number
    left, right, result = a.data.ptr, b.data.ptr, out.data.ptr
    for x, y, z in calls.places:
        function(
            number, *calls.sizes, alpha_at, right + y, *calls.right, left + x, *calls.left,
            beta_at, result + z, *calls.result,
        )  # fmt: skip
    del workspace, keep


def prepare(current: Handle, size: int) -> Any:
    """Put a handle on the current stream, with a workspace that must live until the call is made.

    Choosing a stream takes the workspace away, so both are set every time.
    """
    import cupy

    workspace, cublas = cupy.empty(size, np.uint8), current.library
    cublas.set_stream(current.number, cupy.cuda.get_current_stream().ptr)
    cublas.set_workspace(current.number, workspace.data.ptr, size)
    return workspace


def _factors(current: Handle, out: Any, alpha: Any, accumulate: bool) -> tuple[int, int, Any]:
    """Where alpha and beta lie, and what must live until the call is made."""
    if not isinstance(alpha, int | float):
        current.library.set_pointer_mode(current.number, DEVICE_POINTERS)
        constants = current.constants
        return alpha.data.ptr, constants.data.ptr + constants.itemsize * accumulate, alpha
    current.library.set_pointer_mode(current.number, HOST_POINTERS)
    dtype = "float64" if out.dtype.itemsize == 8 else "float32"
    zero, size = ADDRESSES[dtype], SIZES[dtype]
    if alpha == 1:
        return zero + size, zero + size * accumulate, None
    factor = np.array([alpha], dtype)
    return factor.ctypes.data, zero + size * accumulate, factor


@cache
def data_type(dtype: Any) -> int:
    """The number that CUDA's libraries have for a dtype."""
    from nvmath import CudaDataType

    return int(CudaDataType[TYPES[np.dtype(dtype).name]])


@cache
def _compute(dtype: Any, precision: str) -> int:
    """How products are formed: 16-bit floats always exactly, with float32 sums."""
    from nvmath.bindings import cublas

    name = dtype.name
    chosen = "exact" if name == "float64" else precision if name == "float32" else "highest"
    return int(cublas.ComputeType[COMPUTE[chosen]])


def _by_arrays(a: Any, b: Any, out: Any, alpha: Any, accumulate: bool) -> None:
    """The same by the array library's own product, in float32 or float64."""
    work = np.float64 if a.dtype == np.float64 else np.float32
    found = library().matmul(a.astype(work, copy=False), b.astype(work, copy=False))
    if not isinstance(alpha, int | float) or alpha != 1:
        found = found * alpha
    if accumulate:
        found = found + out.astype(work, copy=False)
    out[...] = found.astype(out.dtype, copy=False)
