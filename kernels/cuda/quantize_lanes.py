"""Quantize neighbouring blocks of a power of two of values: a lane a few neighbours, a few lanes a block.

One pass, 16 bytes a load. The lanes of a block exchange their maxima; each works out the scale and encodes
its values, and the first one stores the scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..bind import scalar
from ..codec import Codec
from ..scalar.bits import INFINITY, ZERO, F, U, bits, real
from ..scalar.element import element_functions
from ..scalar.philox import LOW, WORD, W, philox
from .compile import uses_cuda
from .intrinsics import from_bfloat, from_half, load4, shuffle_xor
from .launch import kernel
from .operand import scale_pointer
from .quantize_block import chooser, combiner, magnitude, whole_chooser
from .quantize_encode import (
    certain,
    eight_encoder,
    four_encoder,
    quick_eight,
    quick_four,
)
from .quantize_instructions import max_bfloats, max_halves, max_nan, stream4
from .quantize_patches import tensor_reader
from .quantize_writers import stored_type, writer
from .random import DRAW, key_reader

cuda: Any = None
uses_cuda(globals())

I64 = np.int64
NOTHING = F(0.0)
HALF_BITS, HALF_MASK, PAIRS = U(16), U(0xFFFF), U(0x7FFF7FFF)
Function = Callable[..., Any]


class Lanes(NamedTuple):
    """How the work is spread: what the benchmark chooses among.

    Attributes:
        values: Neighbours a lane encodes: 4, 8 or 16.
        items: Runs of so many that a thread works on at once: 1, 2 or 4, all loaded before one is encoded.
        streams: Whether loads leave the first-level cache alone.
    """

    values: int = 8
    items: int = 1
    streams: bool = False


@kernel
def lanes_kernel(
    codec: Codec, kind: str, block: int, lanes: Lanes, converts: bool, keyed: bool
) -> tuple[Function, tuple[str, ...]]:
    """The kernel of one long line of whole blocks.

    Args:
        codec: What to encode in; blocks are calibrated by the largest magnitude.
        kind: Float dtype of ``x``, whose words are passed as uint32, 16-byte aligned.
        block: Values a block, a power of two of at most ``32 * lanes.values``; 0 for the whole line.
        lanes: How the work is spread.
        converts: Whether the device converts to eight-bit floats.
        keyed: Whether the draw lies on the device.
    """
    whole = block == 0
    load, choose = loader(kind, lanes), whole_chooser(codec) if whole else no_choice
    finish = (whole_finisher if whole else finisher)(codec, kind, block, lanes, converts)
    tensor_of, read_key, two_level = tensor_reader(codec), key_reader(keyed), codec.two_level
    runs, twice, again = lanes.items, lanes.items > 1, lanes.items > 2

    def quantize(
        x, words, scales, tensor_scale, measured, number, counted, given, k0, k1, k2, k3, keys, count
    ):  # fmt: skip
        threads, thread = I64(cuda.blockDim.x), cuda.threadIdx.x
        tensor, key = tensor_of(measured, number, counted), read_key(k0, k1, k2, k3, keys)
        start = I64(cuda.blockIdx.x) * threads * runs
        chosen = choose(measured, given)
        if two_level and start == 0 and thread == 0:
            tensor_scale[0] = tensor[2]
        if whole and start == 0 and thread == 0:
            scales[0] = chosen[1]
        while start < count:
            i = start + thread
            first = load(x, i, count)
            if twice:
                second = load(x, i + threads, count)
            if again:
                third, fourth = load(x, i + 2 * threads, count), load(x, i + 3 * threads, count)
            finish(first, i, count, words, scales, given, tensor, chosen, key)
            if twice:
                finish(second, i + threads, count, words, scales, given, tensor, chosen, key)
            if again:
                finish(third, i + 2 * threads, count, words, scales, given, tensor, chosen, key)
                finish(fourth, i + 3 * threads, count, words, scales, given, tensor, chosen, key)
            start += I64(cuda.gridDim.x) * threads * runs

    return quantize, signature(codec, lanes)


def signature(codec: Codec, lanes: Lanes) -> tuple[str, ...]:
    """The types of the kernel's parameters."""
    stored = stored_type(codec.element.bits, lanes.values)
    pointers = ("uint32*", stored, scale_pointer(codec), "float32*", "uint32*")
    return (*pointers, "float32", "int32", "float32*", *DRAW, "int64")


