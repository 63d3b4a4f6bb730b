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
from ..scalar.bits import ZERO, F, U
from .compile import uses_cuda
from .launch import kernel
from .vector_decode import Form, form_of
from .vector_finish import LANES, TILE_ROWS, finisher
from .vector_instructions import begin_loads, thread_again
from .vector_stage import COLUMNS, SHARED, column_place, columns_of, pass_length, stager
from .vector_steps import step_of
from .vector_weights import chunk_length, last_codes, loader, places_of, stored_pointer, thread_codes

cuda: Any = None
uses_cuda(globals())

Function = Callable[..., Any]
I32, I64 = np.int32, np.int64
FEW_THREADS = 512


class Shape(NamedTuple):
    """How a block of threads divides its work.

    Attributes:
        tiles: Tiles of 16 rows.
        slices: Warps that share a tile's chunks, a power of two.
        ahead: Chunks that a warp has on their way while it multiplies one, 1 or 2; 0 leaves it to the
            assembler when they are loaded, which takes fewer registers.
        fetched: Bytes that come to the second cache with a load, of which other warps take a part: 128, 256
            or 0 for only what is read.
        order: How a warp's chunks lie among those of a pass: "apart", those of other warps between each two;
            "beside", two of a turn side by side, which are whole lines; "along", all of them, so that what
            comes to the second cache with a load is what the warp reads next.
    """

    tiles: int
    slices: int
    ahead: int = 0
    fetched: int = 0
    order: str = "apart"

    @property
    def threads(self) -> int:
        """Threads a block."""
        return LANES * self.tiles * self.slices


class Steps(NamedTuple):
    """How a warp walks along its rows, in codes.

    Attributes:
        turns: Chunks of a turn, 1 or 2.
        first: From where a warp begins to where the next one does; "along", the least that can be.
        second: From a turn's first chunk to its second.
        across: From a turn to the next.
        whole: What all warps read in a turn.
    """

    turns: int
    first: int
    second: int
    across: int
    whole: int


def steps_of(form: Form, columns: int, shape: Shape) -> Steps:
    """The steps of a shape; a turn is of two chunks where a pass holds an even number of each warp's."""
    chunk, stride = chunk_length(form), shape.slices * chunk_length(form)
    assert pass_length(columns) % stride == 0, "a pass holds whole turns of the warps"
    turns = 2 if pass_length(columns) // stride % 2 == 0 else 1
    near, whole = turns * chunk, turns * stride
    return {
        "apart": Steps(turns, chunk, stride, whole, whole),
        "beside": Steps(turns, near, chunk, whole, whole),
        "along": Steps(turns, near, chunk, near, whole),
    }[shape.order]


def spans_of(steps: Steps, shape: Shape, length: int) -> Function:
    """``span(start, k, warp) -> at, stop``: where a warp begins and ends in the pass from ``start`` on."""
    last, shift = I32(shape.slices - 1), I32(shape.slices.bit_length() - 1)
    first, whole = I32(steps.first), I32(steps.whole)

    @scalar
    def spread(start, k, warp):
        return I32(start + I32(I32(warp & last) * first)), min(k, I32(start + length))

    @scalar
    def run(start, k, warp):
        inside = min(I32(k - start), length)
        share = I32(I32(I32(inside + I32(whole - 1)) & I32(-whole)) >> shift)
        at = I32(start + I32(I32(warp & last) * share))
        return at, min(k, I32(at + share))

    return run if shape.order == "along" else spread


