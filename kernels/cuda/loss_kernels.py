"""Kernels of the cross-entropy of rows: the losses, their sum or mean, and the gradient of the logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import F
from .chunks import Codes, input_types, output_types, scale_place
from .compile import uses_cuda
from .launch import SIMULATED, kernel
from .operand import code_reader, decoder, effective, float_reader
from .row_kernels import LOWEST, UNIT, ZERO, Function, Shape, Side, added, combined, larger, tops, weigher

cuda: Any = None
uses_cuda(globals())

SUMMERS = 32 if SIMULATED else 1024
NAN = F(np.nan)


def value_reader(side: Side) -> Function:
    """``read(source, row, j, n)``: one value of a row."""
    kind = side.kind
    if not isinstance(kind, Codes):
        read_float = float_reader(kind)

        @scalar
        def read(source, row, j, n):
            return read_float(source[0], row * source[3] + j)

        return read
    code, scale_of, decode = code_reader(kind.codec.element.bits), effective(kind.codec), decoder(kind.codec)
    place = scale_place(kind)

    @scalar
    def read_packed(source, row, j, n):
        words, scales, tensor, step, lines = source
        scale = scale_of(scales, place(row, j, n, lines), tensor)
        return decode(code(words, row * step, j), scale)

    return read_packed


def chunk_sum(size: int) -> Function:
    """``total(a, at, j, n)``: the sum of what lies within the row."""

    @scalar
    def total(a, at, j, n):
        found = ZERO
        for i in range(size):
            found = F(found + (a[at + i] if j + i < n else ZERO))
        return found

    return total


@kernel
def losses_kernel(x_side: Side, shape: Shape, smooths: bool):
    """Minus the log-probability of each row's label; 0 where it is ignored, NaN where it is no class."""
    size, lanes, held, each, slots = shape.size, shape.lanes, shape.held, shape.rows, shape.slots
    load, weigh, top_in = shape.load(x_side, -math.inf), weigher(size, True), tops(size)
    top_of, sum_of, read = combined(lanes, larger), combined(lanes, added), value_reader(x_side)
    sum_in, span = chunk_sum(size), lanes * size

    def losses(x, xs, xt, x_step, lines, labels, ignored, smoothing, out, rows, n):
        source, a = (x, xs, xt, x_step, lines), cuda.local.array(slots, np.float32)
        start, slot = cuda.threadIdx.x % lanes * size, cuda.threadIdx.x // lanes
        count = held if held else (n + span - 1) // span
        for first in range(cuda.blockIdx.x * each, rows, cuda.gridDim.x * each):
            row, top, total, shifted = min(first + slot, rows - 1), LOWEST, ZERO, ZERO
            for c in range(count):
                at = c * size if held else 0
                load(source, row, start + c * span, n, a, at)
                top = top_in(a, at, top)
            top = top_of(top)
            for c in range(count):
                j, at = start + c * span, c * size if held else 0
                if not held:
                    load(source, row, j, n, a, at)
                total = F(total + weigh(a, at, top))
                if smooths:
                    shifted = F(shifted + sum_in(a, at, j, n))
            total = sum_of(total)
            if smooths:
                shifted = sum_of(shifted)
            label = labels[row]
            if start == 0 and first + slot < rows:
                if label == ignored:
                    out[row] = ZERO
                elif label < 0 or label >= n:
                    out[row] = NAN
                else:
                    hit = F(read(source, row, label, n) - top)
                    if smooths:
                        hit = F(F(F(UNIT - smoothing) * hit) + F(shifted * F(smoothing / F(n))))
                    out[row] = F(F(math.log(total)) - hit)

    types = *input_types(*x_side), "int64*", "int64", "float32", "float32*", "int64", "int64"
    return losses, types, shape.bound(x_side)


@kernel
def mean_kernel(mean: bool):
    """The sum of losses, or their mean over the labels that aren't ignored; and how many those are."""
    sum_of = combined(SUMMERS, added)

    def reduce(losses, labels, ignored, out, count, rows):
        total, kept = ZERO, ZERO
        for row in range(cuda.threadIdx.x, rows, SUMMERS):
            total = F(total + losses[row])
            kept = F(kept + (ZERO if labels[row] == ignored else UNIT))
        total, kept = sum_of(total), sum_of(kept)
        if cuda.threadIdx.x == 0:
            divisor = kept if kept > UNIT else UNIT
            out[0] = F(total / divisor) if mean else total
            count[0] = divisor if mean else UNIT

    return reduce, ("float32*", "int64*", "int64", "float32*", "float32*", "int64"), SUMMERS


@kernel
def losses_gradient_kernel(x_side: Side, out_side: Side, shape: Shape, single: bool, counted: bool):
    """The softmax of each row less its target distribution, times the cotangent over the count.

    With ``single`` there is one cotangent for all rows; with ``counted`` the count is read from ``kept``.
    """
    size, lanes, held, each, slots = shape.size, shape.lanes, shape.held, shape.rows, shape.slots
    load, weigh, top_in = shape.load(x_side, -math.inf), weigher(size, False), tops(size)
    top_of, sum_of, store = combined(lanes, larger), combined(lanes, added), shape.store(out_side)
    span = lanes * size

    def gradient(
        x, xs, xt, x_step, lines, labels, ignored, smoothing, g, kept, terms, out, outs, out_step, rows, n
    ):
        source, target = (x, xs, xt, x_step, lines), (out, outs, out_step)
        a, even = cuda.local.array(slots, np.float32), F(smoothing / F(n))
        start, slot = cuda.threadIdx.x % lanes * size, cuda.threadIdx.x // lanes
        count = held if held else (n + span - 1) // span
        for first in range(cuda.blockIdx.x * each, rows, cuda.gridDim.x * each):
            row, top, total = min(first + slot, rows - 1), LOWEST, ZERO
            for c in range(count):
                at = c * size if held else 0
                load(source, row, start + c * span, n, a, at)
                top = top_in(a, at, top)
            top = top_of(top)
            for c in range(count):
                at = c * size if held else 0
                if not held:
                    load(source, row, start + c * span, n, a, at)
                total = F(total + weigh(a, at, top))
            total = sum_of(total)
            part = F(UNIT / (UNIT if total < UNIT else total))
            label, given = labels[row], g[0] if single else g[row]
            given = F(given * F(UNIT / (kept[0] if counted else terms)))
            for c in range(count):
                j, at = start + c * span, c * size if held else 0
                if not held:
                    load(source, row, j, n, a, at)
                    weigh(a, at, top)
                for i in range(size):
                    less = F(F(a[at + i] * part) - even)
                    less = F(less - F(UNIT - smoothing)) if j + i == label else less
                    a[at + i] = F(less * given) if label != ignored else ZERO
                store(target, first + slot, rows, j, n, a, at)

    types = *input_types(*x_side), "int64*", "int64", "float32", "float32*", "float32*", "float32"
    return gradient, (*types, *output_types(*out_side), "int64", "int64"), shape.bound(x_side, out_side)
