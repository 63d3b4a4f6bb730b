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
from .vector_instructions import begin_loads
from .vector_stage import COLUMNS, PIECES, SHARED, column_place, columns_of, pass_length, stager
from .vector_steps import step_of
from .vector_weights import chunk_length, last_codes, loader, stored_pointer, thread_codes

cuda: Any = None
uses_cuda(globals())

Function = Callable[..., Any]
I32, I64 = np.int32, np.int64
LANES, TILE_ROWS, FEW_THREADS = 32, 16, 512


class Shape(NamedTuple):
    """How a block of threads divides its work.

    Attributes:
        tiles: Tiles of 16 rows.
        slices: Warps that share a tile's chunks.
        ahead: Chunks that a warp has on their way while it multiplies one, 1 or 2; 0 leaves it to the
            assembler when they are loaded, which takes fewer registers.
        fetched: Bytes that come to the second cache with a load, of which other warps take a part: 128, 256
            or 0 for only what is read.
    """

    tiles: int
    slices: int
    ahead: int = 0
    fetched: int = 0

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
    form, columns, (tiles, slices, ahead, _) = form_of(codec, block), columns_of(rows, kind), shape
    assert form is not None
    assert pass_length(columns) % (slices * chunk_length(form)) == 0, "a pass holds whole turns of the warps"
    stride, turns = I32(slices * chunk_length(form)), turns_of(form, columns, shape)
    length, across = I32(pass_length(columns)), I32(stride * turns)
    stage, load = stager(form, kind, rows, shape.threads, int(across)), pair_loader(form, shape)
    walk, finish = walker(form, columns, shape), finisher(form, kind, rows, shape, codec.two_level)
    chunk, share, own = I32(chunk_length(form)), I32(thread_codes(form)), I32(last_codes(form))
    zeros, second = (F(0.0),) * (4 * -(-columns // COLUMNS)), stride if ahead == 2 and turns == 2 else I32(0)

    def multiply(x, x_step, words, word_step, scales, scale_step, factor, out, out_step, n, k):
        staged = cuda.shared.array(SHARED, np.uint32)
        thread = I32(cuda.threadIdx.x)
        warp, lane = I32(thread >> 5), I32(thread & 31)
        a_row, b_row = rows_of(
            I32(I32(cuda.blockIdx.x * tiles) + I32(warp // slices)), lane, n, word_step, scale_step
        )
        # Codes past the end are read from the last ones and meet zeros of the vector.
        mine, last = I32(I32(lane & 3) * share), I32(k - own)
        at = I32(I32(warp % slices) * chunk)
        loaded = following = load(words, scales, a_row, b_row, I32(at + mine), last, lane)
        if second:
            following = load(words, scales, a_row, b_row, I32(I32(at + second) + mine), last, lane)
        state = zeros, ZERO, ZERO
        base, start = column_place(lane, columns, length), I32(0)
        while start < k:
            if start > 0:
                cuda.syncthreads()
            stage(x, x_step, staged, start, k, thread)
            cuda.syncthreads()
            stop, here = min(k, I32(start + length)), I32(base - I32(start >> 1))
            while at < stop:
                loaded, following, state = walk(
                    words, scales, a_row, b_row, at, mine, last, lane, staged, I32(here + I32(at >> 1)),
                    loaded, following, state,
                )  # fmt: skip
                at = I32(at + across)
            start = I32(start + length)
        cuda.syncthreads()
        sums, a_bad, b_bad = state
        finish(staged, sums, a_bad, b_bad, I64(thread), I64(cuda.blockIdx.x), factor, out, out_step, n)

    signature = (
        "uint32*", "int64", "uint32*", "int32", stored_pointer(codec, block), "int32", "float32*",
        "float32*", "int64", "int32", "int32",
    )  # fmt: skip
    # Smaller blocks have registers to spare, which the assembler shouldn't save.
    return multiply, signature, shape.threads if shape.threads > FEW_THREADS else 0


def turns_of(form: Form, columns: int, shape: Shape) -> int:
    """Chunks that a warp takes a turn: two where a pass holds an even number of each warp's."""
    chunks = pass_length(columns) // (shape.slices * chunk_length(form))
    return 2 if chunks % 2 == 0 else 1


@scalar
def rows_of(tile, lane, n, word_step, scale_step):
    """Where a thread's two rows of a tile begin: their words and scales.

    Rows past the end are read from the last one and not written.
    """
    first = I32(tile * TILE_ROWS + I32(lane >> 2))
    upper, lower = min(first, I32(n - 1)), min(I32(first + 8), I32(n - 1))
    return (
        (I32(upper * word_step), I32(upper * scale_step)),
        (I32(lower * word_step), I32(lower * scale_step)),
    )


def pair_loader(form: Form, shape: Shape) -> Function:
    """``load(words, scales, a_row, b_row, at, last, lane)``: a chunk of both rows."""
    load, holds = loader(form, shape.fetched), shape.ahead > 0

    @scalar
    def pair(words, scales, a_row, b_row, at, last, lane):
        found = load(words, a_row, scales, at, last, lane), load(words, b_row, scales, at, last, lane)
        if holds:
            begin_loads()
        return found

    return pair


def walker(form: Form, columns: int, shape: Shape) -> Function:
    """``walk(words, scales, a_row, b_row, at, mine, last, lane, staged, place, loaded, following, state)``.

    A turn of a warp: multiplies what is ``loaded``, and the next chunk if a turn has two; gives what was
    loaded meanwhile for the next turn. ``following`` is the second chunk where two are on their way.
    """
    pair, step, turns = pair_loader(form, shape), step_of(form, columns), turns_of(form, columns, shape)
    stride, ahead = I32(shape.slices * chunk_length(form)), min(shape.ahead, turns)

    @scalar
    def once(words, scales, a_row, b_row, at, mine, last, lane, staged, place, loaded, following, state):
        new = pair(words, scales, a_row, b_row, I32(I32(at + stride) + mine), last, lane)
        return new, following, step(loaded[0], loaded[1], staged, place, lane, *state)

    @scalar
    def twice(words, scales, a_row, b_row, at, mine, last, lane, staged, place, loaded, following, state):
        at, after = I32(at + mine), I32(place + I32(stride >> 1))
        second = pair(words, scales, a_row, b_row, I32(at + stride), last, lane)
        state = step(loaded[0], loaded[1], staged, place, lane, *state)
        new = pair(words, scales, a_row, b_row, I32(at + I32(2 * stride)), last, lane)
        return new, following, step(second[0], second[1], staged, after, lane, *state)

    @scalar
    def deep(words, scales, a_row, b_row, at, mine, last, lane, staged, place, loaded, following, state):
        at, after = I32(at + mine), I32(place + I32(stride >> 1))
        first = pair(words, scales, a_row, b_row, I32(at + I32(2 * stride)), last, lane)
        state = step(loaded[0], loaded[1], staged, place, lane, *state)
        second = pair(words, scales, a_row, b_row, I32(at + I32(3 * stride)), last, lane)
        return first, second, step(following[0], following[1], staged, after, lane, *state)

    return deep if ahead == 2 else twice if turns == 2 else once


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
