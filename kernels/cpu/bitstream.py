"""Codes of at most 8 bits to a little-endian bit stream and back, inside compiled kernels.

``pack(codes, out)`` fills the bytes ``out`` from one code a byte; ``codes`` is padded with zeros to a
multiple of ``GROUP`` and covers ``out``. ``unpack(words, codes)`` is its inverse: it fills ``codes``.
"""

from __future__ import annotations

import numpy as np

from ..bind import scalar
from ..scalar.bits import U
from .views import part, viewed

# Codes that make whole bytes and whole 64-bit words in every width.
GROUP = 32
HALVES, WORDS, DOUBLES = np.zeros(0, np.uint16), np.zeros(0, np.uint32), np.zeros(0, np.uint64)
W = np.uint64
B = np.uint8
PAIR_LOW = W(0x003F003F003F003F)
PAIR_HIGH = W(0x3F003F003F003F00)
QUAD_LOW = W(0x00000FFF00000FFF)
QUAD_HIGH = W(0x0FFF00000FFF0000)
OCT_LOW = W(0x0000000000FFFFFF)
OCT_HIGH = W(0x00FFFFFF00000000)
TWO, FOUR, EIGHT, SIXTEEN, HALF, THREE_QUARTERS = W(2), W(4), W(8), W(16), W(32), W(48)


def packer(bits: int):
    """The pack function of a width."""
    return {2: pack2, 4: pack4, 6: pack6, 8: copy}.get(bits) or any_packer(bits)


def unpacker(bits: int):
    """The unpack function of a width."""
    return {2: unpack2, 4: unpack4, 6: unpack6, 8: copy}.get(bits) or any_unpacker(bits)


@scalar
def copy(source, out):
    """Bytes as they are."""
    for i in range(out.shape[0]):
        out[i] = source[i]


@scalar
def pack4(codes, out):
    """Two codes a byte, the first in the low half."""
    pairs = viewed(codes, HALVES)
    for i in range(out.shape[0]):
        w = U(pairs[i])
        out[i] = B(U(w | U(w >> U(4))) & U(0xFF))


@scalar
def unpack4(words, codes):
    """The mirror image of pack4."""
    for i in range(codes.shape[0] >> 1):
        w = words[i]
        codes[2 * i] = w & B(0xF)
        codes[2 * i + 1] = w >> B(4)
    if codes.shape[0] & 1:
        codes[codes.shape[0] - 1] = words[codes.shape[0] >> 1] & B(0xF)


@scalar
def pack2(codes, out):
    """Four codes a byte, the first in the lowest bits."""
    quads = viewed(codes, WORDS)
    for i in range(out.shape[0]):
        w = quads[i]
        out[i] = B(U(U(w | U(w >> U(6))) | U(U(w >> U(12)) | U(w >> U(18)))) & U(0xFF))


@scalar
def unpack2(words, codes):
    """The mirror image of pack2."""
    for i in range(codes.shape[0]):
        codes[i] = (words[i >> 2] >> B(2 * (i & 3))) & B(3)


@scalar
def squeeze(w):
    """Eight 6-bit codes, one a byte, to 48 bits."""
    w = W(W(w & PAIR_LOW) | W(W(w & PAIR_HIGH) >> TWO))
    w = W(W(w & QUAD_LOW) | W(W(w & QUAD_HIGH) >> FOUR))
    return W(W(w & OCT_LOW) | W(W(w & OCT_HIGH) >> EIGHT))


@scalar
def spread(w):
    """48 bits to eight 6-bit codes, one a byte."""
    w = W(W(w & OCT_LOW) | W(W(w << EIGHT) & OCT_HIGH))
    w = W(W(w & QUAD_LOW) | W(W(w << FOUR) & QUAD_HIGH))
    return W(W(w & PAIR_LOW) | W(W(w << TWO) & PAIR_HIGH))


@scalar
def pack6(codes, out):
    """Four codes in three bytes: four words of codes become three of stream."""
    source = viewed(codes, DOUBLES)
    for i in range(source.shape[0]):
        source[i] = squeeze(source[i])
    whole = out.shape[0] // 24
    target = viewed(part(out, 0, whole * 24), DOUBLES)
    for i in range(whole):
        a, b, c, d = source[4 * i], source[4 * i + 1], source[4 * i + 2], source[4 * i + 3]
        target[3 * i] = W(a | W(b << THREE_QUARTERS))
        target[3 * i + 1] = W(W(b >> SIXTEEN) | W(c << HALF))
        target[3 * i + 2] = W(W(c >> HALF) | W(d << SIXTEEN))
    for i in range(whole * 24, out.shape[0]):
        out[i] = B(W(source[i // 6] >> W(8 * (i % 6))) & W(0xFF))


@scalar
def unpack6(words, codes):
    """The mirror image of pack6."""
    whole = codes.shape[0] // GROUP
    source = viewed(part(words, 0, whole * 24), DOUBLES)
    target = viewed(part(codes, 0, whole * GROUP), DOUBLES)
    for i in range(whole):
        a, b, c = source[3 * i], source[3 * i + 1], source[3 * i + 2]
        target[4 * i] = a
        target[4 * i + 1] = W(W(a >> THREE_QUARTERS) | W(b << SIXTEEN))
        target[4 * i + 2] = W(W(b >> HALF) | W(c << HALF))
        target[4 * i + 3] = W(c >> SIXTEEN)
    for i in range(target.shape[0]):
        target[i] = spread(target[i])
    for i in range(whole * GROUP, codes.shape[0]):
        first = (6 * i) >> 3
        w = U(words[first])
        if first + 1 < words.shape[0]:
            w = U(w | U(U(words[first + 1]) << U(8)))
        codes[i] = B(U(w >> U((6 * i) & 7)) & U(0x3F))


def any_packer(bits: int):
    """Packing for the other widths, a code at a time."""
    width = U(bits)

    @scalar
    def pack(codes, out):
        held, count, k = U(0), U(0), 0
        for i in range(out.shape[0]):
            while count < U(8):
                held = U(held | U(U(codes[k]) << count))
                count = U(count + width)
                k += 1
            out[i] = B(U(held & U(0xFF)))
            held, count = U(held >> U(8)), U(count - U(8))

    return pack


def any_unpacker(bits: int):
    """The mirror image of any_packer."""
    width, mask = U(bits), U((1 << bits) - 1)

    @scalar
    def unpack(words, codes):
        held, count, k = U(0), U(0), 0
        for i in range(codes.shape[0]):
            if count < width:
                held = U(held | U(U(words[k]) << count))
                count = U(count + U(8))
                k += 1
            codes[i] = B(U(held & mask))
            held, count = U(held >> width), U(count - width)

    return unpack
