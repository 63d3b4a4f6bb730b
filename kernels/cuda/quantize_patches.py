"""Quantize blocks of any extents in arrays of any strides: a patch of whole blocks and words a thread block.

A patch is measured, its scales are chosen, and it is encoded, all in one launch. Every word has one writer:
a patch is whole words along the lines, and a thread makes a whole word. Arrays have five axes here; what has
fewer gets axes of one place in front.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..codec import Codec
from ..scalar.bits import INFINITY, ZERO, F, U, bits, real
from ..scalar.philox import W, draw16
from ..scalar.rules import tensor_factors
from .compile import uses_cuda
from .launch import kernel
from .operand import float_reader, pointer_of, scale_pointer
from .quantize_block import (
    chooser,
    combiner,
    difference,
    encoder,
    magnitude,
    six_and_four,
    stored_value,
    whole_chooser,
)
from .quantize_places import (
    AXES,
    FIVE,
    Five,
    block_of,
    corner_of,
    inside,
    line_of,
    moved,
    offset,
    splitter,
    with_last,
)
from .random import DRAW, key_reader

cuda: Any = None
uses_cuda(globals())

I64 = np.int64
DOUBLE = np.float64
NOTHING = F(0.0)
Function = Callable[..., Any]


@kernel
def patches_kernel(
    codec: Codec, kind: str, extents: Five, patch: Five, fast: int, whole: bool, keyed: bool
) -> tuple[Function, tuple[str, ...]]:
    """The kernel of an array of five axes.

    Args:
        codec: What to encode in.
        kind: Float dtype of ``x``.
        extents: Of a block; under ``whole`` the patch's.
        patch: Places of a patch along each axis: whole blocks, and whole words along the last.
        fast: The axis that neighbouring threads walk along: that of the smallest stride.
        whole: Whether the tensor is one block, whose measure is given.
        keyed: Whether the draw lies on the device.
    """
    blocks = math.prod(p // e for p, e in zip(patch, extents, strict=True))
    corner, tensor_of, read_key = corner_of(patch), tensor_reader(codec), key_reader(keyed)
    measure = no_measure if whole else measuring(codec, kind, extents, patch, fast)
    scale = whole_scale(codec) if whole else scaling(codec, kind, extents, patch)
    encode = encoding(codec, kind, extents, patch, fast)
    two_level = codec.two_level

    def quantize(
        x, words, scales, tensor_scale, measured, number, counted, given,
        k0, k1, k2, k3, keys, n0, n1, n2, n3, n4, s0, s1, s2, s3, s4,
    ):  # fmt: skip
        most = cuda.shared.array(blocks, np.uint32)
        highest = cuda.shared.array(blocks, np.uint32)
        factors = cuda.shared.array(blocks, np.float32)
        limits = cuda.shared.array(blocks, np.uint32)
        n, s, key = (n0, n1, n2, n3, n4), (s0, s1, s2, s3, s4), read_key(k0, k1, k2, k3, keys)
        tensor = tensor_of(measured, number, counted)
        if two_level and cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
            tensor_scale[0] = tensor[2]
        for index in range(cuda.blockIdx.x, corner(I64(-1), n)[0], cuda.gridDim.x):
            first = corner(I64(index), n)
            measure(x, first, n, s, most, highest)
            scale(x, first, n, s, most, highest, measured, given, scales, factors, limits, tensor, key)
            cuda.syncthreads()
            encode(x, first, n, s, factors, limits, words, key)
            cuda.syncthreads()

    pointers = (pointer_of(kind), "uint32*", scale_pointer(codec), "float32*", "uint32*")
    return quantize, (*pointers, "float32", "int32", "float32*", *DRAW, *FIVE, *FIVE)


def words_of(codec: Codec, patch: Five) -> tuple[Five, int]:
    """The sizes of a patch in words, and how many words it has."""
    sizes = (*patch[:4], patch[4] * codec.element.bits // 32)
    return sizes, math.prod(sizes)


@scalar
def note(most, highest, b, finite, top):
    """Make a block's magnitudes in shared memory at least these."""
    cuda.atomic.max(most, b, finite)
    if top >= INFINITY:
        cuda.atomic.max(highest, b, top)


