"""The oracle's element codes: encode, decode and packing, by searching value tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..schemes import ElementFormat
from ..schemes import element as find_element

Array = np.ndarray[Any, np.dtype[Any]]


def decode(codes: Array, element: ElementFormat | str) -> Array:
    """float32 values of uint8 ``codes``, of the same shape.

    Example:
        >>> decode(np.array([1, 7, 9], np.uint8), "e2m1").tolist()
        [0.5, 6.0, -0.5]
    """
    return np.asarray(_record(element).values[codes])


def encode(values: Array, element: ElementFormat | str, draws: Array | None = None, bits: int = 16) -> Array:
    """uint8 codes of float ``values``: clamped, then rounded to the nearest value, ties to the even code.

    Args:
        values: Floats of any shape; infinities saturate, NaN takes the NaN code or 0.
        element: The element format or its name.
        draws: Random integers below ``2**bits`` of the same shape: round stochastically instead.
        bits: Bits a draw.

    Example:
        >>> encode(np.array([0.25, 0.75, 2.5, 100.0, -0.0]), "e2m1").tolist()
        [0, 2, 4, 7, 8]
    """
    element = _record(element)
    with np.errstate(invalid="ignore"):  # signalling NaN
        values = np.asarray(values, np.float64)
    missing = np.isnan(values)
    clamped = np.clip(np.where(missing, 0.0, values), element.minimum, element.maximum)
    if element.kind == "minifloat":
        # Sign and magnitude, so that -0 and what rounds to it keep their sign bit.
        codes = _round(np.abs(clamped), *_magnitudes(element), draws, bits)
        codes = codes | (np.signbit(clamped).astype(np.int64) << (element.bits - 1))
    else:
        codes = _round(clamped, *_values(element), draws, bits)
        # A table may have a code for -0 beside that of +0.
        minus_zero = np.flatnonzero((element.values == 0) & np.signbit(element.values))
        if minus_zero.size:
            codes = np.where((element.values[codes] == 0) & np.signbit(clamped), minus_zero[0], codes)
    return np.where(missing, element.nan_code or 0, codes).astype(np.uint8)


def _record(element: ElementFormat | str) -> ElementFormat:
    return element if isinstance(element, ElementFormat) else find_element(element)


def _magnitudes(element: ElementFormat) -> tuple[Array, Array]:
    """Non-negative values up to the maximum, ascending, and their codes."""
    positive = element.values[: 1 << (element.bits - 1)].astype(np.float64)
    codes = np.flatnonzero(positive <= element.maximum)
    return positive[codes], codes


def _values(element: ElementFormat) -> tuple[Array, Array]:
    """Values from the minimum to the maximum, ascending, and their codes: one each, of the two zeros +0."""
    values = element.values.astype(np.float64)
    codes = np.flatnonzero((values >= element.minimum) & (values <= element.maximum))
    codes = codes[np.lexsort((np.signbit(values[codes]), values[codes]))]
    codes = codes[np.append(True, np.diff(values[codes]) > 0)]
    return values[codes], codes


def _round(values: Array, grid: Array, codes: Array, draws: Array | None, bits: int) -> Array:
    """Codes of the neighbours on ``grid`` that ``values``, which lie within it, round to."""
    low = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    below, above = grid[low], grid[low + 1]
    if draws is None:
        middle = (below + above) / 2
        up = (values > middle) | ((values == middle) & (codes[low + 1] % 2 == 0))
    else:
        fraction = np.where(values < 0, above - values, values - below) / (above - below)
        away = np.rint(fraction * 2.0**bits) + draws >= 2.0**bits
        # A value on the upper neighbour stays there: its fraction is 1 (or 0 below zero).
        up = np.where(values < 0, ~away, away)
    return np.asarray(codes[low + up])


def pack(codes: Array, bits: int) -> Array:
    """uint32 (..., W): each line of codes (..., n) as a little-endian bit stream in whole words.

    Example:
        >>> [hex(word) for word in pack(np.array([1, 2, 3, 4, 5, 6, 7, 8, 9]), 4)]
        ['0x87654321', '0x9']
    """
    codes = np.atleast_1d(np.asarray(codes, np.uint8))
    stream = (codes[..., None] >> np.arange(bits, dtype=np.uint8) & 1).reshape(*codes.shape[:-1], -1)
    padding = [(0, 0)] * (codes.ndim - 1) + [(0, -stream.shape[-1] % 32)]
    octets = np.packbits(np.pad(stream, padding), axis=-1, bitorder="little")
    return np.asarray(octets.view("<u4"), np.uint32)


def unpack(words: Array, bits: int, n: int) -> Array:
    """uint8 (..., n): the first ``n`` codes of each line of words (..., W).

    Example:
        >>> unpack(np.array([0x87654321], np.uint32), 4, 3).tolist()
        [1, 2, 3]
    """
    octets = np.ascontiguousarray(words, "<u4").view(np.uint8)
    stream = np.unpackbits(octets, axis=-1, bitorder="little")[..., : n * bits]
    digits = stream.reshape(*stream.shape[:-1], n, bits).astype(np.int64)
    return np.asarray((digits << np.arange(bits)).sum(-1), np.uint8)
