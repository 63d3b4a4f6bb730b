"""What a thread of the vector product loads of a row of the weight at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..codec import Codec
from ..scalar.bits import U
from .intrinsics import load2, load4
from .quantize_instructions import lines4, two_lines4
from .vector_decode import Form
from .vector_stage import QUAD

Function = Callable[..., Any]
# Codes whose sum is scaled at once.
RUN, RUN_SHIFT = 32, 5
I32 = np.int32
# How words are read, by the bytes that come to the second cache with them.
READS = {0: load4, 128: lines4, 256: two_lines4}


def chunk_length(form: Form) -> int:
    """Codes of a row in a chunk: 64 bytes where scales are folded, else four runs."""
    return QUAD * 128 // form.bits if form.folded else QUAD * RUN


def stored_pointer(codec: Codec, block: int) -> str:
    """How scales are read: two at once where a thread's codes have two."""
    if codec.scale in ("ue8m0", "ue4m3"):
        return "uint16*" if block < RUN else "uint8*"
    return "uint32*" if codec.scale == "f32" else "uint16*"


def thread_codes(form: Form) -> int:
    """Codes from one thread's of a chunk to the next one's; 0 where each has some of every run."""
    return 128 // form.bits if form.folded else 0


def places_of(form: Form) -> Function:
    """``places(row, lane, word_step, scale_step)``: where a row's words and scales begin for a thread."""
    share, word_shift = I32(thread_codes(form)), 3 if form.bits == 4 else 2

    @scalar
    def places(row, lane, word_step, scale_step):
        mine = I32(I32(lane & 3) * share)
        return (
            I32(I32(row * word_step) + I32(mine >> word_shift)),
            I32(I32(row * scale_step) + I32(mine >> RUN_SHIFT)),
        )

    return places


def last_codes(form: Form) -> int:
    """How far from a row's end a thread may begin to read."""
    return 128 // form.bits if form.folded else RUN


def loader(form: Form, fetched: int = 0) -> Function:
    """``load(words, row, scales, at, last, lane) -> words, stored scales`` from at most ``last``.

    ``row`` is where a row's words begin for the thread, and its scales. Of folded forms a run of words and
    one number with the scale or both; else a word, or two, of each of four runs and their scales.
    """
    return folded_loader(form, fetched) if form.folded else run_loader(form)


def folded_loader(form: Form, fetched: int) -> Function:
    """Four words that lie together and their scales."""
    word_shift, read = 3 if form.bits == 4 else 2, READS[fetched]

    @scalar
    def load(words, row, scales, at, last, lane):
        first = min(at, last)
        found = read(words, I32(row[0] + I32(first >> word_shift)))
        return found, U(scales[I32(row[1] + I32(first >> RUN_SHIFT))])

    return load


def run_loader(form: Form) -> Function:
    """Two words of each of four runs, the same one twice of 4-bit codes; and four scales."""
    wide, word_shift = form.bits == 8, 2 if form.bits == 8 else 3
    block_of = runs_of(form.block)

    @scalar
    def run(words, row, scales, at, last, lane):
        first = min(at, last)
        place = I32(row[0] + I32(first >> word_shift))
        stored = U(scales[I32(row[1] + block_of(first))])
        if wide:
            return load2(words, I32(place + I32(I32(lane & 3) << 1))), stored
        word = U(words[I32(place + I32(lane & 3))])
        return (word, word), stored

    @scalar
    def load(words, row, scales, at, last, lane):
        a, p = run(words, row, scales, at, last, lane)
        b, q = run(words, row, scales, I32(at + I32(RUN)), last, lane)
        c, r = run(words, row, scales, I32(at + I32(2 * RUN)), last, lane)
        d, s = run(words, row, scales, I32(at + I32(3 * RUN)), last, lane)
        return (a, b, c, d), (p, q, r, s)

    return load


def runs_of(block: int) -> Function:
    """``block_of(at)``: the block of a code."""
    shift = block.bit_length() - 1

    @scalar
    def shifted(at):
        return I32(at >> shift)

    @scalar
    def divided(at):
        return I32(at // block)

    return shifted if block == 1 << shift else divided
