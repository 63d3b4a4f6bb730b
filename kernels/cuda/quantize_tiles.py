"""Quantize tiles, and blocks of lines, whole or cut off: some neighbours a lane, a strip a thread block.

A strip is the rows of one tile and as many columns as there are threads for. What lies beyond the array
counts as zeros, which change no maximum, and is not stored. Lines may lie apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..bind import scalar
from ..codec import Codec
from ..scalar.bits import ZERO, F, U
from .compile import uses_cuda
from .intrinsics import load4, shuffle_xor
from .launch import kernel
from .operand import scale_pointer
from .quantize_block import chooser
from .quantize_lanes import encoding, exchanger, floats, measuring
from .quantize_patches import tensor_reader
from .quantize_writers import stored_type, writer
from .random import DRAW, key_reader

cuda: Any = None
uses_cuda(globals())

I64 = np.int64
NOTHING = F(0.0)
WARP, FEW_THREADS = 32, 512
Function = Callable[..., Any]


class Strip(NamedTuple):
    """How a thread block spreads over its strip; powers of two.

    Attributes:
        rows: Rows of a tile.
        columns: Columns of a tile.
        values: Neighbours a lane encodes.
        lanes: Lanes a row.
    """

    rows: int
    columns: int
    values: int
    lanes: int

    @property
    def threads(self) -> int:
        """Threads a block."""
        return self.rows * self.lanes

    @property
    def share(self) -> int:
        """Lanes of a tile's row."""
        return self.columns // self.values


@kernel
def tiles_kernel(codec: Codec, kind: str, strip: Strip, converts: bool, keyed: bool) -> tuple[Any, ...]:
    """The kernel of matrices whose rows are neighbours of 16-byte aligned words.

    Its last parameters: matrices, rows, runs of values a row, and words of ``x`` from a matrix and from a row
    to the next.
    """
    rows, _, values, lanes = strip
    words_a_run = values if kind == "float32" else values // 2
    load, values_of = reader(words_a_run), floats(kind, values)
    measure = measuring(codec, kind, values, exchanger(strip.share) if rows == 1 else across_rows(strip))
    choose, encode = chooser(codec), encoding(codec, values, converts)
    write = writer(codec.element.bits, values)
    tensor_of, read_key = tensor_reader(codec), key_reader(keyed)
    two_level, given_scales, share = codec.two_level, codec.given, strip.share
    tile_rows, row_lanes, tile_lanes, place_of = U(rows), U(lanes), U(share), placer(strip)

    def quantize(
        x, words, scales, tensor_scale, measured, number, counted, given, k0, k1, k2, k3, keys,
        matrices, height, runs, matrix_step, row_step,
    ):  # fmt: skip
        thread = U(cuda.threadIdx.x)
        tensor, key = tensor_of(measured, number, counted), read_key(k0, k1, k2, k3, keys)
        if two_level and cuda.blockIdx.x == 0 and thread == ZERO:
            tensor_scale[0] = tensor[2]
        lane, line = U(thread % row_lanes), U(thread // row_lanes)
        across, down = U((runs + lanes - 1) // lanes), U((height + rows - 1) // rows)
        turn, turns = U(cuda.blockIdx.x), U(across * U(down * U(matrices)))
        blocks = (runs + share - 1) // share
        while turn < turns:
            matrix, row, run = place_of(turn, across, down, line, lane)
            active = I64(row) < height and I64(run) < runs
            at, place = min(I64(row), height - 1), min(I64(run), runs - 1)
            raw = load(x, I64(matrix) * matrix_step + at * row_step + place * words_a_run, active)
            found = values_of(raw)
            most = measure(raw, found)
            i = (I64(matrix) * height + at) * runs + place
            tiles = I64(matrix) * I64(down) + I64(U(U(at) // tile_rows))
            b = tiles * blocks + I64(U(U(place) // tile_lanes))
            real_scale = given[b] if given_scales else NOTHING
            stored, factor, limit = choose(most, real_scale, tensor[0], tensor[1], tensor[2])
            write(words, i, active, encode(found, most, factor, limit, i, key))
            if active and line == ZERO and U(lane % tile_lanes) == ZERO:
                scales[b] = stored
            turn = U(turn + U(cuda.gridDim.x))

    pointers = "uint32*", stored_type(codec.element.bits, values), scale_pointer(codec), "float32*", "uint32*"
    signature = (*pointers, "float32", "int32", "float32*", *DRAW, *("int64",) * 5)
    return quantize, signature, strip.threads if strip.threads > FEW_THREADS else 0


def placer(strip: Strip) -> Function:
    """``place(turn, across, down, line, lane)``: a thread's matrix, row and run in a strip of the array."""
    tile_rows, row_lanes = U(strip.rows), U(strip.lanes)

    @scalar
    def place(turn, across, down, line, lane):
        outer = U(turn // across)
        matrix = U(outer // down)
        row = U(U(U(outer - U(matrix * down)) * tile_rows) + line)
        return matrix, row, U(U(U(turn - U(outer * across)) * row_lanes) + lane)

    return place


def reader(words: int) -> Function:
    """``load(x, at, active)``: the words of a run, zeros where there is none."""

    @scalar
    def four(x, at, active):
        return load4(x, at) if active else (ZERO, ZERO, ZERO, ZERO)

    @scalar
    def eight(x, at, active):
        return four(x, at, active) + four(x, at + 4, active)

    @scalar
    def sixteen(x, at, active):
        return eight(x, at, active) + eight(x, at + 8, active)

    return {4: four, 8: eight, 16: sixteen}[words]


def across_rows(strip: Strip) -> Function:
    """``exchange(u)``: the largest of the uint32 of a tile's threads, through shared memory."""
    rows, _, _, lanes = strip
    share, warps = strip.share, max(1, strip.threads // WARP)
    within = [step for step in (1, 2, 4, 8, 16) if step < share or lanes <= step < min(WARP, rows * lanes)]
    steps, size = tuple(within), warps * (lanes // share)

    @scalar
    def exchange(u):
        held = cuda.shared.array(size, np.uint32)
        thread = cuda.threadIdx.x
        for step in steps:
            u = max(u, shuffle_xor(u, step))
        tile = thread % lanes // share
        # Readers of the turn before are done.
        cuda.syncthreads()
        if thread % WARP < lanes and thread % share == 0:
            held[tile * warps + thread // WARP] = u
        cuda.syncthreads()
        for warp in range(warps):
            u = max(u, held[tile * warps + warp])
        return u

    return exchange
