"""A few rows by a packed matrix, decoded while it is multiplied: what a step of inference is made of.

Each weight is read once, as it is packed. A float32 vector is taken apart into three bfloat16, so that
every product is exact; sums are float32. The error of a result is that of a float32 sum of k terms in
another order: at most about ``k / 16 * 2**-22`` of the sum of the terms' magnitudes. MX weights whose scale
is below 2**-118 may lose their last bits, since bfloat16's smallest magnitude is 2**-133.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .decode import decoding
from .launch import SIMULATED, Kernel, current_device, device_capability
from .measure import contiguous
from .operand import Packed, float_kind, is_aligned, scale_bits
from .pieces import Operand, View
from .vector_decode import Form, form_of
from .vector_kernels import TILE_ROWS, Shape, vector_kernel
from .vector_stage import COLUMNS, MOST_COLUMNS, columns_of
from .vector_weights import RUN, stored_pointer

MOST_ROWS = 8
# Older devices need more registers for the same, and can't be asked for what lies ahead: so many bytes a row
# that those of all rows in work fit the second cache.
HOPPER, AHEAD = (9, 0), 4096
MOST_CODES = (1 << 31) - (1 << 16)


def multiply(a: Operand, b: Operand, out: Any, shape: Shape | None = None) -> bool:
    """Write ``a @ b`` to ``out`` and return True; False for operands that this is not for.

    Args:
        a: (..., k) of at most eight rows in all: float32, float16 or bfloat16.
        b: A View (k, n) of a packed (n, k) whose blocks run along k.
        out: (..., n), C-contiguous float32.
        shape: How threads divide the work; None for what is usual.
    """
    rows = prod(a.shape[:-1])
    if isinstance(a, View) or not isinstance(b, View) or not 0 < rows <= MOST_ROWS or out.dtype != np.float32:
        return False
    kind = float_kind(a)
    form = weight_form(b)
    if form is None or kind is None or columns_of(rows, kind) > MOST_COLUMNS:
        return False
    x = a.reshape(rows, a.shape[-1])
    if x.strides[1] != x.itemsize or (rows > 1 and x.strides[0] % 16) or not is_aligned(x):
        x = contiguous(x)
    shape = shape or usual_shape(form, columns_of(rows, kind))
    launch(vector_kernel(decoding(b.packed.codec), form.block, kind, rows, shape), x, b.packed, out, shape)
    return True


def usual_shape(form: Form, columns: int) -> Shape:
    """As many threads as registers allow: each block of them stages the whole vector."""
    old = not SIMULATED and device_capability(current_device()) < HOPPER
    ahead = 0 if old else AHEAD
    if columns > COLUMNS or not form.folded:
        return Shape(2, 4, ahead)
    return Shape(2, 8) if old else Shape(4, 8, ahead)


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
        p.shape[0] * max(words.strides[0] // words.itemsize, scales.strides[0] // scales.itemsize)
        >= MOST_CODES
    ):
        return False
    size = 16 if form.folded else RUN * form.bits // 8 // 4
    both = scales.itemsize * 2 if form.folded and form.block < RUN else scales.itemsize
    steps = not words.strides[0] % size and not scales.strides[0] % both
    return steps and is_aligned(words, size) and is_aligned(scales, both)


def launch(kernel: Kernel, x: Any, p: Packed, out: Any, shape: Shape) -> None:
    """Launch the kernel over tiles of the weight's rows."""
    n, k = p.shape
    scales = scale_bits(p.scales)
    if stored_pointer(p.codec, p.extents[-1]) == "uint16*" and scales.dtype == np.uint8:
        scale_step, scales = scales.strides[0] // 2, scales.view(np.uint16)
    else:
        scale_step = scales.strides[0] // scales.itemsize
    # A device is passed the vector's address, the simulator what it is read as.
    kernel(
        -(-n // (TILE_ROWS * shape.tiles)), shape.threads, x.view(np.uint32) if SIMULATED else x,
        x.strides[0] // 4,
        p.words, p.words.strides[0] // p.words.itemsize, scales, scale_step, p.tensor_scale, out, n, n, k,
    )  # fmt: skip
