"""Dropout in one launch: decoded, drawn, scaled, and written or encoded; the draws are the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..scalar.bits import F
from .chunk_writers import storer
from .chunks import PACKED, QUAD, Codes, chunk_size, input_types, loader, output_types
from .compile import uses_cuda
from .launch import SIMULATED, grid, kernel, library
from .random import DRAW, draw_arguments, fraction, is_keyed, key_reader, words4
from .rows import converts, given_as, kinds_of, rows_of

cuda: Any = None
uses_cuda(globals())

THREADS = 32 if SIMULATED else 256
WAVES = 16


@kernel
def dropout_kernel(x_side, out_side, size, keyed, converting):
    """Each value times ``scale`` where its number is at least ``rate``, else times 0.

    Rows begin at multiples of four values, whose numbers one block of random bits holds.
    """
    load = loader(x_side.kind, size, x_side.access, False, converting, 0.0)
    store, key_of = storer(out_side.kind, size, out_side.access, converting), key_reader(keyed)

    def dropout(
        x, xs, xt, x_step, lines, out, outs, out_step, a, b, c, d, key, rate, scale, chunks, items, rows, n
    ):
        source, target, k = (x, xs, xt, x_step, lines), (out, outs, out_step), key_of(a, b, c, d, key)
        v, threads = cuda.local.array(size, np.float32), cuda.blockDim.x
        for base in range(np.int64(cuda.blockIdx.x) * threads, items, np.int64(cuda.gridDim.x) * threads):
            row, j = (base + cuda.threadIdx.x) // chunks, (base + cuda.threadIdx.x) % chunks * size
            here = min(row, rows - 1)
            load(source, here, j, n, v, 0)
            for q in range(size // QUAD):
                words = words4(((here * n + j) >> 2) + q, k)
                for lane in range(QUAD):
                    kept = F(1.0) if fraction(words[lane]) >= rate else F(0.0)
                    v[QUAD * q + lane] = F(F(v[QUAD * q + lane] * scale) * kept)
            store(target, row, rows, j, n, v, 0)

    return dropout, (
        *input_types(*x_side), *output_types(*out_side), *DRAW, "float32", "float32", *["int64"] * 4,
    )  # fmt: skip


def dropout(x: Any, out: Any, rate: float, draw: Any) -> bool:
    """Each value set to 0 with probability ``rate``, the others divided by 1 - rate.

    Args:
        x: (..., n), an array or Packed.
        out: Of the same shape, C-contiguous, written; packed in blocks within rows of single-level scales.
        rate: At least 0 and below 1.
        draw: (seed, stream), or the uint32 (4,) array of both: which values stay.

    Returns:
        Whether there is a kernel for such operands; where not, nothing was written.
    """
    kinds = kinds_of(x, out=out)
    if kinds is None:
        return False
    rows, n = rows_of(x), x.shape[-1]
    if not any(isinstance(kind, Codes) for kind in kinds):
        x, out, rows, n = library().ascontiguousarray(x).reshape(1, -1), out.reshape(1, -1), 1, rows * n
    elif rows > 1 and n % QUAD:
        return False
    if rows and n:
        size = chunk_size(*kinds)
        source, target = (given_as(a, kind, size) for a, kind in zip((x, out), kinds, strict=True))
        lanes = kinds[1].block // PACKED if isinstance(kinds[1], Codes) else 1
        chunks = -(-n // (size * lanes)) * lanes
        made = dropout_kernel(source.side, target.side, size, is_keyed(draw), converts())
        numbers = float(rate), 1.0 / (1.0 - float(rate)), chunks, chunks * rows, rows, n
        arguments = *source.arguments, *target.as_output, *draw_arguments(draw), *numbers
        made(grid(chunks * rows, THREADS, WAVES), THREADS, *arguments)
    return True
