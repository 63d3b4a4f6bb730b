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
    """

    tiles: int
    slices: int
    ahead: int = 0
    fetched: int = 0

    @property
    def threads(self) -> int:
        """Threads a block."""
        return LANES * self.tiles * self.slices


def steps_of(form: Form, columns: int, shape: Shape) -> tuple[int, int]:
    """Codes from a warp's chunk to its next one, and from a turn to the next.

    A turn is of two chunks where a pass holds an even number of each warp's.
    """
    stride, length = shape.slices * chunk_length(form), pass_length(columns)
    assert length % stride == 0, "a pass holds whole turns of the warps"
    return stride, 2 * stride if length // stride % 2 == 0 else stride


@kernel
def vector_kernel(codec: Codec, block: int, kind: str, rows: int, shape: Shape):
    """``(x, x_step, words, word_step, scales, scale_step, factor, out, out_step, n, k)``.

    ``out[r, j] = factor * sum of x[r, i] * weight[j, i]``; ``factor`` isn't read under one level. Steps are
    elements from one row to the next, of ``x`` words; ``k`` is a multiple of 32. The weight's places are
    numbered in 31 bits, which leave registers for its words.
    """
    form, columns, tiles, slices = form_of(codec, block), columns_of(rows, kind), shape.tiles, shape.slices
    assert form is not None
    turn, length = steps_of(form, columns, shape)[1], I32(pass_length(columns))
    begin, stage = stager(form, kind, rows, shape.threads, turn)
    lines, load, walk = rows_of(form), first_loader(form, columns, shape), walker(form, columns, shape)
    finish = finisher(form, kind, rows, tiles, slices, codec.two_level)
    chunk, across, last_slice = I32(chunk_length(form)), I32(turn), I32(slices - 1)
    shift, single = I32(slices.bit_length() - 1), rows == 1
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
        at = I32(I32(warp & last_slice) * chunk)
        loaded, following = load(words, scales, a_row, b_row, at, last, lane)
        base, start = column_place(lane, columns, length), I32(0)
        if single:
            stage(x, x_step, staged, start, k, thread, held)
        while start < k:
            if not single:
                stage(x, x_step, staged, start, k, thread_again(), held)
            cuda.syncthreads()
            stop, here = min(k, I32(start + length)), I32(base - I32(start >> 1))
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


def first_loader(form: Form, columns: int, shape: Shape) -> Function:
    """``load(words, scales, a_row, b_row, at, last, lane)``: the chunk of ``at``, and a turn's second one.

    The first one again, without loading, where only one is on its way at a time.
    """
    pair, (stride, turn) = pair_loader(form, shape), steps_of(form, columns, shape)
    both = shape.ahead == 2 and turn > stride

    @scalar
    def load(words, scales, a_row, b_row, at, last, lane):
        loaded = following = pair(words, scales, a_row, b_row, at, last, lane)
        if both:
            following = pair(words, scales, a_row, b_row, I32(at + I32(stride)), last, lane)
        return loaded, following

    return load


def walker(form: Form, columns: int, shape: Shape) -> Function:
    """``walk(words, scales, a_row, b_row, at, last, lane, staged, place, loaded, following, state)``.

    A turn of a warp: multiplies what is ``loaded``, and the next chunk if a turn has two; gives what was
    loaded meanwhile for the next turn. ``following`` is the second chunk where both were loaded before.
    """
    pair, step = pair_loader(form, shape), step_of(form, columns)
    stride, turn = steps_of(form, columns, shape)
    second, across, later, along = I32(stride), I32(turn), I32(stride + turn), I32(stride >> 1)

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

    if turn == stride:
        return once
    return deep if shape.ahead == 2 else twice
