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
from .tiles import line_layout, misfit, padded, tile_blocks
from .views import flattened, part, register, rows, viewed

NO_COUNTS = np.zeros(0, np.int64)


def lines_kernel(codec: Codec) -> Callable[..., int]:
    """The compiled ``kernel(x, words, scales, block, amax, given, key, first) -> misfit`` of lines."""
    register()
    make = byte_lines if codec.element.bits == 8 else packed_lines
    return compile_cpu(
        make(codec),
        signature(
            "int64",
            array("float32", 2, False),
            array("uint8", 2),
            scale_array(codec.scale, 2),
            "int64",
            "float64",
            array("float32", 2, False),
            array("uint32", 1, False),
            "int64",
        ),
    )


def byte_lines(codec: Codec) -> Callable[..., int]:
    """The kernel of lines whose codes are bytes: they are encoded where they belong."""
    measure, choose, encode = measure_pass(codec), scale_pass(codec), encode_pass(codec)
    factors_of, like, draw = tensor_factors(codec), like_stored(codec), drawing(codec)
    given_scales, drawn = codec.given, codec.rounding != "nearest"

    def kernel(x, words, scales, block, tensor_amax, given, key, first):
        lines, n, line_bytes, blocks, width = line_layout(x.shape, words.shape[1], block, 8)
        if misfit(x, words, scales, lines * blocks, 8) or given_scales and given.size != scales.size:
            return 1
        flat, out, stored, real_scales = (
            flattened(x),
            flattened(words),
            viewed(flattened(scales), like),
            flattened(given),
        )
        full = n // width
        tile = min(tile_blocks(width, 8), full)
        draws = np.empty(tile * width + 16 if drawn else 0, np.uint16)
        work = np.empty(3 * tile, np.uint32)
        tensor = factors_of(F(tensor_amax))
        for line in range(lines):
            start = 0
            while start < blocks:
                # A partial block is a tile of its own.
                count = min(tile, full - start) if start < full else 1
                span = width if start < full else n - start * width
                at, row = line * n + start * width, line * blocks + start
                tile_x, random = rows(flat, at, count, span), draw(draws, first + at, count, span, key)
                measured, factors, limits = (
                    part(work, 0, count),
                    part(work, tile, count),
                    part(work, 2 * tile, count),
                )
                measure(tile_x, NO_COUNTS, measured)
                choose(
                    tile_x,
                    measured,
                    part(real_scales, row, count),
                    part(stored, row, count),
                    factors,
                    limits,
                    random,
                    tensor,
                )
                encode(
                    tile_x, factors, limits, random, rows(out, line * line_bytes + start * width, count, span)
                )
                start += count
            for i in range(line * line_bytes + n, (line + 1) * line_bytes):
                out[i] = 0
        return 0

    return kernel


def packed_lines(codec: Codec) -> Callable[..., int]:
    """The kernel of lines whose codes share bytes: encoded to a tile of bytes, then packed."""
    measure, choose, encode = measure_pass(codec), scale_pass(codec), encode_pass(codec)
    factors_of, like, draw = tensor_factors(codec), like_stored(codec), drawing(codec)
    given_scales, drawn = codec.given, codec.rounding != "nearest"
    pack, bits = packer(codec.element.bits), codec.element.bits

    def kernel(x, words, scales, block, tensor_amax, given, key, first):
        lines, n, line_bytes, blocks, width = line_layout(x.shape, words.shape[1], block, bits)
        if misfit(x, words, scales, lines * blocks, bits) or given_scales and given.size != scales.size:
            return 1
        flat, out, stored, real_scales = (
            flattened(x),
            flattened(words),
            viewed(flattened(scales), like),
            flattened(given),
        )
        full = n // width
        tile = min(tile_blocks(width, bits), full)
        draws = np.empty(tile * width + 16 if drawn else 0, np.uint16)
        work, codes = np.empty(3 * tile, np.uint32), np.empty(padded(tile * width + width), np.uint8)
        tensor = factors_of(F(tensor_amax))
        for line in range(lines):
            start, filled, packed = 0, 0, line * line_bytes
            while start < blocks:
                # A partial block is encoded behind the last tile and packed with it.
                count = min(tile, full - start) if start < full else 1
                span = width if start < full else n - start * width
                at, row = line * n + start * width, line * blocks + start
                tile_x, random = rows(flat, at, count, span), draw(draws, first + at, count, span, key)
                measured, factors, limits = (
                    part(work, 0, count),
                    part(work, tile, count),
                    part(work, 2 * tile, count),
                )
                measure(tile_x, NO_COUNTS, measured)
                choose(
                    tile_x,
                    measured,
                    part(real_scales, row, count),
                    part(stored, row, count),
                    factors,
                    limits,
                    random,
                    tensor,
                )
                encode(tile_x, factors, limits, random, rows(codes, filled, count, span))
                start, filled = start + count, filled + count * span
                if start < full or start == blocks:
                    for i in range(filled, padded(filled)):
                        codes[i] = 0
                    stop = (line + 1) * line_bytes if start == blocks else packed + filled * bits // 8
                    pack(part(codes, 0, padded(filled)), part(out, packed, stop - packed))
                    filled, packed = 0, stop
        return 0

    return kernel


