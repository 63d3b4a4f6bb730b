"""The vector's part of the vector product: split into bfloat16 and laid out in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import INFINITY, MAGNITUDE, ZERO, F, U, bits, real
from .intrinsics import from_half, load4
from .quantize_instructions import permute
from .vector_decode import UNIT, Form
from .vector_instructions import shared_store4

Function = Callable[..., Any]
QUAD, COLUMNS = 4, 8
# uint32 of shared memory: as much as a kernel gets without asking.
SHARED = (48 << 10) // 4
# bfloat16 that a value of each kind is the sum of.
PIECES = {"float32": 3, "float16": 2, "bfloat16": 1}
NOTHING = (ZERO,) * 8
# Most columns: those of eight rows of float32.
MOST_COLUMNS = 24
HALF, LOW_HALF, HIGH_HALF = U(16), U(0xFFFF), U(0xFFFF0000)
# The high halves of two words, the first one's lowest.
BOTH_HIGH = U(0x7632)
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


def stager(form: Form, kind: str, rows: int, threads: int, across: int) -> tuple[Function, Function]:
    """``begin(x, start, k, thread)`` and ``stage(x, x_step, staged, start, k, thread, held)``.

    ``stage`` lays a pass of the vector out in shared memory: a unit's eight values are 16 bytes of each of
    its pieces, in the order of the weight's registers. Zeros follow the last value up to a multiple of
    ``across``, a power of two: warps read so far. ``held`` is what ``begin`` read of a vector of one row,
    ahead of other loads. The vector and its step from row to row are in words, four of which are read at
    once.
    """
    count, length = PIECES[kind], pass_length(columns_of(rows, kind))
    units, slot, put = I32(length // UNIT), slots(form), unit_putter(form, count)
    more, groups, read = I32(across // UNIT - 1), I32(-(across // UNIT)), unit_reader(kind)

    @scalar
    def unit_of(x, row, start, k, unit):
        inside = I32(I32(k - start) >> 3)
        return read(x, row, I64(I32(start >> 3)) + I64(unit)) if unit < inside else NOTHING

    @scalar
    def one_each(x, row, staged, start, k, thread, held, column, stop):
        if thread < stop:
            put(held, staged, column, slot(thread), units)

    @scalar
    def in_turn(x, row, staged, start, k, thread, held, column, stop):
        unit, values = thread, held
        while unit < stop:
            # The next ones are on their way meanwhile.
            after = I32(unit + threads)
            following = unit_of(x, row, start, k, after)
            put(values, staged, column, slot(unit), units)
            unit, values = after, following

    single = rows == 1
    lay = one_each if single and units <= threads else in_turn

    @scalar
    def begin(x, start, k, thread):
        return unit_of(x, I64(0), start, k, thread) if single else NOTHING

    @scalar
    def stage(x, x_step, staged, start, k, thread, held):
        stop = min(units, I32(I32(I32(I32(k - start) >> 3) + more) & groups))
        if single:
            lay(x, I64(0), staged, start, k, thread, held, I32(0), stop)
        else:
            for row in range(rows):
                at = row * x_step
                first = unit_of(x, at, start, k, thread)
                lay(x, at, staged, start, k, thread, first, I32(row * count), stop)

    return begin, stage


def unit_reader(kind: str) -> Function:
    """``read(x, row, unit)``: the bits of eight values as float32; ``row`` is where theirs begins."""

    @scalar
    def floats(x, row, unit):
        at = row + unit * 8
        return load4(x, at) + load4(x, at + 4)

    @scalar
    def bfloat_pair(u):
        return U(u << HALF), U(u & HIGH_HALF)

    @scalar
    def half_pair(u):
        return bits(from_half(U(u & LOW_HALF))), bits(from_half(U(u >> HALF)))

    pair = bfloat_pair if kind == "bfloat16" else half_pair

    @scalar
    def halves(x, row, unit):
        a, b, c, d = load4(x, row + unit * 4)
        return (pair(a) + pair(b)) + (pair(c) + pair(d))

    return floats if kind == "float32" else halves


@scalar
def finite_rest(u):
    """What a float32 is more than its high half, which is a bfloat16; exact. NaN stays NaN."""
    return bits(F(real(u) - real(U(u & HIGH_HALF))))


@scalar
def rest(u):
    """``finite_rest``, 0 of infinity."""
    return ZERO if U(u & MAGNITUDE) == INFINITY else finite_rest(u)


def unit_putter(form: Form, count: int) -> Function:
    """``put(values, staged, column, slot, units)``: eight values as ``count`` columns.

    A piece is the high half of what is left: 8 bits of 24 each time, so that three hold a float32.
    """
    o0, o1, o2, o3, o4, o5, o6, o7 = form.order

    @scalar
    def high(v):
        return permute(v[0], v[1], BOTH_HIGH)

    @scalar
    def less(v):
        return rest(v[0]), rest(v[1])

    @scalar
    def least(v):
        return finite_rest(v[0]), finite_rest(v[1])

    @scalar
    def put_piece(staged, place, a, b, c, d):
        shared_store4(staged, place, high(a), high(b), high(c), high(d))

    @scalar
    def put(values, staged, column, slot, units):
        a, b = (values[o0], values[o1]), (values[o2], values[o3])
        c, d = (values[o4], values[o5]), (values[o6], values[o7])
        put_piece(staged, place_of(column, slot, units), a, b, c, d)
        if count > 1:
            a, b, c, d = less(a), less(b), less(c), less(d)
            put_piece(staged, place_of(I32(column + I32(1)), slot, units), a, b, c, d)
        if count > 2:
            a, b, c, d = least(a), least(b), least(c), least(d)  # of rests, which are finite or NaN
            put_piece(staged, place_of(I32(column + I32(2)), slot, units), a, b, c, d)

    return put
