"""Softmax, its logarithm, layer and RMS normalization of rows, with their gradients: one launch each.

Rows lie along the last axis. Operands are float32, float16 or bfloat16 arrays or packed ones; the result is
an array, or a packed one in single-level blocks within rows. Everything is computed in float32. Every
function returns whether it has a kernel for its operands; where not, nothing was written.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .chunks import ANY, PACKED, WHOLE, WIDE, Codes, chunk_size, data_pointer, kind_of, result_kind
from .decode import CONVERTS
from .launch import SIMULATED, current_device, device_capability, empty, grid, library
from .norm_kernels import columns_kernel, norm_gradient_kernel, norm_kernel, weight_kernel
from .operand import Packed, float_bits, is_aligned, scale_bits
from .row_kernels import WARP, Shape, Side, softmax_gradient_kernel, softmax_kernel

MOST_LANES, LONG_LANES, USUAL = 512, 256, 16
MOST, MOST_LOOSE = 48, 8  # values that a thread holds of rows of whole chunks, and of others
WAVES = 32
NOTHING = (None, None, None, 0, 1)
NO_MASK = (None, 0, 0, 1, 0)


class Rows(NamedTuple):
    """An operand or a result as kernels take it.

    Attributes:
        side: Its kind and how it is accessed.
        arguments: data, scales, tensor scale, step from row to row, rows of a plane.
    """

    side: Side
    arguments: tuple[Any, ...]

    @property
    def as_output(self) -> tuple[Any, ...]:
        """The arguments of a result."""
        return (*self.arguments[:2], self.arguments[3])


def softmax(x: Any, out: Any, mask: Any = None, log: bool = False, shape: Shape | None = None) -> bool:
    """exp(x) over its sum along the last axis, or the logarithm of that.

    Args:
        x: (..., n), an array or Packed.
        out: Of the same shape, written; packed in blocks within rows of single-level scales.
        mask: Bool array that broadcasts to ``x``; False leaves a value out. None keeps all.
        log: Whether the logarithm is wanted.
        shape: How rows are spread over threads; chosen if None.
    """
    kinds, n, rows = kinds_of(x, out=out), x.shape[-1], rows_of(x)
    if kinds is None:
        return False
    if rows and n:
        shape = shape or shape_of(n, kinds, 1, mask is not None)
        source, target = (given_as(a, kind, shape.size) for a, kind in zip((x, out), kinds, strict=True))
        made = softmax_kernel(source.side, target.side, shape, mask is not None, log)
        kept = NO_MASK if mask is None else mask_arguments(mask, x.shape)
        blocks = grid(rows, shape.rows, WAVES)
        made(blocks, shape.threads, *source.arguments, *kept, *target.as_output, rows, n)
    return True


def softmax_gradient(
    x: Any, g: Any, out: Any, mask: Any = None, log: bool = False, shape: Shape | None = None
) -> bool:
    """The gradient of ``softmax`` by ``x``, of the same arguments and the cotangent ``g``."""
    kinds, n, rows = kinds_of(x, g, out=out), x.shape[-1], rows_of(x)
    if kinds is None:
        return False
    if rows and n:
        shape = shape or shape_of(n, kinds, 2, mask is not None)
        source, given, target = (
            given_as(a, kind, shape.size) for a, kind in zip((x, g, out), kinds, strict=True)
        )
        made = softmax_gradient_kernel(source.side, given.side, target.side, shape, mask is not None, log)
        kept = NO_MASK if mask is None else mask_arguments(mask, x.shape)
        arguments = *source.arguments, *kept, *given.arguments, *target.as_output
        made(grid(rows, shape.rows, WAVES), shape.threads, *arguments, rows, n)
    return True


def norm(
    x: Any, weight: Any, bias: Any, out: Any, eps: float, centered: bool, shape: Shape | None = None
) -> bool:
    """(x - mean) / sqrt(variance + eps) along the last axis, times ``weight``, plus ``bias``.

    Args:
        x: (..., n), an array or Packed.
        weight: float (n,), or None for 1.
        bias: float (n,), or None for 0.
        out: Of the shape of ``x``, written.
        eps: Added to the variance.
        centered: Whether the mean is subtracted; else it is RMS normalization.
        shape: How rows are spread over threads; chosen if None.
    """
    kinds, n, rows = kinds_of(x, weight, bias, out=out), x.shape[-1], rows_of(x)
    if kinds is None:
        return False
    if rows and n:
        shape = shape or shape_of(n, kinds, 1)
        sides = [given_as(a, kind, shape.size) for a, kind in zip((x, weight, bias, out), kinds, strict=True)]
        source, scale, move, target = sides
        made = norm_kernel(source.side, scale.side, move.side, target.side, shape, centered)
        arguments = *source.arguments, *scale.arguments, *move.arguments, *target.as_output
        made(grid(rows, shape.rows, WAVES), shape.threads, *arguments, float(eps), rows, n)
    return True


def norm_gradient(
    x: Any, weight: Any, g: Any, out: Any, eps: float, centered: bool, shape: Shape | None = None
) -> bool:
    """The gradient of ``norm`` by ``x``, of the same arguments and the cotangent ``g``."""
    kinds, n, rows = kinds_of(x, weight, g, out=out), x.shape[-1], rows_of(x)
    if kinds is None:
        return False
    if rows and n:
        shape = shape or shape_of(n, kinds, 2)
        sides = [given_as(a, kind, shape.size) for a, kind in zip((x, weight, g, out), kinds, strict=True)]
        source, scale, given, target = sides
        made = norm_gradient_kernel(source.side, scale.side, given.side, target.side, shape, centered)
        arguments = *source.arguments, *scale.arguments, *given.arguments, *target.as_output
        made(grid(rows, shape.rows, WAVES), shape.threads, *arguments, float(eps), rows, n)
    return True


def norm_weight_gradient(
    x: Any, g: Any, out: Any, eps: float, centered: bool, shape: Shape | None = None
) -> bool:
    """The gradient of ``norm`` by its weight: the sum over rows of the cotangent times the normalized row.

    Two launches, in one order of summation: each group of threads sums its rows, then the groups are summed.
    There is no kernel for rows that are longer than what the threads of a block hold.

    Args:
        x, eps, centered: As of ``norm``.
        g: The cotangent.
        out: float32 (n,), written.
        shape: How rows are spread over threads; chosen if None.
    """
    kinds, n, rows = kinds_of(x, g), x.shape[-1], rows_of(x)
    shape = shape or (None if kinds is None else shape_of(n, kinds, 3))
    if kinds is None or shape is None or not shape.held:
        return False
    if n:
        blocks = grid(max(rows, 1), shape.rows, 2)
        parts = empty((blocks * shape.rows, n), np.float32)
        source, given = (given_as(a, kind, shape.size) for a, kind in zip((x, g), kinds, strict=True))
        made = weight_kernel(source.side, given.side, shape, centered)
        arguments = *source.arguments, *given.arguments, parts, float(eps), rows, n
        made(blocks, shape.threads, *arguments)
        columns_kernel()(grid(n, WARP), 256, parts, out, len(parts), n)
    return True


def rows_of(x: Any) -> int:
    """How many rows an operand has."""
    return math.prod(x.shape[:-1])


def kinds_of(*operands: Any, out: Any = None) -> tuple[Any, ...] | None:
    """The kinds of operands, None for one that is None, and of the result; None where one has none."""
    kinds = [None if x is None else kind_of(x) for x in operands]
    if out is not None:
        kinds, operands = [*kinds, result_kind(out)], (*operands, out)
    missing = any(kind is None and x is not None for kind, x in zip(kinds, operands, strict=True))
    return None if missing else tuple(kinds)


def shape_of(n: int, kinds: tuple[Any, ...], arrays: int, masked: bool = False) -> Shape:
    """How rows of ``n`` values are spread over threads that hold so many arrays of them."""
    block = max([kind.block for kind in kinds[-1:] if isinstance(kind, Codes)], default=0)
    size = chunk_size(*[kind for kind in kinds if kind is not None])
    return _shape(n, size, (MOST_LOOSE if masked or n % size else MOST) // arrays, block, converts())


@lru_cache(maxsize=4096)
def _shape(n: int, size: int, most: int, block: int, converting: bool) -> Shape:
    chunks, least = -(-n // size), max(block // PACKED, 1)
    limit = max(most // size, 1) if size != PACKED else 1
    if chunks <= WARP:
        lanes, held = max(1 << (chunks - 1).bit_length(), least), 1
    else:
        lanes = WARP
        while lanes < MOST_LANES and lanes * min(USUAL // size, limit) < chunks:
            lanes *= 2
        held = -(-chunks // lanes)
    if held > limit:
        lanes, held = LONG_LANES, 0
    return Shape(size, lanes, held, n == lanes * held * size, converting)


def converts() -> bool:
    """Whether the current device converts from and to E4M3."""
    return SIMULATED or device_capability(current_device()) >= CONVERTS


def given_as(x: Any, kind: Any, size: int) -> Rows:
    """An operand or a result as kernels take it; operands of other strides than rows' are copied."""
    if kind is None:
        return Rows(None, NOTHING)  # type: ignore[arg-type]
    if isinstance(kind, Codes):
        return _packed_rows(x, kind)
    n = x.shape[-1]
    step = row_step(x)
    if step is None:
        x, step = library().ascontiguousarray(x), n
    aligned = is_aligned(x) and step * x.itemsize % 16 == 0
    access = ANY if n % size else WIDE if aligned else WHOLE
    data = float_bits(x)
    if SIMULATED and data_pointer(kind, access) == "uint32*":
        data = x.reshape(-1).view(np.uint32)
    return Rows(Side(kind, access), (data, None, None, step, 1))


