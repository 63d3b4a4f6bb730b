"""Encoding of checked arrays: blocks within lines, one block for the whole tensor, blocks across lines."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..context import OBSERVERS, launched
from ..schemes import QuantScheme
from .blocks import from_blocks, to_blocks
from .inputs import CHUNK, as_float32, float32_rows
from .layout import Array, line_words, word_unit
from .packing import pack, unpack
from .plan import codec_of, kernels, plan_of


class Packed(NamedTuple):
    """The arrays of a packed tensor.

    Attributes:
        words: uint32, shape[:-1] + (words a line,).
        scales: Stored scales, one a block, of the block grid's shape.
        tensor_scale: float32 scale of the whole tensor under two-level schemes, else None; on a GPU an array
            without axes, which is never read back.
    """

    words: Array
    scales: Array
    tensor_scale: Any


def encode_lines(x: Array, scheme: QuantScheme, out: Packed, options: dict[str, Any]) -> None:
    """Encode with blocks that lie within lines, a chunk of lines at a time."""
    plan, n = plan_of(scheme), x.shape[-1]
    lines = x.size // n
    codec = codec_of(scheme, options["given"] is not None)
    words = out.words.view(np.uint8).reshape(lines, -1)
    scales = out.scales.reshape(lines, -1)
    given = options.pop("given")
    # Draws are numbered from the first value of a call, so a stochastic cast is one call.
    rows = lines if options["draw"] is not None else max(1, CHUNK // n)
    for start, chunk in float32_rows(x.reshape(lines, n), rows):
        part = slice(start, start + len(chunk))
        plan.quantize_lines(
            chunk,
            codec,
            plan.block,
            words[part],
            scales[part],
            given=None if given is None else given.reshape(lines, -1)[part],
            **options,
        )
        if OBSERVERS:
            launched("quantize_lines", chunk.size)


def encode_whole(x: Array, scheme: QuantScheme, out: Packed, options: dict[str, Any]) -> None:
    """Encode with one block: as one long line, cut into lines where those don't end on words."""
    plan, given = plan_of(scheme), options.pop("given")
    codec = codec_of(scheme, given is not None)
    whole = x.ndim and x.shape[-1] % word_unit(plan.bits) == 0
    words = out.words if whole else np.empty(line_words(x.size, plan.bits), np.uint32)
    plan.quantize_lines(
        as_float32(x).reshape(1, -1),
        codec,
        x.size,
        words.view(np.uint8).reshape(1, -1),
        out.scales.reshape(1, 1),
        given=None if given is None else given.reshape(1, 1),
        **options,
    )
    if OBSERVERS:
        launched("quantize_lines", x.size)
    if not whole:
        pack(unpack(words, plan.bits, (x.size,)).reshape(x.shape), plan.bits, out.words)


def encode_blocks(x: Array, scheme: QuantScheme, out: Packed, options: dict[str, Any]) -> None:
    """Encode with blocks across lines: gather blocks, encode them to codes, pack the codes by lines."""
    given = options.pop("given")
    block = scheme.block or ()
    lead = x.ndim - len(block)
    extents = (1,) * min(lead, 1) + block
    shape = (-1,) * min(lead, 1) + x.shape[lead:]  # the leading axes as one: NumPy's arrays have 64 at most
    stacked = as_float32(x).reshape(shape)
    values, counts = to_blocks(stacked, extents)
    index = None
    if options["draw"] is not None:
        index = to_blocks(np.arange(x.size).reshape(shape), extents).values
    codes = np.empty(values.shape, np.uint8)
    kernels().quantize_blocks(
        values,
        counts,
        codec_of(scheme, given is not None),
        codes,
        out.scales.reshape(-1),
        index=index,
        given=None if given is None else given.reshape(-1),
        **options,
    )
    if OBSERVERS:
        launched("quantize_blocks", x.size)
    pack(from_blocks(codes, stacked.shape, extents).reshape(x.shape), scheme.element_bits, out.words)