def loader(kind: str, lanes: Lanes) -> Function:
    """``load(x, i, count)``: the words of run ``i``; beyond the last one, those of the last."""
    words = lanes.values if kind == "float32" else lanes.values // 2
    read = stream4 if lanes.streams else load4

    @scalar
    def one(x, i, count):
        return read(x, min(i, count - 1) * words)

    @scalar
    def two(x, i, count):
        at = min(i, count - 1) * words
        return read(x, at) + read(x, at + 4)

    @scalar
    def four(x, i, count):
        at = min(i, count - 1) * words
        return (read(x, at) + read(x, at + 4)) + (read(x, at + 8) + read(x, at + 12))

    return {4: one, 8: two, 16: four}[words]


def finisher(codec: Codec, kind: str, block: int, lanes: Lanes, converts: bool) -> Function:
    """``finish(raw, i, count, words, scales, given, tensor, chosen, key)``: scale, encode, store a run."""
    share = block // lanes.values
    shift, others = share.bit_length() - 1, share - 1
    measure, values_of = measuring(codec, kind, lanes.values, exchanger(share)), floats(kind, lanes.values)
    choose, given_scales = chooser(codec), codec.given
    encode, write = encoding(codec, lanes.values, converts), writer(codec.element.bits, lanes.values)

    @scalar
    def finish(raw, i, count, words, scales, given, tensor, chosen, key):
        values = values_of(raw)
        measured = measure(raw, values)
        b = I64(min(i, count - 1) >> shift)
        real_scale = given[b] if given_scales else NOTHING
        stored, factor, limit = choose(measured, real_scale, tensor[0], tensor[1], tensor[2])
        codes = encode(values, measured, factor, limit, i, key)
        write(words, i, i < count, codes)
        if i < count and cuda.threadIdx.x & others == 0:
            scales[b] = stored

    return finish


def whole_finisher(codec: Codec, kind: str, block: int, lanes: Lanes, converts: bool) -> Function:
    """``finish`` of a tensor that is one block, whose rule ``chosen`` is the result of."""
    values_of, encode = floats(kind, lanes.values), encoding(codec, lanes.values, converts)
    write = writer(codec.element.bits, lanes.values)

    @scalar
    def finish(raw, i, count, words, scales, given, tensor, chosen, key):
        found, _, factor, limit = chosen
        write(words, i, i < count, encode(values_of(raw), found, factor, limit, i, key))

    return finish


@scalar
def no_choice(measured, given):
    """Blocks have scales of their own."""
    return ZERO, ZERO, NOTHING, ZERO


def floats(kind: str, count: int) -> Function:
    """``values(raw)``: the float32 that words hold."""
    if kind == "float32":
        return four_floats if count == 4 else eight_floats if count == 8 else sixteen_floats
    value = from_half if kind == "float16" else from_bfloat

    @scalar
    def pair(u):
        return value(U(u & HALF_MASK)), value(U(u >> HALF_BITS))

    @scalar
    def eight(raw):
        return (pair(raw[0]) + pair(raw[1])) + (pair(raw[2]) + pair(raw[3]))

    @scalar
    def sixteen(raw):
        return eight(raw[0:4]) + eight(raw[4:8])

    return eight if count == 8 else sixteen


@scalar
def four_floats(raw):
    """The float32 of four words."""
    return real(raw[0]), real(raw[1]), real(raw[2]), real(raw[3])


@scalar
def eight_floats(raw):
    """The float32 of eight words."""
    return four_floats(raw[0:4]) + four_floats(raw[4:8])


@scalar
def sixteen_floats(raw):
    """The float32 of sixteen words."""
    return eight_floats(raw[0:8]) + eight_floats(raw[8:16])


def measuring(codec: Codec, kind: str, count: int, exchange: Function) -> Function:
    """``measure(raw, values)``: what rules expect of a block whose lanes ``exchange`` their maxima."""
    if codec.nonfinite == "saturate":
        combine = combiner(codec)

        @scalar
        def saturating(raw, values):
            most, highest = ZERO, ZERO
            for value in values:
                a = magnitude(value)
                most, highest = max(most, a if a < INFINITY else ZERO), max(highest, a)
            return combine(exchange(most), exchange(highest))

        return saturating
    largest = largest_float(count) if kind == "float32" else largest_pair(kind, count)

    @scalar
    def measure(raw, values):
        return exchange(largest(raw, values))

    return measure


