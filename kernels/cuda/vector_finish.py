"""The end of the vector product: sums of a block's warps through shared memory to the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import NAN, ZERO, F, U, bits, real
from .compile import uses_cuda
from .intrinsics import shuffle_xor
from .vector_decode import Form
from .vector_stage import COLUMNS, PIECES, columns_of

cuda: Any = None
uses_cuda(globals())

Function = Callable[..., Any]
I64 = np.int64
LANES, TILE_ROWS = 32, 16
ONE, TWO, THREE, FIVE, LAST_LANE = U(1), U(2), U(3), U(5), U(LANES - 1)


def finisher(form: Form, kind: str, rows: int, tiles: int, slices: int, two_level: bool) -> Function:
    """``finish(...)``: the sums of a block's warps to shared memory, and their totals to the result.

    Places in shared memory are unsigned: of a signed one the compiler asks whether it counts from the end.
    """
    columns, count, outputs = columns_of(rows, kind), PIECES[kind], tiles * TILE_ROWS
    put, total, items = putter(columns), totaler(form, count, columns, outputs, slices), U(outputs * rows)
    step, wide, width, each = U(LANES * tiles * slices), U(outputs), U(columns), U(count)
    last_slice, slice_shift, eight = U(slices - 1), U(slices.bit_length() - 1), U(8 * columns)

    @scalar
    def worst(bad):
        bad = U(bad | shuffle_xor(bad, ONE))
        return U(bad | shuffle_xor(bad, TWO))

    @scalar
    def write(staged, item, number, level, out, out_step, n):
        line, within = U(item // wide), U(item % wide)
        j = I64(U(U(number * wide) + within))
        if j < n:
            found = total(staged, U(U(within * width) + U(line * each)))
            out[I64(line) * out_step + j] = F(found * level) if two_level else found

    @scalar
    def one_each(staged, item, number, level, out, out_step, n):
        if item < items:
            write(staged, item, number, level, out, out_step, n)

    @scalar
    def in_turn(staged, item, number, level, out, out_step, n):
        while item < items:
            write(staged, item, number, level, out, out_step, n)
            item = U(item + step)

    write_all = one_each if items <= step else in_turn

    @scalar
    def finish(staged, sums, a_bad, b_bad, thread, number, factor, out, out_step, n):
        warp, lane = U(thread >> FIVE), U(thread & LAST_LANE)
        # Read before the barrier: it is there when the totals are.
        level = factor[0] if two_level else F(1.0)
        row = U(U(U(warp & last_slice) * wide) + U(U(U(warp >> slice_shift) * U(TILE_ROWS)) + U(lane >> TWO)))
        place, column = U(row * width), U(U(lane & THREE) * TWO)
        put(staged, place, column, sums, 0, worst(a_bad))
        put(staged, U(place + eight), column, sums, 2, worst(b_bad))
        cuda.syncthreads()
        write_all(staged, thread, number, level, out, out_step, n)

    return finish


def totaler(form: Form, count: int, columns: int, outputs: int, slices: int) -> Function:
    """``total(staged, place)``: a row's pieces over all slices, the smallest piece first."""
    share, last, grown = U(outputs * columns), U(count - 1), F(2.0**form.shrink)

    @scalar
    def total(staged, place):
        found = F(0.0)
        for piece in range(count):
            part, at = F(0.0), U(U(place + last) - U(piece))
            for each in range(slices):
                part = F(part + real(staged[U(at + U(U(each) * share))]))
            found = F(found + part)
        return F(found * grown)

    return total


def putter(columns: int) -> Function:
    """``put(staged, place, column, sums, first, bad)``: a thread's two columns of a row, of each group."""
    groups, most = -(-columns // COLUMNS), U(columns)

    @scalar
    def put_one(staged, place, column, value, bad):
        if column < most:
            staged[U(place + column)] = NAN if bad != ZERO else bits(value)

    @scalar
    def put(staged, place, column, sums, first, bad):
        for group in range(groups):
            at = U(column + U(U(group) * U(COLUMNS)))
            put_one(staged, place, at, sums[group * 4 + first], bad)
            put_one(staged, place, U(at + ONE), sums[group * 4 + first + 1], bad)

    return put
