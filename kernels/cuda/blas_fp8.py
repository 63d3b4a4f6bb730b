"""Products of packed FP8 matrices on the FP8 tensor cores, by cuBLASLt; scales stay on the device.

cuBLASLt wants both operands with the summed axis innermost, which is how lines of codes lie: the words are
multiplied as they are stored. Source: cuBLAS documentation, "Narrow Precision Data Types Usage".
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from . import blas

TILE = 128
FULL_ALIGNMENT, LEAST_ALIGNMENT = 256, 16
# The first devices with FP8 tensor cores, and the ones where cuBLASLt scales tiles of 128 codes.
OLDEST, TILED = (8, 9), (9, 0)
# How the scales of an operand lie, by names of ours.
SCALES = {"tensor": "SCALAR_32F", "rows": "VEC128_32F", "tiles": "BLK128x128_32F"}
MOST_PLANS = 256

_local = threading.local()


class Codes(NamedTuple):
    """A matrix of FP8 codes.

    Attributes:
        words: uint32 (rows, k / 4), each row contiguous.
        element: ``"e4m3"`` or ``"e5m2"``.
        scales: float32: one (any shape) for ``"tensor"``, (rows, ceil(k / 128)) for ``"rows"``,
            (ceil(rows / 128), ceil(k / 128)) for ``"tiles"``.
        mode: One of these three names.
    """

    words: Any
    element: str
    scales: Any
    mode: str


class Key(NamedTuple):
    """What cuBLASLt chooses an algorithm by; operands in its order, ours swapped."""

    rows: int
    columns: int
    k: int
    elements: tuple[str, str]
    modes: tuple[str, str]
    steps: tuple[int, int]
    out: Any
    fast: bool
    alignment: int


class Plan(NamedTuple):
    """A product that cuBLASLt can compute: its descriptions, which this thread owns."""

    description: int
    layouts: tuple[int, int, int]
    algorithm: Any


def product(a: Codes, b: Codes, out: Any, fast: bool = False) -> bool:
    """Write ``a @ b.T`` to ``out`` and return True; False where cuBLASLt has no way, and nothing is written.

    Args:
        a: Codes (m, k).
        b: Codes (n, k); not E5M2 with E5M2.
        out: (m, n), C-contiguous, float32, bfloat16 or float16.
        fast: Keep sums in the tensor cores' own registers, of about 14 bits, for longer.
    """
    if not fits(a, b, out):
        return False
    modes = a.mode, b.mode
    a_scales, b_scales = scales_of(a, "rows" if modes == ("tiles", "tiles") else a.mode), scales_of(b, b.mode)
    scales = b_scales.data.ptr, a_scales.data.ptr
    plan = _plan(_key(a, b, out, fast), scales)
    if plan is None:
        return False
    _run(plan, (b, a), scales, out)
    return True


def refusal() -> str:
    """Why cuBLASLt had no way for this thread's last new kind of product; empty where it had one."""
    return str(_local.__dict__.get("refusal", ""))


def fits(a: Codes, b: Codes, out: Any) -> bool:
    """Whether cuBLASLt's conditions hold: whole vectors of 16 bytes, E4M3 on one side, a device that can."""
    from .launch import current_device, device_capability

    (m, k), n = (a.words.shape[0], 4 * a.words.shape[1]), b.words.shape[0]
    whole = [x.mode == "tensor" for x in (a, b)]
    tiled = not all(whole)
    if not m or not n or not k or k % 16 or n % 16 or (tiled and m % 4):
        return False
    if (a.element, b.element) == ("e5m2", "e5m2") or (tiled and any(whole)):
        return False
    if any(x.words.strides[0] % 16 or x.words.data.ptr % 16 for x in (a, b)) or out.data.ptr % 16:
        return False
    capability = device_capability(current_device())
    return blas.available() and (capability == TILED if tiled else capability >= OLDEST)


def scales_of(x: Codes, mode: str) -> Any:
    """Scales as cuBLASLt reads them: rows together, or tiles in lines padded to fours."""
    import cupy

    if mode == "tensor":
        return x.scales
    if mode == "tiles":
        spare = -x.scales.shape[1] % 4
        if spare:
            return cupy.pad(x.scales, ((0, 0), (0, spare)))
        found = cupy.ascontiguousarray(x.scales)
        return found if found.data.ptr % LEAST_ALIGNMENT == 0 else found.copy()
    scales = x.scales
    if x.mode == "tiles":
        scales = cupy.repeat(scales, TILE, axis=0)[: x.words.shape[0]]
    return cupy.ascontiguousarray(scales.T)


def _key(a: Codes, b: Codes, out: Any, fast: bool) -> Key:
    pointers = [x.words.data.ptr for x in (a, b)] + [out.data.ptr]
    whole = all(pointer % FULL_ALIGNMENT == 0 for pointer in pointers)
    modes = (b.mode, "rows" if (a.mode, b.mode) == ("tiles", "tiles") else a.mode)
    return Key(
        b.words.shape[0],
        a.words.shape[0],
        4 * a.words.shape[1],
        (b.element, a.element),
        modes,
        (b.words.strides[0], a.words.strides[0]),
        out.dtype,
        fast,
        FULL_ALIGNMENT if whole else LEAST_ALIGNMENT,
    )


def _plan(key: Key, scales: tuple[int, int]) -> Plan | None:
    """The thread's plan for the current device, made once, with scales at any addresses."""
    from .launch import current_device

    plans: dict[Any, Plan | None] = _local.__dict__.setdefault("plans", {})
    where = current_device(), key
    if where not in plans:
        if len(plans) >= MOST_PLANS:
            for old in plans.values():
                _destroy(old)
            plans.clear()
        plans[where] = _make(key, scales)
    return plans[where]


