"""Quantize blocks that run across an array's memory: neighbouring threads take neighbouring lines.

Loads are of neighbours in memory; a thread holds 32 values of its line and writes their codes together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..codec import Codec
from ..scalar.bits import F, U, bits, real
from .compile import uses_cuda
from .launch import kernel
from .operand import float_reader, pointer_of, scale_pointer
from .quantize_block import chooser
from .quantize_instructions import max_nan
from .quantize_lanes import encoding, largest_float
from .quantize_patches import tensor_reader
from .quantize_writers import writer
from .random import DRAW, key_reader

cuda: Any = None
uses_cuda(globals())

I64 = np.int64
NOTHING = F(0.0)
RUN, GROUP = 16, 32
NONE = (NOTHING,) * RUN
Function = Callable[..., Any]


@kernel
def columns_kernel(codec: Codec, kind: str, block: int, converts: bool, keyed: bool) -> tuple[Any, ...]:
    """The kernel of matrices whose columns are neighbours in memory; blocks are of 16 or 32 values of a row.

    Its last parameters: matrices, rows, runs of 16 values a row, and values of ``x`` from a matrix, a row and
    a column to the next.
    """
    read, finish = sixteen(kind), finisher(codec, block, converts)
    tensor_of, read_key, two_level = tensor_reader(codec), key_reader(keyed), codec.two_level

    def quantize(
        x, words, scales, tensor_scale, measured, number, counted, given, k0, k1, k2, k3, keys,
        matrices, height, runs, matrix_step, row_step, column_step,
    ):  # fmt: skip
        tensor, key = tensor_of(measured, number, counted), read_key(k0, k1, k2, k3, keys)
        if two_level and cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
            tensor_scale[0] = tensor[2]
        threads, groups = I64(cuda.blockDim.x), U((runs + 1) // 2)
        down, turn = U((height + threads - 1) // threads), U(cuda.blockIdx.x)
        turns = U(groups * U(down * U(matrices)))
        while turn < turns:
            outer = U(turn // groups)
            matrix, run = U(outer // down), I64(U(turn - U(outer * groups))) * 2
            row = I64(U(outer - U(matrix * down))) * threads + cuda.threadIdx.x
            if row < height:
                at = I64(matrix) * matrix_step + row * row_step + run * RUN * column_step
                both = run + 1 < runs
                first = read(x, at, column_step)
                second = read(x, at + RUN * column_step, column_step) if both else NONE
                line = I64(matrix) * height + row
                finish(first, second, both, line, run, runs, words, scales, given, tensor, key)
            turn = U(turn + U(cuda.gridDim.x))

    pointers = pointer_of(kind), "uint32*", scale_pointer(codec), "float32*", "uint32*"
    return quantize, (*pointers, "float32", "int32", "float32*", *DRAW, *("int64",) * 6)


def sixteen(kind: str) -> Function:
    """``read(x, at, step)``: sixteen values as float32."""
    value = float_reader(kind)

    @scalar
    def four(x, at, step):
        return value(x, at), value(x, at + step), value(x, at + 2 * step), value(x, at + 3 * step)

    @scalar
    def eight(x, at, step):
        return four(x, at, step) + four(x, at + 4 * step, step)

    @scalar
    def read(x, at, step):
        return eight(x, at, step) + eight(x, at + 8 * step, step)

    return read


def finisher(codec: Codec, block: int, converts: bool) -> Function:
    """``finish(first, second, both, line, run, runs, …)``: scales and codes of two runs or only one."""
    largest, choose, given_scales = largest_float(RUN), chooser(codec), codec.given
    encode, write = encoding(codec, RUN, converts), writer(codec.element.bits, RUN)
    share = block // RUN

    @scalar
    def scaled(most, b, scales, given, tensor):
        real_scale = given[b] if given_scales else NOTHING
        stored, factor, limit = choose(most, real_scale, tensor[0], tensor[1], tensor[2])
        scales[b] = stored
        return factor, limit

    @scalar
    def finish(first, second, both, line, run, runs, words, scales, given, tensor, key):
        most, other = largest(first, first), largest(second, second)
        i, b = line * runs + run, line * ((runs + share - 1) // share) + run // share
        if share == 2:
            most = bits(max_nan(real(most), real(other)))
            other = most
        factor, limit = scaled(most, b, scales, given, tensor)
        write(words, i, True, encode(first, most, factor, limit, i, key))
        if both:
            if share == 1:
                factor, limit = scaled(other, b + 1, scales, given, tensor)
            write(words, i + 1, True, encode(second, other, factor, limit, i + 1, key))

    return finish
