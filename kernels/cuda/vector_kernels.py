"""The kernel of the vector product: tensor cores multiply weights that are decoded in registers.

A warp takes 16 rows of the weight and, with its fellows, the chunks of them in turn; a chunk is what its
threads load at once. The weight is the left operand of tiles of 16 x 16, the vector the right one: each
float32 of it is three bfloat16 in three of eight columns, whose products are exact and whose sums are added
at the end, in an order that nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..bind import scalar
from ..codec import Codec
from ..scalar.bits import NAN, ZERO, F, U, bits, real
from .compile import uses_cuda
from .intrinsics import shuffle_xor
from .launch import kernel
from .vector_decode import Form, form_of
from .vector_instructions import begin_loads, fetch
from .vector_stage import COLUMNS, PIECES, SHARED, column_place, columns_of, pass_length, stager
from .vector_steps import step_of
from .vector_weights import chunk_length, last_codes, loader, stored_pointer, thread_codes

cuda: Any = None
uses_cuda(globals())

Function = Callable[..., Any]
I32, I64 = np.int32, np.int64
LANES, TILE_ROWS, FEW_THREADS = 32, 16, 512
SCALE_BYTES = {"ue8m0": 1, "ue4m3": 1, "f32": 4}


class Shape(NamedTuple):
    """How a block of threads divides its work.

    Attributes:
        tiles: Tiles of 16 rows.
        slices: Warps that share a tile's chunks.
        ahead: Bytes of each row's codes that come to the second cache from the start on, so that memory
            is busy while the vector is laid out; 0 where devices can't.
        holds: Whether the next chunk's loads begin before a chunk is multiplied, whatever registers it
            takes; else the assembler places them.
    """

    tiles: int
    slices: int
    ahead: int = 0
    holds: bool = False

    @property
    def threads(self) -> int:
        """Threads a block."""
        return LANES * self.tiles * self.slices


@kernel
def vector_kernel(codec: Codec, block: int, kind: str, rows: int, shape: Shape):
    """``(x, x_step, words, word_step, scales, scale_step, factor, out, out_step, n, k)``.

    ``out[r, j] = factor * sum of x[r, i] * weight[j, i]``; ``factor`` isn't read under one level. Steps are
    elements from one row to the next, of ``x`` words; ``k`` is a multiple of 32. The weight's places are
    numbered in 31 bits, which leave registers for its words.
    """
    form, columns, (tiles, slices, ahead, holds) = form_of(codec, block), columns_of(rows, kind), shape
    assert form is not None
    assert pass_length(columns) % (slices * chunk_length(form)) == 0, "a pass holds whole turns of the warps"
    stride = I32(slices * chunk_length(form))
    # Two chunks at a time where a pass holds an even number of each warp's.
    twice = pass_length(columns) // int(stride) % 2 == 0
    length, across = I32(pass_length(columns)), I32(stride * (1 + twice))
    stage, load = stager(form, kind, rows, shape.threads, int(across)), loader(form)
    step, finish = step_of(form, columns), finisher(form, kind, rows, shape, codec.two_level)
    chunk, share, own = I32(chunk_length(form)), I32(thread_codes(form)), I32(last_codes(form))
    zeros = (F(0.0),) * (4 * -(-columns // COLUMNS))
    fetch_rows = fetcher(form, codec, shape)

    def multiply(x, x_step, words, word_step, scales, scale_step, factor, out, out_step, n, k):
        staged = cuda.shared.array(SHARED, np.uint32)
        thread = I32(cuda.threadIdx.x)
        warp, lane = I32(thread >> 5), I32(thread & 31)
        if ahead:
            fetch_rows(words, word_step, scales, scale_step, thread, I32(cuda.blockIdx.x), n, k)
        # Rows past the end are read from the last one and not written.
        first = I32(I32(I32(cuda.blockIdx.x * tiles) + I32(warp // slices)) * TILE_ROWS + I32(lane >> 2))
        upper, lower = min(first, I32(n - 1)), min(I32(first + 8), I32(n - 1))
        a_words, b_words = I32(upper * word_step), I32(lower * word_step)
        a_scales, b_scales = I32(upper * scale_step), I32(lower * scale_step)
        # Codes past the end are read from the last ones and meet zeros of the vector.
        mine, last = I32(I32(lane & 3) * share), I32(k - own)
        at = I32(I32(warp % slices) * chunk)
        a = load(words, a_words, scales, a_scales, I32(at + mine), last, lane)
        b = load(words, b_words, scales, b_scales, I32(at + mine), last, lane)
        sums, a_bad, b_bad = zeros, ZERO, ZERO
        base, start = column_place(lane, columns, length), I32(0)
        while start < k:
            cuda.syncthreads()
            stage(x, x_step, staged, start, k, thread)
            cuda.syncthreads()
            stop = min(k, I32(start + length))
            while at < stop:
                place = I32(base + I32(I32(at - start) >> 1))
                if twice:
                    where = I32(I32(at + stride) + mine)
                    c = load(words, a_words, scales, a_scales, where, last, lane)
                    d = load(words, b_words, scales, b_scales, where, last, lane)
                    if holds:
                        begin_loads()
                    sums, a_bad, b_bad = step(a, b, staged, place, lane, sums, a_bad, b_bad)
                    a, b, place = c, d, I32(place + I32(stride >> 1))
                at = I32(at + across)
                c = load(words, a_words, scales, a_scales, I32(at + mine), last, lane)
                d = load(words, b_words, scales, b_scales, I32(at + mine), last, lane)
                if holds:
                    begin_loads()
                sums, a_bad, b_bad = step(a, b, staged, place, lane, sums, a_bad, b_bad)
                a, b = c, d
            start = I32(start + length)
        cuda.syncthreads()
        finish(staged, sums, a_bad, b_bad, I64(thread), I64(cuda.blockIdx.x), factor, out, out_step, n)

    signature = (
        "uint32*", "int64", "uint32*", "int32", stored_pointer(codec, block), "int32", "float32*",
        "float32*", "int64", "int32", "int32",
    )  # fmt: skip
    # Smaller blocks have registers to spare, which the assembler shouldn't save.
    return multiply, signature, shape.threads if shape.threads > FEW_THREADS else 0


def fetcher(form: Form, codec: Codec, shape: Shape) -> Function:
    """``fetch_rows(words, word_step, scales, scale_step, thread, number, n, k)``: ask for a block's rows."""
    rows, most, warps = I32(shape.tiles * TILE_ROWS), I32(shape.ahead), shape.threads // LANES
    share = I32(-(-shape.tiles * TILE_ROWS // warps))
    in_byte, block, scale_size = I32(8 // form.bits), I32(form.block), I32(SCALE_BYTES.get(codec.scale, 2))

    @scalar
    def fetch_rows(words, word_step, scales, scale_step, thread, number, n, k):
        # Each warp asks for some: one thread does at a time.
        line = I32(I32(I32(thread >> 5) * share) + I32(thread & 31))
        row = I32(I32(number * rows) + line)
        if I32(thread & 31) < share and line < rows and row < n:
            # Whole vectors of 16 bytes.
            size = I32(min(I32(k // in_byte), most) & I32(-16))
            fetch(words, I32(row * word_step), size)
            size = I32(I32(I32(size * in_byte) // block) * scale_size) & I32(-16)
            if size > 0:
                fetch(scales, I32(row * scale_step), size)

    return fetch_rows


def finisher(form: Form, kind: str, rows: int, shape: Shape, two_level: bool) -> Function:
    """``finish(...)``: the sums of a block's warps to shared memory, and their totals to the result."""
    columns, threads, tiles, slices = columns_of(rows, kind), shape.threads, shape.tiles, shape.slices
    outputs, share = tiles * TILE_ROWS, tiles * TILE_ROWS * columns
    put, count, grown = putter(columns), PIECES[kind], F(2.0**form.shrink)

    @scalar
    def total(staged, place):
        found = F(0.0)
        for piece in range(count):
            part = F(0.0)
            for each in range(slices):
                part = F(part + real(staged[each * share + place + count - 1 - piece]))
            found = F(found + part)
        return F(found * grown)

    @scalar
    def finish(staged, sums, a_bad, b_bad, thread, number, factor, out, out_step, n):
        warp, lane = thread >> 5, thread & 31
        # Read before the barrier: it is there when the totals are.
        level = factor[0] if two_level else F(1.0)
        a_bad = U(a_bad | shuffle_xor(a_bad, U(1)))
        a_bad = U(a_bad | shuffle_xor(a_bad, U(2)))
        b_bad = U(b_bad | shuffle_xor(b_bad, U(1)))
        b_bad = U(b_bad | shuffle_xor(b_bad, U(2)))
        row = warp % slices * outputs + warp // slices * TILE_ROWS + (lane >> 2)
        put(staged, row * columns, (lane & 3) * 2, sums, 0, a_bad)
        put(staged, (row + 8) * columns, (lane & 3) * 2, sums, 2, b_bad)
        cuda.syncthreads()
        for item in range(thread, outputs * rows, threads):
            line, j = item // outputs, number * outputs + item % outputs
            if j < n:
                found = total(staged, item % outputs * columns + line * count)
                out[line * out_step + j] = F(found * level) if two_level else found

    return finish


def putter(columns: int) -> Function:
    """``put(staged, place, column, sums, first, bad)``: a thread's two columns of a row, of each group."""
    groups = -(-columns // COLUMNS)

    @scalar
    def put_one(staged, place, column, value, bad):
        if column < columns:
            staged[place + column] = NAN if bad != ZERO else bits(value)

    @scalar
    def put(staged, place, column, sums, first, bad):
        for group in range(groups):
            at = column + group * COLUMNS
            put_one(staged, place, at, sums[group * 4 + first], bad)
            put_one(staged, place, at + 1, sums[group * 4 + first + 1], bad)

    return put
