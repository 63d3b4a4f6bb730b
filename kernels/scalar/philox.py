"""Philox-4x32-10: 128 random bits from a 128-bit counter and a 64-bit key.

A draw is keyed by (seed, stream). Element ``i`` takes 16 bits of the block with counter
``(g lo, g hi, stream lo, stream hi)``, ``g = i // 8``: word ``(i % 8) // 2``, its low half for even ``i``.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

import numpy as np

from ..bind import scalar
from .bits import U

W = np.uint64
LOW = W(0xFFFFFFFF)
WORD = W(32)
M0, M1 = W(0xD2511F53), W(0xCD9E8D57)
WEYL0, WEYL1 = W(0x9E3779B9), W(0xBB67AE85)
HALF = U(16)
HALF_MASK = U(0xFFFF)
ROUNDS = 10


@scalar
def philox(c0, c1, c2, c3, k0, k1):
    """One block: four uint32 counter words and two key words to four uint32.

    Example:
        >>> from autoq.kernels.scalar.bits import U
        >>> [hex(int(word)) for word in philox(*[U(0)] * 6)]
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    for _ in range(ROUNDS):
        p0, p1 = W(W(c0) * M0), W(W(c2) * M1)
        c0, c2 = U(U(U(W(p1 >> WORD)) ^ c1) ^ k0), U(U(U(W(p0 >> WORD)) ^ c3) ^ k1)
        c1, c3 = U(W(p1 & LOW)), U(W(p0 & LOW))
        k0, k1 = U(W(W(W(k0) + WEYL0) & LOW)), U(W(W(W(k1) + WEYL1) & LOW))
    return c0, c1, c2, c3


@scalar
def draw16(index, key):
    """The 16-bit draw of one element.

    Args:
        index: uint64 index of the element.
        key: uint32 (4,): seed low and high, stream low and high.
    """
    group = W(W(index) >> W(3))
    words = philox(U(W(group & LOW)), U(W(group >> WORD)), key[2], key[3], key[0], key[1])
    lane = int(W(index) & W(7))
    word = words[0]
    if lane >= 6:
        word = words[3]
    elif lane >= 4:
        word = words[2]
    elif lane >= 2:
        word = words[1]
    return U(word >> HALF) if lane & 1 else U(word & HALF_MASK)