@kernel
def vector_kernel(codec: Codec, block: int, kind: str, rows: int, shape: Shape):
    """``(x, x_step, words, word_step, scales, scale_step, factor, out, out_step, n, k)``.

    ``out[r, j] = factor * sum of x[r, i] * weight[j, i]``; ``factor`` isn't read under one level. Steps are
    elements from one row to the next, of ``x`` words; ``k`` is a multiple of 32. The weight's places are
    numbered in 31 bits, which leave registers for its words.
    """
    form, columns, tiles, slices = form_of(codec, block), columns_of(rows, kind), shape.tiles, shape.slices
    assert form is not None
    steps, length, along = steps_of(form, columns, shape), I32(pass_length(columns)), shape.order == "along"
    begin, stage = stager(form, kind, rows, shape.threads, steps.whole)
    lines, load, walk = rows_of(form), first_loader(form, steps, shape), walker(form, columns, shape)
    span, finish = spans_of(steps, shape, length), finisher(form, kind, rows, tiles, slices, codec.two_level)
    across, shift, single = I32(steps.across), I32(slices.bit_length() - 1), rows == 1
    own, share, zeros = last_codes(form), I32(thread_codes(form)), (F(0.0),) * (4 * -(-columns // COLUMNS))

    def multiply(x, x_step, words, word_step, scales, scale_step, factor, out, out_step, n, k):
        staged = cuda.shared.array(SHARED, np.uint32)
        thread = I32(cuda.threadIdx.x)
        # The vector is asked for first: it is laid out while the weight is on its way.
        held = begin(x, I32(0), k, thread)
        begin_loads()
        warp, lane = I32(thread >> 5), I32(thread & 31)
        tile = I32(I32(cuda.blockIdx.x * tiles) + I32(warp >> shift))
        a_row, b_row = lines(tile, lane, n, word_step, scale_step)
        # Codes past the end are read from the last ones and meet zeros of the vector.
        last, state = I32(I32(k - own) - I32(I32(lane & 3) * share)), (zeros, ZERO, ZERO)
        at, stop = span(I32(0), k, warp)
        loaded, following = load(words, scales, a_row, b_row, at, last, lane)
        base, start = column_place(lane, columns, length), I32(0)
        if single:
            stage(x, x_step, staged, start, k, thread, held)
        while start < k:
            if not single:
                stage(x, x_step, staged, start, k, thread_again(), held)
            cuda.syncthreads()
            here = I32(base - I32(start >> 1))
            if not along:
                stop = min(k, I32(start + length))
            while at < stop:
                loaded, following, state = walk(
                    words, scales, a_row, b_row, at, last, lane, staged, I32(here + I32(at >> 1)),
                    loaded, following, state,
                )  # fmt: skip
                at = I32(at + across)
            start = I32(start + length)
            cuda.syncthreads()
            if single and start < k:
                again = thread_again()
                stage(x, x_step, staged, start, k, again, begin(x, start, k, again))
            if along and start < k:
                # What was loaded last lies beyond the warp's share of the pass.
                at, stop = span(start, k, I32(thread_again() >> 5))
                loaded, following = load(words, scales, a_row, b_row, at, last, lane)
        finish(staged, *state, U(thread_again()), U(cuda.blockIdx.x), factor, out, out_step, n)

    signature = (
        "uint32*", "int64", "uint32*", "int32", stored_pointer(codec, block), "int32", "float32*",
        "float32*", "int64", "int32", "int32",
    )  # fmt: skip
    # Smaller blocks have registers to spare, which the assembler shouldn't save.
    return multiply, signature, shape.threads if shape.threads > FEW_THREADS else 0


def rows_of(form: Form) -> Function:
    """``rows(tile, lane, n, word_step, scale_step)``: where a thread's two rows of a tile begin.

    Rows past the end are read from the last one and not written.
    """
    places = places_of(form)

    @scalar
    def rows(tile, lane, n, word_step, scale_step):
        first = I32(I32(tile * TILE_ROWS) + I32(lane >> 2))
        upper, lower = min(first, I32(n - 1)), min(I32(first + 8), I32(n - 1))
        return places(upper, lane, word_step, scale_step), places(lower, lane, word_step, scale_step)

    return rows


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


def first_loader(form: Form, steps: Steps, shape: Shape) -> Function:
    """``load(words, scales, a_row, b_row, at, last, lane)``: the chunk of ``at``, and a turn's second one.

    The first one again, without loading, where only one is on its way at a time.
    """
    pair, second, both = pair_loader(form, shape), I32(steps.second), is_deep(steps, shape)

    @scalar
    def load(words, scales, a_row, b_row, at, last, lane):
        loaded = following = pair(words, scales, a_row, b_row, at, last, lane)
        if both:
            following = pair(words, scales, a_row, b_row, I32(at + second), last, lane)
        return loaded, following

    return load


def is_deep(steps: Steps, shape: Shape) -> bool:
    """Whether two chunks are on their way."""
    return shape.ahead == 2 and steps.turns == 2


def walker(form: Form, columns: int, shape: Shape) -> Function:
    """``walk(words, scales, a_row, b_row, at, last, lane, staged, place, loaded, following, state)``.

    A turn of a warp: multiplies what is ``loaded``, and the next chunk if a turn has two; gives what was
    loaded meanwhile for the next turn. ``following`` is the second chunk where both were loaded before.
    """
    pair, step, steps = pair_loader(form, shape), step_of(form, columns), steps_of(form, columns, shape)
    second, across, along = I32(steps.second), I32(steps.across), I32(steps.second >> 1)
    later = I32(steps.second + steps.across)

    @scalar
    def once(words, scales, a_row, b_row, at, last, lane, staged, place, loaded, following, state):
        new = pair(words, scales, a_row, b_row, I32(at + across), last, lane)
        return new, following, step(loaded[0], loaded[1], staged, place, lane, *state)

    @scalar
    def twice(words, scales, a_row, b_row, at, last, lane, staged, place, loaded, following, state):
        other = pair(words, scales, a_row, b_row, I32(at + second), last, lane)
        state = step(loaded[0], loaded[1], staged, place, lane, *state)
        new = pair(words, scales, a_row, b_row, I32(at + across), last, lane)
        return new, following, step(other[0], other[1], staged, I32(place + along), lane, *state)

    @scalar
    def deep(words, scales, a_row, b_row, at, last, lane, staged, place, loaded, following, state):
        new = pair(words, scales, a_row, b_row, I32(at + across), last, lane)
        state = step(loaded[0], loaded[1], staged, place, lane, *state)
        other = pair(words, scales, a_row, b_row, I32(at + later), last, lane)
        return new, other, step(following[0], following[1], staged, I32(place + along), lane, *state)

    return deep if is_deep(steps, shape) else twice if steps.turns == 2 else once
