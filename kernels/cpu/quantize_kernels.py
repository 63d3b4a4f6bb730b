"""The compiled quantizers: measure a tile of blocks, choose its scales, encode, pack."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..bind import compile_cpu, scalar
from ..codec import Codec
from ..scalar.bits import F
from ..scalar.rules import tensor_factors
from ..scalar.scale import scale_functions
from .bitstream import packer
from .draws import draw_indexed, draw_run
from .passes import encode_pass, measure_pass, scale_pass
from .signatures import array, scale_array, signature
from .tiles import padded, tile_blocks

NO_COUNTS = np.zeros(0, np.int64)


def tile_function(codec: Codec) -> Callable[..., None]:
    """``quantize_tile(x, counts, given, stored, work, draws, codes, tensor)``: the passes over (blocks, n).

    ``work`` is the scratch of ``workspace``, ``tensor`` what ``tensor_factors`` gave.
    """
    measure, choose, encode = measure_pass(codec), scale_pass(codec), encode_pass(codec)

    @scalar
    def quantize_tile(x, counts, given, stored, work, draws, codes, tensor):
        blocks = x.shape[0]
        measured, limits, factors = work[0][:blocks], work[1][:blocks], work[2][:blocks]
        measure(x, counts, measured)
        choose(x, measured, given, stored, factors, limits, tensor[0], tensor[1], tensor[2])
        encode(x, factors, limits, draws, codes)

    return quantize_tile


@scalar
def workspace(blocks):
    """Scratch of a tile: what is measured of each block, its limit and its factor."""
    return np.empty(blocks, np.uint32), np.empty(blocks, np.uint32), np.empty(blocks, np.float32)


def drawing(codec: Codec) -> Callable[..., np.ndarray]:
    """``draw(draws, first, blocks, n, key)``: random bits of a tile, an empty array where none are used."""
    if codec.rounding == "nearest":

        @scalar
        def draw(draws, first, blocks, n, key):
            return draws.reshape(0, 0)

    else:

        @scalar
        def draw(draws, first, blocks, n, key):
            return draw_run(draws, first, blocks * n, key).reshape(blocks, n)

    return draw


def line_function(codec: Codec) -> Callable[..., None]:
    """``quantize_line(x, out, stored, given, width, tile, scratch, first, key, tensor)``: one line."""
    return byte_line(codec) if codec.element.bits == 8 else packed_line(codec)


def byte_line(codec: Codec) -> Callable[..., None]:
    """A line whose codes are bytes: encoded where they belong."""
    quantize_tile, draw = tile_function(codec), drawing(codec)

    @scalar
    def quantize_line(x, out, stored, given, width, tile, scratch, first, key, tensor):
        work, _, draws = scratch
        full = x.shape[0] // width
        start = 0
        while start < stored.shape[0]:
            count = min(tile, full - start) if start < full else 1
            span = width if start < full else x.shape[0] - start * width
            at, stop = start * width, start * width + count * span
            random = draw(draws, first + at, count, span, key)
            quantize_tile(x[at:stop].reshape(count, span), NO_COUNTS, given[start:start + count],
                          stored[start:start + count], work, random, out[at:stop].reshape(count, span), tensor)
            start += count
        out[x.shape[0]:] = 0

    return quantize_line


def packed_line(codec: Codec) -> Callable[..., None]:
    """A line whose codes share bytes: encoded to a tile of bytes, a partial block with the last, then packed."""
    quantize_tile, draw = tile_function(codec), drawing(codec)
    pack, bits = packer(codec.element.bits), codec.element.bits

    @scalar
    def quantize_line(x, out, stored, given, width, tile, scratch, first, key, tensor):
        work, codes, draws = scratch
        full, blocks = x.shape[0] // width, stored.shape[0]
        start, filled, packed = 0, 0, 0
        while start < blocks:
            count = min(tile, full - start) if start < full else 1
            span = width if start < full else x.shape[0] - start * width
            at, size = start * width, count * span
            random = draw(draws, first + at, count, span, key)
            quantize_tile(x[at:at + size].reshape(count, span), NO_COUNTS, given[start:start + count],
                          stored[start:start + count], work, random,
                          codes[filled:filled + size].reshape(count, span), tensor)
            start, filled = start + count, filled + size
            if start < full or start == blocks:
                codes[filled:padded(filled)] = 0
                stop = out.shape[0] if start == blocks else start * width * bits // 8
                pack(codes[:padded(filled)], out[packed:stop])
                packed, filled = stop, 0

    return quantize_line


def lines_kernel(codec: Codec) -> Callable[..., int]:
    """The compiled kernel of lines: ``kernel(x, words, scales, block, amax, given, key, first) -> misfit``.

    Lines without padding or a partial block are one long line.
    """
    quantize_line, factors_of, bits = line_function(codec), tensor_factors(codec), codec.element.bits
    drawn, stored_type, given_scales = codec.rounding != "nearest", stored_type_of(codec), codec.given

    def kernel(x, words, scales, block, tensor_amax, given, key, first):
        lines, n, line_bytes = x.shape[0], x.shape[1], words.shape[1]
        if lines == 0 or n == 0:
            return 0
        width = min(block, n)
        blocks = (n + width - 1) // width
        if (words.shape[0] != lines or line_bytes * 8 < n * bits or scales.size != lines * blocks
                or (given_scales and given.size != scales.size)):
            return 1
        if n % width == 0 and line_bytes * 8 == n * bits:
            lines, n, line_bytes, blocks = 1, lines * n, lines * line_bytes, lines * blocks
        flat, out, real_scales = x.reshape(x.size), words.reshape(words.size), given.reshape(given.size)
        stored = scales.reshape(scales.size).view(stored_type)
        tile = min(tile_blocks(width, bits), n // width)
        values = tile * width + n % width
        scratch = (workspace(tile), np.empty(0 if bits == 8 else padded(values), np.uint8),
                   np.empty(values + 16 if drawn else 0, np.uint16))
        tensor = factors_of(F(tensor_amax))
        for line in range(lines):
            row, at, to = line * blocks, line * n, line * line_bytes
            quantize_line(flat[at:at + n], out[to:to + line_bytes], stored[row:row + blocks],
                          real_scales[row:row + blocks], width, tile, scratch, first + at, key, tensor)
        return 0

    arguments = [array("float32", 2, False), array("uint8", 2), scale_array(codec.scale, 2), "int64",
                 "float64", array("float32", 2, False), array("uint32", 1, False), "int64"]
    return compile_cpu(kernel, signature("int64", arguments))


def blocks_kernel(codec: Codec) -> Callable[..., int]:
    """The compiled kernel of blocks: ``kernel(x, counts, codes, scales, amax, given, key, index) -> misfit``."""
    quantize_tile, factors_of = tile_function(codec), tensor_factors(codec)
    drawn, stored_type, given_scales = codec.rounding != "nearest", stored_type_of(codec), codec.given

    def kernel(x, counts, codes, scales, tensor_amax, given, key, index):
        blocks, n = x.shape
        if (codes.shape != x.shape or scales.size != blocks or (drawn and index.shape != x.shape)
                or (counts.size and counts.size != blocks) or (given_scales and given.size != blocks)):
            return 1
        if blocks == 0 or n == 0:
            return 0
        stored, tensor = scales.view(stored_type), factors_of(F(tensor_amax))
        tile = min(tile_blocks(n, 8), blocks)
        work, draws = workspace(tile), np.empty((tile if drawn else 0, n), np.uint16)
        for start in range(0, blocks, tile):
            stop = min(start + tile, blocks)
            if drawn:
                draw_indexed(draws, index[start:stop], key)
            quantize_tile(x[start:stop], counts[start:stop], given[start:stop], stored[start:stop], work,
                          draws, codes[start:stop], tensor)
        return 0

    arguments = [array("float32", 2, False), array("int64", 1, False), array("uint8", 2),
                 scale_array(codec.scale, 1), "float64", array("float32", 1, False),
                 array("uint32", 1, False), array("int64", 2, False)]
    return compile_cpu(kernel, signature("int64", arguments))


def stored_type_of(codec: Codec) -> type:
    """The unsigned type of stored scales' bits."""
    return scale_functions(codec.scale, codec.rule).dtype