def blocks_kernel(codec: Codec) -> Callable[..., int]:
    """The compiled ``kernel(x, counts, codes, scales, amax, given, key, index) -> misfit`` of blocks."""
    register()
    measure, choose, encode = measure_pass(codec), scale_pass(codec), encode_pass(codec)
    factors_of, like, given_scales = tensor_factors(codec), like_stored(codec), codec.given
    drawn = codec.rounding != "nearest"

    def kernel(x, counts, codes, scales, tensor_amax, given, key, index):
        blocks, n = x.shape
        if (
            codes.shape != x.shape
            or scales.size != blocks
            or (drawn and index.shape != x.shape)
            or (counts.size and counts.size != blocks)
            or (given_scales and given.size != blocks)
        ):
            return 1
        flat, out, stored = flattened(x), flattened(codes), viewed(scales, like)
        tile = tile_blocks(max(n, 1), 8)
        draws = np.empty(tile * n if drawn else 0, np.uint16)
        work = np.empty(3 * tile, np.uint32)
        tensor = factors_of(F(tensor_amax))
        for start in range(0, blocks if n else 0, tile):
            count = min(tile, blocks - start)
            tile_x, random = rows(flat, start * n, count, n), rows(draws, 0, count if drawn else 0, n)
            measured, factors, limits = (
                part(work, 0, count),
                part(work, tile, count),
                part(work, 2 * tile, count),
            )
            if drawn:
                draw_indexed(random, rows(flattened(index), start * n, count, n), key)
            measure(tile_x, part(counts, start, count if counts.size else 0), measured)
            choose(
                tile_x,
                measured,
                part(given, start, count),
                part(stored, start, count),
                factors,
                limits,
                random,
                tensor,
            )
            encode(tile_x, factors, limits, random, rows(out, start * n, count, n))
        return 0

    return compile_cpu(
        kernel,
        signature(
            "int64",
            array("float32", 2, False),
            array("int64", 1, False),
            array("uint8", 2),
            scale_array(codec.scale, 1),
            "float64",
            array("float32", 1, False),
            array("uint32", 1, False),
            array("int64", 2, False),
        ),
    )


def drawing(codec: Codec) -> Callable[..., np.ndarray]:
    """``draw(draws, first, blocks, n, key)``: random bits of a tile, an empty array where none are used."""
    if codec.rounding == "nearest":

        @scalar
        def draw(draws, first, blocks, n, key):
            return rows(draws, 0, 0, 0)

    else:

        @scalar
        def draw(draws, first, blocks, n, key):
            return rows(draws, draw_run(draws, first, blocks * n, key), blocks, n)

    return draw


def like_stored(codec: Codec) -> np.ndarray:
    """An empty array of the unsigned type of stored scales' bits."""
    return np.zeros(0, scale_functions(codec.scale, codec.rule).dtype)