def _packed_rows(x: Packed, kind: Codes) -> Rows:
    n, bits = x.shape[-1], kind.codec.element.bits
    words, scales = library().ascontiguousarray(x.words), library().ascontiguousarray(x.scales)
    step = words.shape[-1]
    wanted = {8: 16, 4: 8}.get(bits, 0)
    wide = wanted and is_aligned(words, wanted) and step * 4 % wanted == 0
    access = ANY if n % PACKED else WIDE if wide else WHOLE
    lines = x.shape[-2] if len(x.shape) > 1 else 1
    return Rows(Side(kind, access), (words, scale_bits(scales), x.tensor_scale, step, max(lines, 1)))


def row_step(x: Any) -> int | None:
    """Values from one row to the next; None where rows aren't evenly spaced, or values not neighbours."""
    if x.shape[-1] != 1 and x.strides[-1] != x.itemsize:
        return None
    step, done = None, 1
    for size, stride in zip(reversed(x.shape[:-1]), reversed(x.strides[:-1]), strict=True):
        if size == 1:
            continue
        if step is not None and stride != step * done:
            return None
        step, done = (stride, size) if step is None else (step, done * size)
    if step is None:
        return int(x.shape[-1])
    return int(step) // int(x.itemsize) if step % x.itemsize == 0 and step > 0 else None


def mask_arguments(mask: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A mask's bytes, and its steps: from plane to plane, row to row, rows a plane, along a row."""
    data = mask.view(np.uint8)
    found = library().broadcast_to(data, shape)
    groups = joined_rows(found)
    if len(groups) > 2:
        data = found = library().ascontiguousarray(found)
        groups = joined_rows(found)
    (_, outer), (period, inner) = [(1, 0), (1, 0), *groups][-2:]
    return data, outer, inner, period, found.strides[-1] if found.shape[-1] > 1 else 0


def joined_rows(x: Any) -> list[tuple[int, int]]:
    """Lengths and strides of the axes before the last, neighbours in one step joined."""
    groups: list[tuple[int, int]] = []
    for size, stride in zip(x.shape[:-1], x.strides[:-1], strict=True):
        if size == 1:
            continue
        if groups and groups[-1][1] == size * stride:
            groups[-1] = groups[-1][0] * size, stride
        else:
            groups.append((size, stride))
    return groups
