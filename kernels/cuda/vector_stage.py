"""The vector's part of the vector product: split into bfloat16 and laid out in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import F, U
from .operand import float_reader
from .pieces import splitter
from .vector_decode import UNIT, Form
from .vector_instructions import shared_store4

Function = Callable[..., Any]
QUAD, COLUMNS = 4, 8
# uint32 of shared memory: as much as a kernel gets without asking.
SHARED = (48 << 10) // 4
# bfloat16 that a value of each kind is the sum of.
PIECES = {"float32": 3, "float16": 2, "bfloat16": 1}
# Most columns: those of eight rows of float32.
MOST_COLUMNS = 24
LOW = U(16)
I32, I64 = np.int32, np.int64


def columns_of(rows: int, kind: str) -> int:
    """Columns of tiles that so many rows of a vector take."""
    return rows * PIECES[kind]


def pass_length(columns: int) -> int:
    """How many values of each column lie in shared memory at once: a power of two.

    Example:
        >>> pass_length(3), pass_length(24)
        (8192, 1024)
    """
    return 1 << ((2 * SHARED // columns).bit_length() - 1)


@scalar
def place_of(column, slot, units):
    """Where a unit of a column lies, in uint32.

    Odd columns are moved by 64 bytes, so that the eight threads of two columns read all banks.
    """
    moved = I32(slot ^ I32(I32(column & 1) << 2))
    return I32(I32(I32(column * units) + moved) << 2)


@scalar
def column_place(lane, columns, length):
    """Where a lane's column begins, without what `place_of` moves; columns that aren't there are the first.

    Their sums are never looked at.
    """
    column = I32(lane >> 2)
    kept = column if column < columns else I32(0)
    return I32(I32(kept * I32(length >> 1)) + I32(I32(lane & 3) << 2))


def slots(form: Form) -> Function:
    """``slot(unit)``: where a unit lies among those of its pass: what four threads read at once, together."""
    inner = 128 // form.bits // UNIT
    run, last, inner_shift = QUAD * inner - 1, inner - 1, inner.bit_length() - 1

    @scalar
    def by_thread(unit):
        # A thread holds a run of units; the first ones of four threads come first.
        rest = I32(unit & run)
        return I32(I32(unit - rest) + I32(I32(I32(rest & last) << 2) + I32(rest >> inner_shift)))

    @scalar
    def in_order(unit):
        return unit

    return by_thread if form.folded else in_order


def stager(form: Form, kind: str, rows: int, threads: int, across: int) -> Function:
    """``stage(x, x_step, staged, start, k, thread)``: a pass of the vector into shared memory.

    A unit's eight values are 16 bytes of each of its pieces, in the order of the weight's registers. Zeros
    follow the last value up to a multiple of ``across``: warps read so far.
    """
    count, length = PIECES[kind], pass_length(columns_of(rows, kind))
    units, slot, put = I32(length // UNIT), slots(form), unit_putter(form, kind, count)
    group = I32(across // UNIT)

    @scalar
    def stage(x, x_step, staged, start, k, thread):
        inside = I32(I32(k - start) >> 3)
        groups = I32(I32(inside + I32(group - 1)) // group)
        stop = min(units, I32(groups * group))
        for row in range(rows):
            unit, column = thread, I32(row * count)
            while unit < stop:
                place = row * x_step + start + I64(unit) * UNIT
                put(x, place, staged, column, slot(unit), units, unit < inside)
                unit = I32(unit + threads)

    return stage


def unit_putter(form: Form, kind: str, count: int) -> Function:
    """``put(x, place, staged, column, slot, units, inside)``: eight values or zeros, ``count`` columns."""
    read, order = float_reader(kind), form.order
    split = splitter(count)
    o0, o1, o2, o3, o4, o5, o6, o7 = order

    @scalar
    def pair(x, first, second, inside):
        low, high = (read(x, first), read(x, second)) if inside else (F(0.0), F(0.0))
        return joined(split(low), split(high))

    @scalar
    def one(low, high):
        return (U(U(low[0]) | U(U(high[0]) << LOW)),)

    @scalar
    def two(low, high):
        return U(U(low[0]) | U(U(high[0]) << LOW)), U(U(low[1]) | U(U(high[1]) << LOW))

    @scalar
    def three(low, high):
        return (
            U(U(low[0]) | U(U(high[0]) << LOW)),
            U(U(low[1]) | U(U(high[1]) << LOW)),
            U(U(low[2]) | U(U(high[2]) << LOW)),
        )

    joined = {1: one, 2: two, 3: three}[count]

    @scalar
    def put(x, place, staged, column, slot, units, inside):
        a, b = pair(x, place + o0, place + o1, inside), pair(x, place + o2, place + o3, inside)
        c, d = pair(x, place + o4, place + o5, inside), pair(x, place + o6, place + o7, inside)
        shared_store4(staged, place_of(column, slot, units), a[0], b[0], c[0], d[0])
        if count > 1:
            shared_store4(staged, place_of(I32(column + I32(1)), slot, units), a[1], b[1], c[1], d[1])
        if count > 2:
            shared_store4(staged, place_of(I32(column + I32(2)), slot, units), a[-1], b[-1], c[-1], d[-1])

    return put
