"""Kernels of rows: softmax, its logarithm, layer and RMS normalization, and their input gradients.

A row is worked on by ``lanes`` threads, a power of two: several rows a warp, or several warps a row. Each
thread holds ``held`` chunks of the row in registers, so that it is read once; a row too long for that
(``held`` is 0) is read again in each pass, from the second-level cache. Sums are float32 in one order:
fours, chunks, lanes of a warp by halving, warps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..bind import scalar
from ..scalar.bits import F, bits, real
from .chunk_writers import storer
from .chunks import QUAD, WIDE, Kind, input_types, loader, output_types
from .compile import uses_cuda
from .intrinsics import shuffle_xor
from .launch import SIMULATED, kernel

cuda: Any = None
uses_cuda(globals())

Function = Callable[..., Any]
THREADS = 32 if SIMULATED else 128
WARP = 32
ROOMY = 256  # threads of a block that may use all registers there are
LOWEST, LEFT_OUT = F(np.finfo(np.float32).min), F(-np.inf)
ZERO, UNIT = F(0.0), F(1.0)
MASK = ("uint8*", "int64", "int64", "int64", "int64")


class Side(NamedTuple):
    """An operand or the result.

    Attributes:
        kind: As of chunks.py.
        access: How its chunks are read or written.
    """

    kind: Kind
    access: str


class Shape(NamedTuple):
    """How rows are spread over threads.

    Attributes:
        size: Values a chunk.
        lanes: Threads a row, a power of two.
        held: Chunks a thread holds; 0 where it reads them anew in each pass.
        full: Whether the chunks of a row's threads are the row, with nothing beyond it.
        converts: Whether the device converts from and to E4M3.
    """

    size: int
    lanes: int
    held: int
    full: bool
    converts: bool

    @property
    def slots(self) -> int:
        """Values a thread holds."""
        return self.size * max(self.held, 1)

    @property
    def threads(self) -> int:
        """Threads a block."""
        return max(self.lanes, THREADS) if self.lanes <= WARP else self.lanes

    @property
    def rows(self) -> int:
        """Rows a block works on at once."""
        return self.threads // self.lanes

    def bound(self, *sides: Side | None, masked: bool = False) -> int:
        """Threads by which the assembler must limit registers; 0 where a block has room for all it uses."""
        wide = all(side is None or side.access == WIDE for side in sides)
        return self.threads if self.lanes > ROOMY and not (wide and self.full and not masked) else 0

    def load(self, side: Side, fill: float = 0.0) -> Function:
        """What reads a chunk of an operand."""
        return loader(side.kind, self.size, side.access, self.full, self.converts, fill)

    def store(self, side: Side) -> Function:
        """What writes a chunk of the result."""
        return storer(side.kind, self.size, side.access, self.converts)


def combined(lanes: int, combine: Function) -> Function:
    """``all_of(x)``: the numbers of all threads of a row combined, the same bits for each of them."""
    warps = lanes // WARP

    @scalar
    def all_of(x):
        distance = min(lanes, WARP) // 2
        while distance > 0:
            x = combine(x, real(shuffle_xor(bits(x), distance)))
            distance //= 2
        if warps > 1:
            held = cuda.shared.array(WARP, np.float32)
            cuda.syncthreads()
            if cuda.threadIdx.x % WARP == 0:
                held[cuda.threadIdx.x // WARP] = x
            cuda.syncthreads()
            x = held[0]
            for w in range(1, warps):
                x = combine(x, held[w])
        return x

    return all_of


@scalar
def added(a, b):
    """The sum."""
    return F(a + b)


@scalar
def larger(a, b):
    """The larger one, which isn't NaN unless both are."""
    return b if b > a else a