def _destroy(plan: Plan | None) -> None:
    from nvmath.bindings import cublasLt

    if plan is not None:
        cublasLt.matmul_desc_destroy(plan.description)
        for layout in plan.layouts:
            cublasLt.matrix_layout_destroy(layout)


def _make(key: Key, scales: tuple[int, int]) -> Plan | None:
    """Describe the product to cuBLASLt and ask for its best algorithm.

    Scales for parts of an operand must be there before it is asked: without them it has none.
    """
    from nvmath.bindings import cublasLt

    plan = Plan(_description(key), _layouts(key), np.zeros(1, cublasLt.matmul_heuristic_result_dtype))
    preference = _preference(key.alignment)
    count = np.zeros(1, np.int32)
    _point(plan, scales)
    _local.refusal = ""
    first, second, result = plan.layouts
    try:
        cublasLt.matmul_algo_get_heuristic(
            handle(), plan.description, first, second, result, result, preference, 1,
            plan.algorithm.ctypes.data, count.ctypes.data,
        )  # fmt: skip
    except cublasLt.cuBLASLtError as error:
        count[0], _local.refusal = 0, str(error)  # "not supported" is how it says that there is none
    finally:
        cublasLt.matmul_preference_destroy(preference)
    if count[0] and plan.algorithm["state"][0] == 0:
        return plan
    _local.refusal = _local.refusal or "no algorithm"
    _destroy(plan)
    return None


def handle() -> int:
    """The thread's handle of cuBLASLt for the current device."""
    from nvmath.bindings import cublasLt

    from .launch import current_device

    handles: dict[int, int] = _local.__dict__.setdefault("handles", {})
    device = current_device()
    if device not in handles:
        handles[device] = cublasLt.create()
    return handles[device]


def _description(key: Key) -> int:
    """Rows of the first operand with rows of the second, which cuBLASLt calls columns."""
    from nvmath import CudaDataType
    from nvmath.bindings import cublas, cublasLt

    made = int(cublasLt.matmul_desc_create(cublas.ComputeType.COMPUTE_32F, CudaDataType.CUDA_R_32F))
    names = cublasLt.MatmulDescAttribute
    _describe(made, names.TRANSA, cublas.Operation.T)
    _describe(made, names.TRANSB, cublas.Operation.N)
    if key.fast:
        _describe(made, names.FAST_ACCUM, 1)
    if key.modes != ("tensor", "tensor"):
        modes = [cublasLt.MatmulMatrixScale[SCALES[mode]] for mode in key.modes]
        _describe(made, names.A_SCALE_MODE, modes[0])
        _describe(made, names.B_SCALE_MODE, modes[1])
    return made


def _describe(description: int, attribute: Any, value: int) -> None:
    from nvmath.bindings import cublasLt

    given = np.array([value], cublasLt.get_matmul_desc_attribute_dtype(attribute))
    cublasLt.matmul_desc_set_attribute(description, attribute, given.ctypes.data, given.nbytes)


def _layouts(key: Key) -> tuple[int, int, int]:
    """The operands as matrices of columns, each a row of ours, and the result."""
    from nvmath.bindings import cublasLt

    first, second = (
        cublasLt.matrix_layout_create(_fp8(element), key.k, lines, step)
        for element, lines, step in zip(key.elements, (key.rows, key.columns), key.steps, strict=True)
    )
    result = cublasLt.matrix_layout_create(blas.data_type(key.out), key.rows, key.columns, key.rows)
    return int(first), int(second), int(result)


@cache
def _fp8(element: str) -> int:
    from nvmath import CudaDataType

    return int(CudaDataType[f"CUDA_R_8F_{element.upper()}"])


def _preference(alignment: int) -> int:
    from nvmath.bindings import cublasLt

    made = int(cublasLt.matmul_preference_create())
    names = cublasLt.MatmulPreferenceAttribute
    size = np.array([blas.WORKSPACE], np.uint64)
    cublasLt.matmul_preference_set_attribute(made, names.MAX_WORKSPACE_BYTES, size.ctypes.data, size.nbytes)
    least = np.array([alignment], np.uint32)
    for matrix in "ABCD":
        name = names[f"MIN_ALIGNMENT_{matrix}_BYTES"]
        cublasLt.matmul_preference_set_attribute(made, name, least.ctypes.data, least.nbytes)
    return made


def _point(plan: Plan, scales: tuple[int, int]) -> None:
    """Say where the scales of both operands lie."""
    from nvmath.bindings import cublasLt

    names = cublasLt.MatmulDescAttribute
    _describe(plan.description, names.A_SCALE_POINTER, scales[0])
    _describe(plan.description, names.B_SCALE_POINTER, scales[1])


def _run(plan: Plan, operands: tuple[Codes, Codes], scales: tuple[int, int], out: Any) -> None:
    import cupy
    from nvmath.bindings import cublasLt

    _point(plan, scales)
    first, second, result = plan.layouts
    zero = blas.ADDRESSES["float32"]
    workspace = cupy.empty(blas.WORKSPACE, np.uint8)
    cublasLt.matmul(
        handle(), plan.description, zero + 4, operands[0].words.data.ptr, first,
        operands[1].words.data.ptr, second, zero, out.data.ptr, result, out.data.ptr, result,
        plan.algorithm.ctypes.data, workspace.data.ptr, blas.WORKSPACE,
        cupy.cuda.get_current_stream().ptr,
    )  # fmt: skip
    del workspace
