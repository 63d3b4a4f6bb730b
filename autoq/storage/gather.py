"""Slices and gathers along storage axes: which are views, which copy codes, which cut blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..devices import beside, to_host
from ..schemes import QuantScheme
from .inputs import as_float32
from .layout import Array, Geometry, Shape, source_blocks
from .packing import pack, unpack
from .qtensor import QTensor

Moved = tuple[QTensor, str]
Pick = slice | Array
HOWS = ("view", "copy", "decode")


def worst(*hows: str) -> str:
    """The farthest of ``view``, ``copy`` and ``decode``.

    Example:
        >>> worst("view", "copy")
        'copy'
    """
    return HOWS[max(map(HOWS.index, hows))]


def encoded(x: Array, scheme: QuantScheme) -> Any:
    """The result of an op in ``scheme``, blocks along the last axis and rounded to nearest (S13, S41).

    Where there is no axis for a block to run along: float32.
    """
    if x.ndim == 0 and scheme.block is not None:
        return as_float32(x)
    scheme = scheme.innermost(x.ndim)
    return QTensor.encode(x, scheme)


class AxisMove(NamedTuple):
    """How one storage axis is gathered without decoding.

    Attributes:
        how: ``view`` or ``copy``.
        places: Values of the axis to keep: a slice or an int64 array, of NumPy or CuPy.
        blocks: Blocks of the grid's axis to keep; None where the grid has one for the whole axis.
        words: Words of a line to keep; None where codes must be packed again or the axis isn't the last.
    """

    how: str
    places: Pick
    blocks: Pick | None
    words: slice | None = None


def places(n: int, pick: Pick) -> Array:
    """The source places of a pick along an axis of ``n``, int64."""
    return np.arange(n)[pick] if isinstance(pick, slice) else pick


def axis_move(geometry: Geometry, axis: int, n: int, pick: Pick) -> AxisMove | None:
    """How ``pick`` of storage ``axis`` with ``n`` places moves whole blocks; None if it cuts one."""
    extent = geometry.extents[axis]
    how = "view" if isinstance(pick, slice) else "copy"
    if geometry.is_free(axis):
        return AxisMove(how, pick, pick if extent else None)
    if isinstance(pick, slice):
        start, stop, step = pick.indices(n)
        cut = geometry.cuts(axis)
        if step == 1 and start % cut == 0 and (stop % cut == 0 or stop == n):
            stop = max(start, stop)
            blocks = slice(start // extent, -(-stop // extent)) if extent else None
            bits = geometry.bits
            return AxisMove(
                "view", slice(start, stop), blocks, slice(start * bits // 32, -(-stop * bits // 32))
            )
    index = to_host(places(n, pick))  # which blocks move is decided on the CPU
    sources = source_blocks(index, extent)
    return None if sources is None else AxisMove("copy", index, sources if extent else None)


def moved(q: QTensor, moves: dict[int, AxisMove]) -> Moved:
    """Apply moves, by storage axis, to words and scales."""
    last = len(q.shape) - 1
    words, scales = q.words, q.scales
    stored = list(q.storage_shape)
    line = moves.get(last)
    for axis, move in moves.items():
        stored[axis] = (
            len(range(stored[axis])[move.places]) if isinstance(move.places, slice) else len(move.places)
        )
        if axis != last:
            words = _along(words, axis, move.places)
        if move.blocks is not None:
            scales = _along(scales, axis, move.blocks)
    if line is not None and line.words is not None:
        words = words[..., line.words]
    elif line is not None:
        words = _gather_codes(words, q, tuple(stored[:last]), line.places)
    shape = tuple(stored[axis] for axis in q.layout.order)
    how = worst("view", *(move.how for move in moves.values()))
    return QTensor.make(words, scales, q.tensor_scale, q.scheme, shape, q.layout), how


def _along(array: Array, axis: int, pick: Pick) -> Array:
    if isinstance(pick, slice):
        return array[(slice(None),) * axis + (pick,)]
    return np.take(array, beside(pick, array), axis)


def _gather_codes(words: Array, q: QTensor, leading: Shape, index: Pick) -> Array:
    """Lines of the codes at ``index``: unpacked, gathered and packed."""
    bits = q.scheme.element_bits
    codes = unpack(words, bits, (*leading, q.storage_shape[-1]))
    return pack(codes[..., index if isinstance(index, slice) else beside(index, codes)], bits)


def gather(q: QTensor, picks: dict[int, Pick], shape: Shape | None = None) -> tuple[Any, str]:
    """Gather along logical axes, and reshape what was gathered.

    Args:
        q: The source.
        picks: Per logical axis a slice or an int64 array of places in range.
        shape: Shape of the result; that of the gathered tensor by default.

    Returns:
        The result and how it was made. Axes whose blocks can follow move first; only if some can't is
        what is left decoded, gathered and encoded again.
    """
    geometry = Geometry.of(q.scheme, q.ndim)
    moves, cutting = {}, {}
    for axis, pick in picks.items():
        stored = q.layout.order[axis]
        move = axis_move(geometry, stored, q.shape[axis], pick)
        if move is None:
            cutting[axis] = pick
        else:
            moves[stored] = move
    result, how = moved(q, moves)
    if cutting:
        x = result.dequantize()
        for axis, pick in cutting.items():
            x = _along(x, axis, pick)
        return encoded(x if shape is None else x.reshape(shape), q.scheme), "decode"
    if shape is None or shape == result.shape:
        return result, how
    from .reshape import reshape

    result, reshaped = reshape(result, shape)
    return result, worst(how, reshaped)
