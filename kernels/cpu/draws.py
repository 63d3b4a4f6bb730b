"""Random bits for a tile of values, inside compiled kernels."""

from __future__ import annotations

import numpy as np

from ..bind import scalar
from ..scalar.bits import U
from ..scalar.philox import HALF, HALF_MASK, LOW, WORD, W, draw16, philox

LANES = 8


@scalar
def draw_run(draws, first, count, key):
    """Fill ``draws`` with the 16-bit draws of ``count`` elements from ``first`` on; where they begin there.

    ``draws`` has room for two groups more than ``count``: whole groups of eight are drawn.
    """
    begin = first // LANES
    groups = (first + count + LANES - 1) // LANES - begin
    for g in range(groups):
        group = W(begin + g)
        words = philox(U(group & LOW), U(group >> WORD), key[2], key[3], key[0], key[1])
        at = g * LANES
        for lane in range(4):
            draws[at + 2 * lane] = np.uint16(U(words[lane] & HALF_MASK))
            draws[at + 2 * lane + 1] = np.uint16(U(words[lane] >> HALF))
    return first - begin * LANES


@scalar
def draw_indexed(draws, index, key):
    """The 16-bit draws of the elements that ``index`` names."""
    for b in range(index.shape[0]):
        for i in range(index.shape[1]):
            draws[b, i] = np.uint16(draw16(W(index[b, i]), key))