def quads_sum(size: int) -> Function:
    """``total(a, at)``: the sum of a chunk, by fours."""

    @scalar
    def total(a, at):
        found = F(F(a[at] + a[at + 1]) + F(a[at + 2] + a[at + 3]))
        for q in range(1, size // QUAD):
            i = at + QUAD * q
            found = F(found + F(F(a[i] + a[i + 1]) + F(a[i + 2] + a[i + 3])))
        return found

    return total


def masked_loader(shape: Shape, side: Side, masked: bool) -> Function:
    """``load(source, mask, row, j, n, a, at)``: a chunk, -inf where the mask is False and beyond the row.

    A mask's rows lie ``outer`` apart after every ``period`` of them, within ``inner``; 0 repeats one.
    """
    load_x, size = shape.load(side, -math.inf), shape.size

    @scalar
    def load(source, mask, row, j, n, a, at):
        load_x(source, row, j, n, a, at)
        if masked:
            kept, outer, inner, period, step = mask
            start = (row // period) * outer + (row % period) * inner
            for i in range(size):
                if kept[start + min(j + i, n - 1) * step] == 0:
                    a[at + i] = LEFT_OUT

    return load


def weigher(size: int, log: bool) -> Function:
    """``weigh(a, at, top) -> sum``: exp(a - top) in place and its sum; with ``log`` a - top stays."""

    @scalar
    def weigh(a, at, top):
        found = ZERO
        for q in range(size // QUAD):
            b = at + QUAD * q
            w0, w1 = F(math.exp(F(a[b] - top))), F(math.exp(F(a[b + 1] - top)))
            w2, w3 = F(math.exp(F(a[b + 2] - top))), F(math.exp(F(a[b + 3] - top)))
            found = F(found + F(F(w0 + w1) + F(w2 + w3)))
            if log:
                for k in range(QUAD):
                    a[b + k] = F(a[b + k] - top)
            else:
                a[b], a[b + 1], a[b + 2], a[b + 3] = w0, w1, w2, w3
        return found

    return weigh


def tops(size: int) -> Function:
    """``top(a, at, found)``: the largest value of a chunk and of what was found before."""

    @scalar
    def top(a, at, found):
        for i in range(size):
            found = larger(found, a[at + i])
        return found

    return top


@kernel
def softmax_kernel(x_side, out_side, shape, masked, log):
    """Softmax of rows, or its logarithm, relative to the largest value; rows without any weight are 0."""
    size, lanes, held, each, slots = shape.size, shape.lanes, shape.held, shape.rows, shape.slots
    load, store, weigh = masked_loader(shape, x_side, masked), shape.store(out_side), weigher(size, log)
    top_of, sum_of, top_in = combined(lanes, larger), combined(lanes, added), tops(size)
    span = lanes * size

    def softmax(x, xs, xt, x_step, lines, mask, m0, m1, m2, m3, out, outs, out_step, rows, n):
        source, kept, target = (x, xs, xt, x_step, lines), (mask, m0, m1, m2, m3), (out, outs, out_step)
        a = cuda.local.array(slots, np.float32)
        start, slot = cuda.threadIdx.x % lanes * size, cuda.threadIdx.x // lanes
        count = held if held else (n + span - 1) // span
        for first in range(cuda.blockIdx.x * each, rows, cuda.gridDim.x * each):
            row, top, total = min(first + slot, rows - 1), LOWEST, ZERO
            for c in range(count):
                at = c * size if held else 0
                load(source, kept, row, start + c * span, n, a, at)
                top = top_in(a, at, top)
            top = top_of(top)
            for c in range(count):
                at = c * size if held else 0
                if not held:
                    load(source, kept, row, start + c * span, n, a, at)
                total = F(total + weigh(a, at, top))
            total = sum_of(total)
            total = UNIT if total < UNIT else total
            part = F(math.log(total)) if log else F(UNIT / total)
            for c in range(count):
                j, at = start + c * span, c * size if held else 0
                if not held:
                    load(source, kept, row, j, n, a, at)
                    weigh(a, at, top)
                for i in range(size):
                    a[at + i] = F(a[at + i] - part) if log else F(a[at + i] * part)
                store(target, first + slot, rows, j, n, a, at)

    types = *input_types(*x_side), *MASK, *output_types(*out_side), "int64", "int64"
    return softmax, types, shape.bound(x_side, out_side, masked=masked)


def multiplier(size: int, log: bool) -> Function:
    """``multiply(a, b, at, part) -> sum``: y in ``a``, what softmax's gradient sums in ``b``, and its sum."""
    total = quads_sum(size)

    @scalar
    def multiply(a, b, at, part):
        for i in range(size):
            a[at + i] = F(a[at + i] * part)
            b[at + i] = b[at + i] if log else F(b[at + i] * a[at + i])
        return total(b, at)

    return multiply


@kernel
def softmax_gradient_kernel(x_side, g_side, out_side, shape, masked, log):
    """The input gradient of softmax rows, or of its logarithm: ``g y - y sum(g y)``, ``g - y sum(g)``."""
    size, lanes, held, each, slots = shape.size, shape.lanes, shape.held, shape.rows, shape.slots
    load, load_g = masked_loader(shape, x_side, masked), shape.load(g_side)
    store, weigh, multiply = shape.store(out_side), weigher(size, False), multiplier(size, log)
    top_of, sum_of, top_in = combined(lanes, larger), combined(lanes, added), tops(size)
    span = lanes * size

    def gradient(
        x,
        xs,
        xt,
        x_step,
        lines,
        mask,
        m0,
        m1,
        m2,
        m3,
        g,
        gs,
        gt,
        g_step,
        g_lines,
        out,
        outs,
        out_step,
        rows,
        n,
    ):
        source, kept, target = (x, xs, xt, x_step, lines), (mask, m0, m1, m2, m3), (out, outs, out_step)
        given, count = (g, gs, gt, g_step, g_lines), held if held else (n + span - 1) // span
        a, b = cuda.local.array(slots, np.float32), cuda.local.array(slots, np.float32)
        start, slot = cuda.threadIdx.x % lanes * size, cuda.threadIdx.x // lanes
        for first in range(cuda.blockIdx.x * each, rows, cuda.gridDim.x * each):
            row, top, total, dot = min(first + slot, rows - 1), LOWEST, ZERO, ZERO
            for c in range(count):
                at = c * size if held else 0
                load(source, kept, row, start + c * span, n, a, at)
                if held:
                    load_g(given, row, start + c * span, n, b, at)
                top = top_in(a, at, top)
            top = top_of(top)
            for c in range(count):
                at = c * size if held else 0
                if not held:
                    load(source, kept, row, start + c * span, n, a, at)
                total = F(total + weigh(a, at, top))
            total = sum_of(total)
            part = F(UNIT / (UNIT if total < UNIT else total))
            for c in range(count):
                at = c * size if held else 0
                if not held:
                    load(source, kept, row, start + c * span, n, a, at)
                    load_g(given, row, start + c * span, n, b, at)
                    weigh(a, at, top)
                dot = F(dot + multiply(a, b, at, part))
            dot = sum_of(dot)
            for c in range(count):
                j, at = start + c * span, c * size if held else 0
                if not held:
                    load(source, kept, row, j, n, a, at)
                    load_g(given, row, j, n, b, at)
                    weigh(a, at, top)
                    multiply(a, b, at, part)
                for i in range(size):
                    b[at + i] = F(b[at + i] - F(a[at + i] * dot))
                store(target, first + slot, rows, j, n, b, at)

    types = *input_types(*x_side), *MASK, *input_types(*g_side), *output_types(*out_side)
    return gradient, (*types, "int64", "int64"), shape.bound(x_side, g_side, out_side, masked=masked)
