"""Places of patches in arrays of five axes: where a patch begins, where its items and its blocks are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import U

I64 = np.int64
AXES = 5
Five = tuple[int, int, int, int, int]
FIVE = ("int64",) * AXES
Function = Callable[..., Any]


def corner_of(patch: Five) -> Function:
    """``corner(index, n)``: the first place of a patch on every axis; of -1, how many patches there are."""
    p0, p1, p2, p3, p4 = patch

    @scalar
    def corner(index, n):
        q1, q2 = I64((n[1] + p1 - 1) // p1), I64((n[2] + p2 - 1) // p2)
        q3, q4 = I64((n[3] + p3 - 1) // p3), I64((n[4] + p4 - 1) // p4)
        if index < 0:
            count = I64(I64((n[0] + p0 - 1) // p0) * q1 * q2 * q3 * q4)
            return count, count, count, count, count
        a, i4 = I64(index // q4), I64(index % q4 * p4)
        b, i3 = I64(a // q3), I64(a % q3 * p3)
        c, i2 = I64(b // q2), I64(b % q2 * p2)
        return I64(c // q1 * p0), I64(c % q1 * p1), i2, i3, i4

    return corner


def splitter(sizes: Five, fast: int) -> Function:
    """``split(i) -> five places``: where item ``i`` of a box of those sizes is, ``fast`` varying quickest."""
    order = [axis for axis in range(AXES) if axis != fast] + [fast]
    steps, step = [0] * AXES, 1
    for axis in reversed(order):
        steps[axis], step = step, step * sizes[axis]
    s0, s1, s2, s3, s4 = (U(step) for step in steps)
    p0, p1, p2, p3, p4 = (U(size) for size in sizes)

    @scalar
    def split(i):
        return (
            I64(U(U(i // s0) % p0)),
            I64(U(U(i // s1) % p1)),
            I64(U(U(i // s2) % p2)),
            I64(U(U(i // s3) % p3)),
            I64(U(U(i // s4) % p4)),
        )

    return split


@scalar
def moved(first, by):
    """Places ``by`` further."""
    return first[0] + by[0], first[1] + by[1], first[2] + by[2], first[3] + by[3], first[4] + by[4]


@scalar
def inside(at, n):
    """Whether a place lies within the array on the first four axes."""
    return at[0] < n[0] and at[1] < n[1] and at[2] < n[2] and at[3] < n[3]


@scalar
def offset(at, s):
    """Values from the array's first to the one at a place."""
    return at[0] * s[0] + at[1] * s[1] + at[2] * s[2] + at[3] * s[3] + at[4] * s[4]


@scalar
def line_of(at, n):
    """The number of the line that a place lies in."""
    return ((at[0] * n[1] + at[1]) * n[2] + at[2]) * n[3] + at[3]


@scalar
def with_last(at, last):
    """A place, at another one of its line."""
    return at[0], at[1], at[2], at[3], last


def block_of(extents: Five, patch: Five) -> Function:
    """``block(by)``: the number within the patch of the block that a place of it lies in."""
    e0, e1, e2, e3, e4 = (U(e) for e in extents)
    c1, c2, c3, c4 = (U(p // e) for p, e in zip(patch[1:], extents[1:], strict=True))

    @scalar
    def block(by):
        outer = U(U(U(U(by[0]) // e0) * c1) + U(U(by[1]) // e1))
        inner = U(U(U(outer * c2) + U(U(by[2]) // e2)) * c3)
        return I64(U(U(U(inner + U(U(by[3]) // e3)) * c4) + U(U(by[4]) // e4)))

    return block