def exchanger(share: int) -> Function:
    """``exchange(u)``: the largest of the uint32 of ``share`` neighbouring lanes."""
    steps = tuple(1 << k for k in reversed(range(share.bit_length() - 1)))

    @scalar
    def exchange(u):
        for step in steps:
            u = max(u, shuffle_xor(u, step))
        return u

    @scalar
    def alone(u):
        return u

    return exchange if steps else alone


def largest_float(count: int) -> Function:
    """``largest(raw, values)``: bits of the largest magnitude, NaN's where one is."""

    @scalar
    def four(v):
        return max_nan(max_nan(abs(v[0]), abs(v[1])), max_nan(abs(v[2]), abs(v[3])))

    @scalar
    def eight(v):
        return max_nan(four(v[0:4]), four(v[4:8]))

    @scalar
    def sixteen(v):
        return max_nan(eight(v[0:8]), eight(v[8:16]))

    of = {4: four, 8: eight, 16: sixteen}[count]

    @scalar
    def largest(raw, values):
        return bits(of(values))

    return largest


def largest_pair(kind: str, count: int) -> Function:
    """``largest(raw, values)``: as ``largest_float``, of 16-bit floats two at a time."""
    larger, value = (max_halves, from_half) if kind == "float16" else (max_bfloats, from_bfloat)

    @scalar
    def four(r):
        low, high = larger(U(r[0] & PAIRS), U(r[1] & PAIRS)), larger(U(r[2] & PAIRS), U(r[3] & PAIRS))
        return larger(low, high)

    @scalar
    def eight(r):
        return larger(four(r[0:4]), four(r[4:8]))

    of = four if count == 8 else eight

    @scalar
    def largest(raw, values):
        pair = of(raw)
        return bits(max_nan(value(U(pair & HALF_MASK)), value(U(pair >> HALF_BITS))))

    return largest


def encoding(codec: Codec, count: int, converts: bool) -> Function:
    """``encode(values, measured, factor, limit, i, key)``: the codes of run ``i``, in two or four words."""
    sure, top = certain(codec, converts), element_functions(codec.element).top
    if count == 4:
        return encoding_four(codec, converts)
    by_value, draw, quick = eight_encoder(codec), drawer(codec), quick_eight(codec, converts)
    has_quick, eight = quick is not None, quick or no_quick_eight

    @scalar
    def run(values, measured, factor, limit, group, key):
        draws = draw(group, key)
        if has_quick and limit == top and sure(real(measured), factor):
            return eight(values, factor, draws)
        return by_value(values, factor, limit, draws)

    @scalar
    def twice(values, measured, factor, limit, i, key):
        first = run(values[0:8], measured, factor, limit, 2 * i, key)
        return first + run(values[8:16], measured, factor, limit, 2 * i + 1, key)

    return run if count == 8 else twice


def encoding_four(codec: Codec, converts: bool) -> Function:
    """``encode`` of four values, in one word of the two; nothing is drawn for fewer than eight."""
    sure, top, by_value = certain(codec, converts), element_functions(codec.element).top, four_encoder(codec)
    quick = quick_four(codec, converts)
    has_quick, four = quick is not None, quick or no_quick_four

    @scalar
    def encode(values, measured, factor, limit, i, key):
        if has_quick and limit == top and sure(real(measured), factor):
            return four(values, factor, ZERO, ZERO), ZERO
        return by_value(values, factor, limit, ZERO, ZERO), ZERO

    return encode


@scalar
def no_quick_four(values, factor, r0, r1):
    """Never called: it stands where a codec has no quick way."""
    return ZERO


@scalar
def no_quick_eight(values, factor, draws):
    """Never called, as ``no_quick_four``."""
    return ZERO, ZERO


def drawer(codec: Codec) -> Function:
    """``draw(group, key)``: the random bits of a group of eight values, two a word."""

    @scalar
    def draw(group, key):
        g = W(group)
        return philox(U(W(g & LOW)), U(W(g >> WORD)), key[2], key[3], key[0], key[1])

    @scalar
    def nothing(group, key):
        return ZERO, ZERO, ZERO, ZERO

    return nothing if codec.rounding == "nearest" else draw
