"""A chunk of the vector product: what was loaded is decoded and multiplied by the tensor cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import ZERO, F, U
from .vector_decode import Form, times
from .vector_instructions import multiply_tile, shared_load4
from .vector_stage import COLUMNS, pass_length

Function = Callable[..., Any]
I32 = np.int32
# uint32 from a unit of a thread to the one after the next.
NEXT = I32(32)


@scalar
def unit_places(place, lane):
    """Where a thread's first and second unit of a chunk lie; the next two are ``NEXT`` further.

    In odd columns neighbours have changed places, which `place_of` does.
    """
    moved = I32(I32(lane & 4) << 2)
    return I32(place + moved), I32(place + I32(moved ^ I32(16)))


def step_of(form: Form, columns: int) -> Function:
    """``step(a, b, staged, place, lane, sums, a_bad, b_bad) -> sums, a_bad, b_bad``.

    ``a`` and ``b`` are what the loader gave of the thread's two rows; ``place`` is where the chunk's units
    begin in the vector's pass.
    """
    if not form.folded:
        return summed_step(form, columns)
    return nibble_step(form, columns) if form.bits == 4 else byte_step(form, columns)


def nibble_step(form: Form, columns: int) -> Function:
    """Four units, whose scales are multiplied into them; two scales where blocks are of 16."""
    weights, accumulate, scale, bad = scaled(form), unit_product(columns), form.scale, form.bad

    @scalar
    def step(a, b, staged, place, lane, sums, a_bad, b_bad):
        (p, stored), (q, other) = a, b
        s, t = scale(stored), scale(other)
        even, odd = unit_places(place, lane)
        sums = accumulate(weights(p[0], p[0], s[0]), weights(q[0], q[0], t[0]), staged, even, lane, sums)
        sums = accumulate(weights(p[1], p[1], s[0]), weights(q[1], q[1], t[0]), staged, odd, lane, sums)
        sums = accumulate(
            weights(p[2], p[2], s[1]), weights(q[2], q[2], t[1]), staged, I32(even + NEXT), lane, sums
        )
        sums = accumulate(
            weights(p[3], p[3], s[1]), weights(q[3], q[3], t[1]), staged, I32(odd + NEXT), lane, sums
        )
        return sums, U(a_bad | bad(stored)), U(b_bad | bad(other))

    return step


def byte_step(form: Form, columns: int) -> Function:
    """Two units with one scale."""
    weights, accumulate, scale, bad = scaled(form), unit_product(columns), form.scale, bad_words(form)

    @scalar
    def step(a, b, staged, place, lane, sums, a_bad, b_bad):
        (p, stored), (q, other) = a, b
        s, t = scale(stored), scale(other)
        even = unit_places(place, lane)[0]
        sums = accumulate(weights(p[0], p[1], s[0]), weights(q[0], q[1], t[0]), staged, even, lane, sums)
        # The other one of ``unit_places``, as chunks begin at multiples of 32; here it spares a register.
        odd = I32(even ^ I32(16))
        sums = accumulate(weights(p[2], p[3], s[0]), weights(q[2], q[3], t[0]), staged, odd, lane, sums)
        a_bad = U(a_bad | U(bad(p[0], p[1]) | bad(p[2], p[3])))
        b_bad = U(b_bad | U(bad(q[0], q[1]) | bad(q[2], q[3])))
        return sums, U(a_bad | form_bad(stored)), U(b_bad | form_bad(other))

    form_bad = form.bad
    return step


def summed_step(form: Form, columns: int) -> Function:
    """Four runs of one unit a thread, each summed alone and scaled."""
    unit, accumulate, scale, bad = form.unit, unit_product(columns), form.scale, bad_words(form)
    zeros = (F(0.0),) * (4 * -(-columns // COLUMNS))
    add = scaled_sum(columns)

    @scalar
    def run(p, q, stored, other, staged, place, lane, sums):
        part = accumulate(unit(p[0], p[1]), unit(q[0], q[1]), staged, place, lane, zeros)
        return add(sums, part, scale(stored), scale(other))

    @scalar
    def step(a, b, staged, place, lane, sums, a_bad, b_bad):
        (p, s), (q, t) = a, b
        even, odd = unit_places(place, lane)
        sums = run(p[0], q[0], s[0], t[0], staged, even, lane, sums)
        sums = run(p[1], q[1], s[1], t[1], staged, odd, lane, sums)
        sums = run(p[2], q[2], s[2], t[2], staged, I32(even + NEXT), lane, sums)
        sums = run(p[3], q[3], s[3], t[3], staged, I32(odd + NEXT), lane, sums)
        a_bad = U(a_bad | U(U(bad(*p[0]) | bad(*p[1])) | U(bad(*p[2]) | bad(*p[3]))))
        b_bad = U(b_bad | U(U(bad(*q[0]) | bad(*q[1])) | U(bad(*q[2]) | bad(*q[3]))))
        return sums, a_bad, b_bad

    return step


def scaled(form: Form) -> Function:
    """``weights(word, other, scale) -> four uint32``."""
    unit = form.unit

    @scalar
    def weights(word, other, scale):
        a, b, c, d = unit(word, other)
        return times(a, scale), times(b, scale), times(c, scale), times(d, scale)

    return weights


def bad_words(form: Form) -> Function:
    """``bad(word, other)``: not 0 where a code is NaN."""
    codes = form.bad_codes
    if codes is None:

        @scalar
        def never(word, other):
            return ZERO

        return never

    @scalar
    def bad(word, other):
        return U(codes(word) | codes(other))

    return bad


def unit_product(columns: int) -> Function:
    """``accumulate(a, b, staged, place, lane, sums)``: a unit of both rows times the vector's columns."""
    groups, length = -(-columns // COLUMNS), pass_length(columns)
    # From a column to the one eight further; columns that aren't there are read from where the first lies.
    eight = I32(length // 2 * COLUMNS)

    @scalar
    def group(a, b, staged, place, c0, c1, c2, c3):
        x = shared_load4(staged, place)
        c0, c1, c2, c3 = multiply_tile(a[0], b[0], a[1], b[1], x[0], x[1], c0, c1, c2, c3)
        return multiply_tile(a[2], b[2], a[3], b[3], x[2], x[3], c0, c1, c2, c3)

    @scalar
    def beyond(place, lane, first):
        there = I32(I32(lane >> 2) + I32(first)) < columns
        return I32(place + I32(eight * I32(first // COLUMNS))) if there else place

    @scalar
    def one(a, b, staged, place, lane, s):
        return group(a, b, staged, place, s[0], s[1], s[2], s[3])

    @scalar
    def two(a, b, staged, place, lane, s):
        p, q, r, t = group(a, b, staged, place, s[0], s[1], s[2], s[3])
        u, v, w, x = group(a, b, staged, beyond(place, lane, 8), s[4], s[5], s[6], s[7])
        return p, q, r, t, u, v, w, x

    @scalar
    def three(a, b, staged, place, lane, s):
        p, q, r, t = group(a, b, staged, place, s[0], s[1], s[2], s[3])
        u, v, w, x = group(a, b, staged, beyond(place, lane, 8), s[4], s[5], s[6], s[7])
        c, d, e, f = group(a, b, staged, beyond(place, lane, 16), s[8], s[9], s[10], s[11])
        return p, q, r, t, u, v, w, x, c, d, e, f

    return (one, two, three)[groups - 1]


def scaled_sum(columns: int) -> Function:
    """``add(sums, part, scale, other)``: a run's sums, times the scales of their rows, added."""

    @scalar
    def plus(total, part, scale):
        return F(total + F(part * scale))

    @scalar
    def one(s, p, x, y):
        return plus(s[0], p[0], x), plus(s[1], p[1], x), plus(s[2], p[2], y), plus(s[3], p[3], y)

    @scalar
    def two(s, p, x, y):
        a, b, c, d = one((s[0], s[1], s[2], s[3]), (p[0], p[1], p[2], p[3]), x, y)
        e, f, g, h = one((s[4], s[5], s[6], s[7]), (p[4], p[5], p[6], p[7]), x, y)
        return a, b, c, d, e, f, g, h

    @scalar
    def three(s, p, x, y):
        a, b, c, d, e, f, g, h = two(
            (s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]),
            (p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]), x, y,
        )  # fmt: skip
        i, j, k, m = one((s[8], s[9], s[10], s[11]), (p[8], p[9], p[10], p[11]), x, y)
        return a, b, c, d, e, f, g, h, i, j, k, m

    return (one, two, three)[-(-columns // COLUMNS) - 1]
