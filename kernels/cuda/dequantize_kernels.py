"""The kernels of dequantizing: one for contiguous arrays, one for any strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..codec import Codec
from ..scalar.bits import F, U
from .compile import uses_cuda
from .decode import quad_decoder, scale_decoder, scale_type, to_bfloats, to_halves
from .intrinsics import load2, store2, store4, to_bfloat, to_half
from .launch import kernel
from .stores import store2_first_out, store4_first_out
from .walk import W, locator, quotient

Function = Callable[..., Any]
cuda: Any = None
uses_cuda(globals())

# Codes that are decoded at once.
QUAD = 4
WORD_BITS = 32
LOW = W(0xFFFFFFFF)


@kernel
def flat_kernel(
    codec: Codec,
    dtype: str,
    converts: bool,
    quads: int,
    flight: int,
    tiles: bool = False,
    first_out: bool = False,
):
    """Contiguous codes, scales and values: runs of ``quads`` fours a thread, ``flight`` of them at once.

    Args:
        codec: What the codes and scales are, by ``decoding``.
        dtype: Of the result.
        converts: Whether the device converts from E4M3.
        quads: 1 or 2.
        flight: A power of two: runs that a thread reads before it writes the first.
        tiles: Whether blocks extend over lines.
        first_out: Whether the cache is asked to give the result up first.
    """
    read_run = run_reader(codec.element.bits, quads, scale_place(tiles))
    write_run = run_writer(codec, dtype, converts, quads, first_out)
    read, write = several(read_run, write_run, flight)
    two_level = codec.two_level

    def dequantize_flat(words, scales, tensor_scale, out, shift, runs, line_runs, rows, columns):
        threads, blocks = cuda.blockDim.x, (shift, line_runs, rows, columns)
        tensor = tensor_scale[0] if two_level else F(1.0)
        place = np.int64(cuda.blockIdx.x) * (threads * flight) + cuda.threadIdx.x
        while place < runs:
            if place + (flight - 1) * threads < runs:
                write(out, place, threads, tensor, read(words, scales, place, threads, blocks))
            else:
                at = place
                while at < runs:
                    write_run(out, at, tensor, read_run(words, scales, at, blocks))
                    at += threads
            place += np.int64(cuda.gridDim.x) * (threads * flight)

    return dequantize_flat, (
        "uint32*", f"{scale_type(codec)}*", "float32*", f"{vector_type(dtype)}*", *["int64"] * 5,
    )  # fmt: skip


def vector_type(dtype: str) -> str:
    """What the flat kernel stores fours of: float32, or two of 16 bits."""
    return "float32" if dtype == "float32" else "uint32"


def stored_type(dtype: str) -> str:
    """What a single value is stored as."""
    return "float32" if dtype == "float32" else "uint16"


def several(read_run: Function, write_run: Function, count: int) -> tuple[Function, Function]:
    """Functions that read and write ``count`` runs, ``step`` apart: all are read before one is needed."""
    if count == 1:

        @scalar
        def read_one(words, scales, place, step, blocks):
            return read_run(words, scales, place, blocks)

        @scalar
        def write_one(out, place, step, tensor, found):
            write_run(out, place, tensor, found)

        return read_one, write_one
    half = count // 2
    read, write = several(read_run, write_run, half)

    @scalar
    def read_all(words, scales, place, step, blocks):
        first = read(words, scales, place, step, blocks)
        return first, read(words, scales, place + half * step, step, blocks)

    @scalar
    def write_all(out, place, step, tensor, found):
        write(out, place, step, tensor, found[0])
        write(out, place + half * step, step, tensor, found[1])

    return read_all, write_all


def scale_place(tiles: bool) -> Function:
    """``scale_of(place, blocks)``: where the scale of a run is.

    ``blocks`` holds the shift from a run to its block along the line, the runs of a line, the shift from a
    line to its row of blocks, and the blocks of such a row; without tiles, lines are one long line.
    """

    @scalar
    def of_line(place, blocks):
        return place >> blocks[0]

    @scalar
    def of_tile(place, blocks):
        line = quotient(place, blocks[1])
        column = (place - line * blocks[1]) >> blocks[0]
        return (line >> blocks[2]) * blocks[3] + column

    return of_tile if tiles else of_line


def run_reader(bits: int, quads: int, scale_of: Function) -> Function:
    """``read(words, scales, place, blocks) -> (chunk, chunk, stored)``: a run's fours and its scale."""
    fetch = fetcher(bits, QUAD)

    @scalar
    def read_quad(words, scales, place, blocks):
        chunk = fetch(words, np.int64(0), np.int64(1), place, QUAD)
        return chunk, chunk, scales[scale_of(place, blocks)]

    @scalar
    def read_bytes(words, scales, place, blocks):
        first, second = load2(words, 2 * place)
        return first, second, scales[scale_of(place, blocks)]

    @scalar
    def read_nibbles(words, scales, place, blocks):
        word = words[place]
        return word, U(word >> U(16)), scales[scale_of(place, blocks)]

    @scalar
    def read_two(words, scales, place, blocks):
        first = fetch(words, np.int64(0), np.int64(1), 2 * place, QUAD)
        second = fetch(words, np.int64(0), np.int64(1), 2 * place + 1, QUAD)
        return first, second, scales[scale_of(place, blocks)]

    if quads == 1:
        return read_quad
    across = eight_across(bits, scale_of)
    return {8: read_bytes, 4: read_nibbles, 3: across, 5: across, 6: across}.get(bits, read_two)


