"""Quantize float32 lines or blocks: what callers see of it, and the spreading over threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import ArgumentError, ShapeError
from ..codec import Codec
from .pool import PARALLEL_VALUES, ranges, run, threads
from .quantize_kernels import NO_COUNTS, blocks_kernel, lines_kernel

Array = np.ndarray
Draw = tuple[int, int]

NO_LINES = np.zeros((0, 0), np.float32)
NO_BLOCKS = np.zeros(0, np.float32)
NO_INDEX = np.zeros((0, 0), np.int64)
NO_KEY = np.zeros(4, np.uint32)
WORD = 0xFFFFFFFF

# Compiled kernels: by value, and by identity, which spares hashing a codec's twenty fields at every call.
# An entry holds its codec, so that the identity isn't used again.
_lines: dict[Codec, Callable[..., int]] = {}
_blocks: dict[Codec, Callable[..., int]] = {}
_lines_by_id: dict[int, tuple[Codec, Callable[..., int]]] = {}
_blocks_by_id: dict[int, tuple[Codec, Callable[..., int]]] = {}
IDENTITIES = 1024


def quantize_lines(
    x: Array,
    codec: Codec,
    block: int,
    words: Array,
    scales: Array,
    tensor_amax: float = 0.0,
    given: Array | None = None,
    draw: Draw | None = None,
) -> None:
    """Encode lines whose blocks run along them.

    Args:
        x: float32 (lines, n), C-contiguous.
        codec: What to encode in; ``codec.given`` where scales are given.
        block: Values a block; the last one of a line may be partial.
        words: uint8 (lines, line bytes), written.
        scales: Stored scales (lines, ceil(n / block)), written.
        tensor_amax: Largest finite magnitude of the tensor, for two-level codecs.
        given: float32 like scales, or None.
        draw: (seed, stream) of stochastic rounding, or None.

    Raises:
        ShapeError: If the arrays don't fit each other.
        ArgumentError: If stochastic rounding has no draw.

    Example:
        >>> from autoq.kernels.codec import Codec, ElementCodec
        >>> e2m1 = ElementCodec("e2m1", "minifloat", 4, 1, 1, 6.0, -6.0, 1.0, 7, False, -1)
        >>> words, scales = np.zeros((1, 4), np.uint8), np.zeros((1, 1), np.uint8)
        >>> quantize_lines(np.array([[6, 0.5, -1, 3]], np.float32), Codec(e2m1, "ue8m0", "round_up"), 32,
        ...                words, scales)
        >>> [hex(byte) for byte in words[0]], scales.tolist()
        (['0x17', '0x5a', '0x0', '0x0'], [[127]])
    """
    found = _lines_by_id.get(id(codec))
    kernel = found[1] if found is not None else _kernel(codec, _lines, _lines_by_id, lines_kernel)
    if given is None:
        given = NO_LINES
    key = NO_KEY if draw is None else key_of(draw)
    if codec.rounding != "nearest" and draw is None:
        raise _no_draw(codec)
    if scales.dtype.itemsize == 2:
        scales = scales.view(np.uint16)
    amax = float(tensor_amax)
    if x.size < PARALLEL_VALUES or threads() == 1:
        if kernel(x, words, scales, block, amax, given, key, 0):
            raise _misfit(x, words, scales, block)
        return
    _spread(kernel, codec, (x, words, scales, given), block, amax, key)


def _spread(
    kernel: Callable[..., int], codec: Codec, arrays: tuple[Array, ...], block: int, amax: float, key: Array
) -> None:
    """Run the kernel on ranges of lines; of blocks, where those are whole bytes and lines are too few."""
    x, words, scales, given = arrays
    lines, n = x.shape
    bits = codec.element.bits
    if n % block == 0 and block * bits % 8 == 0 and words.shape == (lines, n * bits // 8):
        blocks = lines * (n // block)
        if scales.size != blocks or (codec.given and given.size != blocks):
            raise _misfit(x, words, scales, block)
        x, words, scales = (a.reshape(blocks, -1) for a in (x, words, scales))
        given = given.reshape(-1, 1)

    def piece(start: int, stop: int) -> int:
        part = given[start:stop] if codec.given else NO_LINES
        return kernel(
            x[start:stop], words[start:stop], scales[start:stop], block, amax, part, key, start * x.shape[1]
        )

    if any(run(piece, ranges(len(x), threads()))):
        raise _misfit(x, words, scales, block)


def quantize_blocks(
    x: Array,
    counts: Array | None,
    codec: Codec,
    codes: Array,
    scales: Array,
    tensor_amax: float = 0.0,
    given: Array | None = None,
    draw: Draw | None = None,
    index: Array | None = None,
) -> None:
    """Encode blocks that were gathered one a row, to one code a byte.

    Args:
        x: float32 (blocks, m), C-contiguous, padded with zeros.
        counts: int64 (blocks,) values a block that aren't padding, or None where all are.
        codec: What to encode in; ``codec.given`` where scales are given.
        codes: uint8 (blocks, m), written.
        scales: Stored scales (blocks,), written.
        tensor_amax: Largest finite magnitude of the tensor, for two-level codecs.
        given: float32 (blocks,), or None.
        draw: (seed, stream) of stochastic rounding, or None.
        index: int64 (blocks, m): which element of the tensor a value is, for draws.

    Raises:
        ShapeError: If the arrays don't fit each other.
        ArgumentError: If stochastic rounding has no draw or no index.
    """
    found = _blocks_by_id.get(id(codec))
    kernel = found[1] if found is not None else _kernel(codec, _blocks, _blocks_by_id, blocks_kernel)
    if codec.rounding != "nearest" and (draw is None or index is None):
        raise _no_draw(codec)
    key = NO_KEY if draw is None else key_of(draw)
    counts = NO_COUNTS if counts is None else counts
    index = NO_INDEX if index is None else index
    given = NO_BLOCKS if given is None else given
    if scales.dtype.itemsize == 2:
        scales = scales.view(np.uint16)
    amax = float(tensor_amax)

    def piece(start: int, stop: int) -> int:
        rows = slice(start, stop)
        return kernel(x[rows], counts[rows], codes[rows], scales[rows], amax, given[rows], key, index[rows])

    parts = threads() if x.size >= PARALLEL_VALUES else 1
    if any(run(piece, ranges(len(x), parts))):
        raise _misfit(x, codes, scales, x.shape[1])


def key_of(draw: Draw) -> Array:
    """The Philox key and stream of a draw: uint32 (4,), low words first."""
    seed, stream = draw
    return np.array([seed & WORD, seed >> 32 & WORD, stream & WORD, stream >> 32 & WORD], np.uint32)


def _kernel(
    codec: Codec,
    by_value: dict[Codec, Callable[..., int]],
    by_id: dict[int, tuple[Codec, Callable[..., int]]],
    make: Callable[[Codec], Callable[..., int]],
) -> Callable[..., int]:
    kernel = by_value.get(codec)
    if kernel is None:
        kernel = by_value[codec] = make(codec)
    if len(by_id) >= IDENTITIES:
        by_id.clear()
    by_id[id(codec)] = codec, kernel
    return kernel


def _misfit(x: Array, words: Array, scales: Array, block: int) -> ShapeError:
    return ShapeError(
        f"quantize: x {x.shape}, codes {words.shape}, scales {scales.shape}, block {block}",
        "as many lines in each, a scale a block, room for every code",
        "Allocate the results from x.shape.",
    )


def _no_draw(codec: Codec) -> ArgumentError:
    return ArgumentError(
        f"rounding {codec.rounding!r} without random numbers",
        "draw=(seed, stream)",
        "Pass a draw, and for blocks the index of every value.",
    )