def measuring(codec: Codec, kind: str, extents: Five, patch: Five, fast: int) -> Function:
    """``measure(x, first, n, s, most, highest)``: the magnitudes of a patch's blocks."""
    if codec.calibration == "abs_mean":
        return no_measure
    sizes, items = words_of(codec, patch)
    blocks = math.prod(p // e for p, e in zip(patch, extents, strict=True))
    split, block, read, bits_ = (
        splitter(sizes, fast),
        block_of(extents, patch),
        float_reader(kind),
        codec.element.bits,
    )
    # A word whose values share a block is one update.
    together = 32 % bits_ == 0 and extents[4] % (32 // bits_) == 0

    @scalar
    def measure(x, first, n, s, most, highest):
        for b in range(cuda.threadIdx.x, blocks, cuda.blockDim.x):
            most[b] = ZERO
            highest[b] = ZERO
        cuda.syncthreads()
        for item in range(cuda.threadIdx.x, items, cuda.blockDim.x):
            by = split(U(item))
            at = moved(first, by)
            begin, end = by[4] * 32 // bits_, (by[4] * 32 + 31) // bits_
            finite, top = ZERO, ZERO
            if inside(at, n):
                for k in range(begin, end + 1):
                    if first[4] + k < n[4]:
                        a = magnitude(read(x, offset(with_last(at, first[4] + k), s)))
                        top = max(top, a)
                        finite = max(finite, a if a < INFINITY else ZERO)
                    if not together:
                        note(most, highest, block(with_last(by, k)), finite, top)
                        finite, top = ZERO, ZERO
                if together:
                    note(most, highest, block(with_last(by, begin)), finite, top)
        cuda.syncthreads()

    return measure


@scalar
def no_measure(x, first, n, s, most, highest):
    """Nothing is measured beforehand."""


def tensor_reader(codec: Codec) -> Function:
    """``tensor(measured, number, counted)``: the tensor's part of a two-level rule.

    The magnitude is the first word of ``measured``, or ``number`` where ``counted`` is 0.
    """
    factors_of, two_level = tensor_factors(codec), codec.two_level

    @scalar
    def tensor(measured, number, counted):
        amax = number
        if two_level and counted != 0:
            amax = real(measured[0])
        return factors_of(amax)

    return tensor


def whole_scale(codec: Codec) -> Function:
    """``scale(…)`` of a tensor that is one block: the scale, which the first thread block stores."""
    choose = whole_chooser(codec)

    @scalar
    def scale(x, first, n, s, most, highest, measured, given, scales, factors, limits, tensor, key):
        if cuda.threadIdx.x == 0:
            _, stored, factor, limit = choose(measured, given)
            factors[0], limits[0] = factor, limit
            if cuda.blockIdx.x == 0:
                scales[0] = stored

    return scale


def scaling(codec: Codec, kind: str, extents: Five, patch: Five) -> Function:
    """``scale(…)`` of the blocks of a patch, one a thread: what is stored, the factor and the limit."""
    counts: Any = tuple(p // e for p, e in zip(patch, extents, strict=True))
    blocks, split = math.prod(counts), splitter(counts, AXES - 1)
    choose = choosing(codec, kind, extents)
    e0, e1, e2, e3, e4 = extents
    given_scales = codec.given

    @scalar
    def scale(x, first, n, s, most, highest, measured, given, scales, factors, limits, tensor, key):
        g1, g2 = I64((n[1] + e1 - 1) // e1), I64((n[2] + e2 - 1) // e2)
        g3, g4 = I64((n[3] + e3 - 1) // e3), I64((n[4] + e4 - 1) // e4)
        for b in range(cuda.threadIdx.x, blocks, cuda.blockDim.x):
            by = split(U(b))
            at = moved(first, (by[0] * e0, by[1] * e1, by[2] * e2, by[3] * e3, by[4] * e4))
            if inside(at, n) and at[4] < n[4]:
                outer = (I64(at[0] // e0) * g1 + I64(at[1] // e1)) * g2 + I64(at[2] // e2)
                place = (outer * g3 + I64(at[3] // e3)) * g4 + I64(at[4] // e4)
                real_scale = given[place] if given_scales else NOTHING
                stored, factor, limit = choose(x, at, n, s, most[b], highest[b], real_scale, tensor, key)
                scales[place], factors[b], limits[b] = stored, factor, limit

    return scale


def choosing(codec: Codec, kind: str, extents: Five) -> Function:
    """``choose(x, at, n, s, most, highest, given, tensor, key) -> (stored, factor, limit)`` of one block."""
    if codec.rule == "four_over_six" and not codec.given:
        return choosing_four_or_six(codec, kind, extents)
    rule, combine = chooser(codec), combiner(codec)
    mean, means = mean_of(kind, extents), codec.calibration == "abs_mean"

    @scalar
    def choose(x, at, n, s, most, highest, given, tensor, key):
        if means:
            most, highest = mean(x, at, n, s)
        return rule(combine(most, highest), given, tensor[0], tensor[1], tensor[2])

    return choose


def choosing_four_or_six(codec: Codec, kind: str, extents: Five) -> Function:
    """The choice of four_over_six: the smaller squared error.

    Source: "Four Over Six: More Accurate NVFP4 Quantization with Adaptive Block Scaling".
    """
    (six, four), combine, value = six_and_four(codec), combiner(codec), stored_value(codec)
    error = error_of(codec, kind, extents)

    @scalar
    def choose(x, at, n, s, most, highest, given, tensor, key):
        p, q, t, whole = tensor
        measured = combine(most, highest)
        stored, factor, limit = six(measured, NOTHING, p, q, t)
        stored4, factor4, limit4 = four(measured, NOTHING, p, q, t)
        off = error(x, at, n, s, value(stored), factor, limit, whole, key)
        better = error(x, at, n, s, value(stored4), factor4, limit4, whole, key) < off
        if better:
            return stored4, factor4, limit4
        return stored, factor, limit

    return choose


def error_of(codec: Codec, kind: str, extents: Five) -> Function:
    """``error(x, at, n, s, scale, factor, limit, S, key)``: a block's squared error, summed in order."""
    items, split, read = math.prod(extents), splitter(extents, AXES - 1), float_reader(kind)
    squared, draw = difference(codec), drawer(codec)

    @scalar
    def error(x, first, n, s, scale, factor, limit, whole, key):
        total = NOTHING
        for i in range(items):
            at = moved(first, split(U(i)))
            if inside(at, n) and at[4] < n[4]:
                random = draw(at, n, key)
                total = F(total + squared(read(x, offset(at, s)), scale, factor, limit, whole, random))
        return total

    return error


def mean_of(kind: str, extents: Five) -> Function:
    """``mean(x, first, n, s) -> (mean, highest)``: bits of a block's mean finite magnitude.

    The sum is float64 and in order, as the CPU's; ``highest`` is infinity's bits where a value isn't finite.
    """
    items, split, read = math.prod(extents), splitter(extents, AXES - 1), float_reader(kind)

    @scalar
    def mean(x, first, n, s):
        total, count, highest = DOUBLE(0.0), I64(0), ZERO
        for i in range(items):
            at = moved(first, split(U(i)))
            if inside(at, n) and at[4] < n[4]:
                value = read(x, offset(at, s))
                if magnitude(value) < INFINITY:
                    total += DOUBLE(abs(value))
                    count += 1
                else:
                    highest = INFINITY
        return bits(F(total / DOUBLE(max(count, I64(1))))), highest

    return mean


def drawer(codec: Codec) -> Function:
    """``draw(at, n, key)``: the 16 random bits of a value, numbered in storage order."""
    if codec.rounding == "nearest":

        @scalar
        def draw(at, n, key):
            return ZERO

    else:

        @scalar
        def draw(at, n, key):
            return draw16(W(line_of(at, n) * n[4] + at[4]), key)

    return draw


def encoding(codec: Codec, kind: str, extents: Five, patch: Five, fast: int) -> Function:
    """``encode(x, first, n, s, factors, limits, words, key)``: the words of a patch."""
    sizes, items = words_of(codec, patch)
    split, block, read = splitter(sizes, fast), block_of(extents, patch), float_reader(kind)
    code, draw, bits_ = encoder(codec), drawer(codec), codec.element.bits

    @scalar
    def encode(x, first, n, s, factors, limits, words, key):
        for item in range(cuda.threadIdx.x, items, cuda.blockDim.x):
            by = split(U(item))
            at = moved(first, by)
            begin, end = by[4] * 32 // bits_, (by[4] * 32 + 31) // bits_
            word = ZERO
            if inside(at, n) and first[4] + begin < n[4]:
                for k in range(begin, end + 1):
                    here = with_last(at, first[4] + k)
                    if here[4] < n[4]:
                        b = block(with_last(by, k))
                        value, random = read(x, offset(here, s)), draw(here, n, key)
                        c = code(value, factors[b], limits[b], random)
                        shift = k * bits_ - by[4] * 32
                        # A code that began in the word before.
                        word = U(word | (U(c << U(shift)) if shift >= 0 else U(c >> U(-shift))))
                line_words = I64((n[4] * bits_ + 31) // 32)
                words[line_of(at, n) * line_words + I64(first[4] * bits_ // 32) + by[4]] = word

    return encode