def eight_across(bits: int, scale_of: Function) -> Function:
    """``read`` of eight codes of 3, 5 or 6 bits, which lie in two words wherever they begin."""
    width, second = 2 * QUAD * bits, W(QUAD * bits)

    @scalar
    def read(words, scales, place, blocks):
        first = place * width
        low, high = W(words[first >> 5]), W(words[(first + width - 1) >> 5])
        eight = W(W(W(high << W(32)) | low) >> W(first & 31))
        return U(W(eight & LOW)), U(W(W(eight >> second) & LOW)), scales[scale_of(place, blocks)]

    return read


def fetcher(bits: int, run: int) -> Function:
    """``fetch(words, start, step, place, count) -> chunk``: a run of codes, the first in the lowest bits.

    Runs are numbered along a line, which begins at ``start`` and has its words ``step`` apart; of the run's
    codes ``count`` are within the line. What lies above them is anything.
    """
    width = bits * run
    if width == WORD_BITS:

        @scalar
        def fetch_word(words, start, step, place, count):
            return words[start + place * step]

        return fetch_word

    @scalar
    def fetch_part(words, start, step, place, count):
        first = place * width
        return U(words[start + (first >> 5) * step] >> U(first & 31))

    @scalar
    def fetch_across(words, start, step, place, count):
        first = place * width
        last = first + count * bits - 1
        low, high = W(words[start + (first >> 5) * step]), W(words[start + (last >> 5) * step])
        return U(W(W(W(high << W(32)) | low) >> W(first & 31)) & LOW)

    return fetch_across if WORD_BITS % width else fetch_part


def run_writer(codec: Codec, dtype: str, converts: bool, quads: int, first_out: bool) -> Function:
    """``write(out, place, tensor_scale, found)``: decode what ``run_reader`` read and store it."""
    effective, values = scale_decoder(codec), scaled_decoder(codec, converts)
    pack = to_halves if dtype == "float16" else to_bfloats
    two, four = (store2_first_out, store4_first_out) if first_out else (store2, store4)

    @scalar
    def write_float32(out, place, tensor, found):
        scale = effective(found[2], tensor)
        a, b, c, d = values(found[0], scale)
        four(out, quads * QUAD * place, a, b, c, d)
        if quads == 2:
            a, b, c, d = values(found[1], scale)
            four(out, quads * QUAD * place + QUAD, a, b, c, d)

    @scalar
    def write_pairs(out, place, tensor, found):
        scale = effective(found[2], tensor)
        a, b, c, d = values(found[0], scale)
        if quads == 1:
            two(out, 2 * place, pack(a, b), pack(c, d))
        else:
            e, f, g, h = values(found[1], scale)
            four(out, 4 * place, pack(a, b), pack(c, d), pack(e, f), pack(g, h))

    return write_float32 if dtype == "float32" else write_pairs


def scaled_decoder(codec: Codec, converts: bool) -> Function:
    """``values(chunk, scale) -> four float32``: codes times their scale."""
    decode = quad_decoder(codec.element, converts)

    @scalar
    def values(chunk, scale):
        a, b, c, d = decode(chunk)
        return F(a * scale), F(b * scale), F(c * scale), F(d * scale)

    return values


@kernel
def strided_kernel(
    codec: Codec, dtype: str, converts: bool, rank: int, line: int, run: int, powers: bool, vector: bool
):
    """Arrays of any strides: a run of codes an item, items along the axes as ``walk`` numbers them.

    Args:
        codec: What the codes and scales are, by ``decoding``.
        dtype: Of the result.
        converts: Whether the device converts from E4M3.
        rank: Axes that are walked.
        line: The one that runs along lines.
        run: Codes an item: 1 or 4, all in one block.
        powers: Whether the extents of blocks are given as shifts.
        vector: Whether four values are stored at once.
    """
    locate, fetch = locator(rank, line, run, powers), fetcher(codec.element.bits, run)
    effective, values = scale_decoder(codec), scaled_decoder(codec, converts)
    store, two_level = run_store(dtype, run, vector), codec.two_level

    def dequantize_strided(
        words, scales, tensor_scale, out, items, n, step,
        n0, n1, n2, n3, w0, w1, w2, w3, o0, o1, o2, o3, s0, s1, s2, s3, b0, b1, b2, b3,
    ):  # fmt: skip
        tensor = tensor_scale[0] if two_level else F(1.0)
        sizes, lines, steps = (n0, n1, n2, n3), (w0, w1, w2, w3), (o0, o1, o2, o3)
        item = np.int64(cuda.grid(1))
        while item < items:
            word, place, scale, code = locate(item, sizes, lines, steps, (s0, s1, s2, s3), (b0, b1, b2, b3))
            count = min(run, n - code)
            chunk = fetch(words, word, step, code // run, count)
            found = values(chunk, effective(scales[scale], tensor))
            store(out, place, steps[line], count, found)
            item += cuda.gridsize(1)

    return dequantize_strided, (
        "uint32*", f"{scale_type(codec)}*", "float32*", f"{stored_type(dtype)}*", *["int64"] * 23,
    )  # fmt: skip


def run_store(dtype: str, run: int, vector: bool) -> Function:
    """``store(out, place, step, count, values)``: write the first ``count`` of four values."""
    rounded = {"float32": F, "float16": to_half, "bfloat16": to_bfloat}[dtype]

    @scalar
    def store_each(out, place, step, count, values):
        out[place] = rounded(values[0])
        if count > 1:
            out[place + step] = rounded(values[1])
        if count > 2:
            out[place + 2 * step] = rounded(values[2])
        if count > 3:
            out[place + 3 * step] = rounded(values[3])

    @scalar
    def store_whole(out, place, step, count, values):
        if count == run:
            a, b, c, d = values
            store4(out, place, rounded(a), rounded(b), rounded(c), rounded(d))
        else:
            store_each(out, place, step, count, values)

    return store_whole if vector else store_each
