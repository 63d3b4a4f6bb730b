"""A few rows by a packed matrix, decoded while it is multiplied: what a step of inference is made of.

Each weight is read once, as it is packed. A float32 vector is taken apart into three bfloat16, so that
every product is exact; sums are float32. The error of a result is that of a float32 sum of k terms in
another order: at most about ``k / 16 * 2**-22`` of the sum of the terms' magnitudes. MX weights whose scale
is below 2**-118 may lose their last bits, since bfloat16's smallest magnitude is 2**-133.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..codec import Codec
from .decode import decoding
from .dequantize import alignment
from .launch import SIMULATED, Kernel, current_device, device_capability, empty
from .measure import contiguous
from .operand import Packed, float_kind, is_aligned, scale_bits
from .pieces import Operand, View
from .vector_decode import Form, form_of
from .vector_finish import TILE_ROWS
from .vector_kernels import Shape, vector_kernel
from .vector_stage import COLUMNS, MOST_COLUMNS, columns_of
from .vector_weights import RUN, stored_pointer

MOST_ROWS = 8
# Other devices' compilers need more registers than 1024 threads have.
HOPPER = (9, 0)
MOST_CODES = (1 << 31) - (1 << 16)
FLOAT = np.dtype(np.float32)
# Plans are found by the identity of a codec; an entry holds it.
PLANS = 1024
_plans: dict[tuple[Any, ...], tuple[Codec, Plan | None]] = {}


class Plan(NamedTuple):
    """How operands that lie in one way are multiplied.

    Attributes:
        kernel: The kernel.
        blocks: Thread blocks.
        threads: Threads a block.
        copies: Whether the vector must be made contiguous first.
        steps: From one row to the next, in words of the vector and the weight; scales as the kernel counts.
        sizes: From a row of the result to the next, and the weight's rows and columns.
        shape: Of the result.
    """

    kernel: Kernel
    blocks: int
    threads: int
    copies: bool
    steps: tuple[int, int, int]
    sizes: tuple[int, int, int]
    shape: tuple[int, ...]


def product(a: Operand, b: Operand) -> Any:
    """``a @ b`` as a new float32 array, of operands as `multiply` takes them; None for others."""
    plan = plan_of(a, b)
    if plan is None:
        return None
    out = empty(plan.shape, FLOAT)
    run(plan, a, b.packed, out)
    return out


def multiply(a: Operand, b: Operand, out: Any, shape: Shape | None = None) -> bool:
    """Write ``a @ b`` to ``out`` and return True; False for operands that this is not for.

    Args:
        a: (..., k) of at most eight rows in all: float32, float16 or bfloat16.
        b: A View (k, n) of a packed (n, k) whose blocks run along k.
        out: (..., n), C-contiguous float32.
        shape: How threads divide the work; None for what is usual.
    """
    plan = plan_of(a, b) if shape is None else make_plan(a, b, shape)
    if plan is None or out.dtype != FLOAT:
        return False
    run(plan, a, b.packed, out)
    return True


def plan_of(a: Operand, b: Operand) -> Plan | None:
    """How these operands are multiplied, None where others have to; found by how they lie."""
    if b.__class__ is not View or a.__class__ is View or len(b.order) != 2:
        return None
    p, order = b
    words, scales = p.words, p.scales
    key = (
        id(p.codec), p.extents, p.shape, order, words.strides, scales.strides, alignment(words),
        alignment(scales), a.shape, a.strides, a.dtype, alignment(a), 0 if SIMULATED else current_device(),
    )  # fmt: skip
    found = _plans.get(key)
    if found is None:
        if len(_plans) >= PLANS:
            _plans.clear()
        found = _plans[key] = p.codec, make_plan(a, b)
    return found[1]


def make_plan(a: Operand, b: Operand, shape: Shape | None = None) -> Plan | None:
    """The plan of operands, by the usual shape unless one is given."""
    if isinstance(a, View) or not isinstance(b, View):
        return None
    rows, kind, form = prod(a.shape[:-1]), float_kind(a), weight_form(b)
    if form is None or kind is None or not 0 < rows <= MOST_ROWS or columns_of(rows, kind) > MOST_COLUMNS:
        return None
    if a.shape[-1] != b.shape[0]:
        return None
    x, p, shape = a.reshape(rows, a.shape[-1]), b.packed, shape or usual_shape(form, rows, kind)
    copies = x.strides[1] != x.itemsize or (rows > 1 and x.strides[0] % 16 != 0) or not is_aligned(x)
    copies = copies or _address(x) != _address(a)  # rows that don't lie in equal steps
    kernel = vector_kernel(decoding(p.codec), form.block, kind, rows, shape)
    n, k = p.shape
    steps = k * x.itemsize // 4 if copies else x.strides[0] // 4, p.words.strides[0] // 4, _scale_step(p)
    blocks = -(-n // (TILE_ROWS * shape.tiles))
    return Plan(kernel, blocks, shape.threads, copies, steps, (n, n, k), (*a.shape[:-1], n))


def _address(x: Any) -> int:
    return int(x.__array_interface__["data"][0] if SIMULATED else x.data.ptr)


def _scale_step(p: Packed) -> int:
    """From a row's scales to the next one's, as the kernel counts them."""
    size = 2 if stored_pointer(p.codec, p.extents[-1]) == "uint16*" else p.scales.itemsize
    return int(p.scales.strides[0] // size)


def run(plan: Plan, a: Any, p: Packed, out: Any) -> None:
    """Launch a plan."""
    words, scales = p.words, p.scales
    if plan.copies:
        a = contiguous(a)
    if SIMULATED:
        # A device is passed addresses, the simulator what they are read as.
        a = a.reshape(-1, a.shape[-1]).view(np.uint32)
        scales = scale_bits(scales).view(plan.kernel.source.signature[4][:-1])
    x_step, word_step, scale_step = plan.steps
    plan.kernel(
        plan.blocks, plan.threads, a, x_step, words, word_step, scales, scale_step, p.tensor_scale, out,
        *plan.sizes,
    )  # fmt: skip


def usual_shape(form: Form, rows: int, kind: str) -> Shape:
    """What was fastest of those that benchmarks/gpu/vector.py tries, where registers allow it."""
    if columns_of(rows, kind) > COLUMNS:
        return Shape(2, 4)
    if not form.folded:
        return Shape(4, 4, 1)
    hopper = SIMULATED or device_capability(current_device()) == HOPPER
    # Eight bits a code were timed with one row.
    return Shape(4, 8, 1, 128) if hopper and (form.bits == 4 or rows == 1) else Shape(4, 4, 2, 128)


def weight_form(b: View) -> Form | None:
    """How the kernel reads a weight, None where it can't: other codecs, blocks, axes or places in memory."""
    p = b.packed
    if b.order != (1, 0) or len(p.shape) != 2 or p.shape[1] % RUN or not 0 < p.shape[1] < MOST_CODES:
        return None
    extents = (1,) * (2 - len(p.extents)) + p.extents
    if not p.extents or extents[0] != 1 or not extents[1]:
        return None
    form = form_of(p.codec, extents[1])
    if form is None or not p.shape[0]:
        return None
    return form if _lies_well(p, form) else None


def _lies_well(p: Packed, form: Form) -> bool:
    """Whether rows can be read 16 bytes, and scales two, at a time."""
    words, scales = p.words, p.scales
    if words.strides[1] != words.itemsize or scales.strides[1] != scales.itemsize:
        return False
    if (
        p.shape[0] * max(abs(words.strides[0]) // words.itemsize, abs(scales.strides[0]) // scales.itemsize)
        >= MOST_CODES
    ):
        return False
    size = 16 if form.folded else RUN * form.bits // 8 // 4
    both = scales.itemsize * 2 if form.folded and form.block < RUN else scales.itemsize
    steps = not words.strides[0] % size and not scales.strides[0] % both
    return steps and is_aligned(words, size) and is_aligned(scales, both)
