"""Writing chunks of rows: floats rounded to their kind, or a block's scale and codes."""

from __future__ import annotations

from ..bind import scalar
from ..scalar.bits import ONE, ZERO, F, U
from .block import block_measure, noter, quad_encoder
from .chunks import ANY, HALF, NOTHING, PACKED, QUAD, WHOLE, WIDE, Codes, Function, Kind
from .decode import to_bfloats, to_halves
from .intrinsics import shuffle_xor, store2, store4
from .operand import float_writer
from .quantize_block import chooser


def storer(kind: Kind, size: int, access: str, converts: bool) -> Function:
    """``store(target, row, rows, j, n, a, at)``: write or encode the chunk ``a[at:]`` of a row.

    ``target`` is a tuple of the result's parameters.

    All threads of the block come here together, those without values or without a row too.
    """
    if isinstance(kind, Codes):
        return packed_storer(kind, access, converts)
    inside = {
        ANY: float_storer(kind, size), WHOLE: float_storer(kind, size),
        WIDE: wide_storer(size) if kind == "float32" else halves_storer(kind, size),
    }[access]  # fmt: skip

    @scalar
    def store(target, row, rows, j, n, a, at):
        if row < rows and j < n:
            inside(target[0], row * target[2] + j, n - j, a, at)

    return store


def float_storer(kind: str, size: int) -> Function:
    """Value by value."""
    write = float_writer(kind)

    @scalar
    def store(data, place, left, a, at):
        for i in range(size):
            if i < left:
                write(data, place + i, a[at + i])

    return store


def wide_storer(size: int) -> Function:
    """float32, four at once."""

    @scalar
    def store(data, place, left, a, at):
        for q in range(size // QUAD):
            i = at + QUAD * q
            store4(data, place + QUAD * q, a[i], a[i + 1], a[i + 2], a[i + 3])

    return store


def halves_storer(kind: str, size: int) -> Function:
    """16-bit floats, eight at once."""
    pair = to_halves if kind == "float16" else to_bfloats

    @scalar
    def store(data, place, left, a, at):
        for q in range(size // (2 * QUAD)):
            i = at + 2 * QUAD * q
            low, high = (pair(a[i], a[i + 1]), pair(a[i + 2], a[i + 3])), i + QUAD
            more = pair(a[high], a[high + 1]), pair(a[high + 2], a[high + 3])
            store4(data, (place >> 1) + QUAD * q, low[0], low[1], more[0], more[1])

    return store


def packed_storer(kind: Codes, access: str, converts: bool) -> Function:
    """Encode a block of neighbouring threads: its largest magnitude by shuffles, its scale, its codes."""
    codec, block = kind.codec, kind.block
    note, measured, choose = noter(codec), block_measure(codec), chooser(codec)
    encode, put = quad_encoder(codec, converts), word_writer(codec.element.bits, access)
    steps, saturates = block // PACKED, codec.nonfinite == "saturate"
    bounded, width = access == ANY, codec.element.bits

    @scalar
    def kept(chunk, left):
        return chunk if left >= QUAD else U(chunk & U(U(ONE << U(max(left, 0) * width)) - ONE))

    @scalar
    def store(target, row, rows, j, n, a, at):
        data, scales, step = target
        most, highest = ZERO, ZERO
        for i in range(PACKED):
            if j + i >= n:
                a[at + i] = NOTHING
            most, highest = note(most, highest, a[at + i])
        distance = 1
        while distance < steps:
            most = max(most, shuffle_xor(most, distance))
            if saturates:
                highest = max(highest, shuffle_xor(highest, distance))
            distance *= 2
        stored, factor, limit = choose(measured(most, highest), NOTHING, F(1.0), F(1.0), F(1.0))
        c0 = encode(a[at], a[at + 1], a[at + 2], a[at + 3], factor, limit)
        c1 = encode(a[at + 4], a[at + 5], a[at + 6], a[at + 7], factor, limit)
        c2 = encode(a[at + 8], a[at + 9], a[at + 10], a[at + 11], factor, limit)
        c3 = encode(a[at + 12], a[at + 13], a[at + 14], a[at + 15], factor, limit)
        if row < rows and j < n:
            if bounded:
                left = n - j
                c0, c1, c2, c3 = kept(c0, left), kept(c1, left - 4), kept(c2, left - 8), kept(c3, left - 12)
            put(data, row * step + ((j * width) >> 5), ((n - j) * width - 1) >> 5, c0, c1, c2, c3)
            if j % block == 0:
                scales[row * ((n + block - 1) // block) + j // block] = stored

    return store


def word_writer(bits: int, access: str) -> Function:
    """``put(words, first, last, c0, c1, c2, c3)``: the words of four fours of codes, up to ``last``."""
    wide, count = access == WIDE, bits // 2

    @scalar
    def words8(c0, c1, c2, c3):
        return c0, c1, c2, c3

    @scalar
    def words6(c0, c1, c2, c3):
        return (
            U(c0 | U(c1 << U(24))),
            U(U(c1 >> U(8)) | U(c2 << HALF)),
            U(U(c2 >> HALF) | U(c3 << U(8))),
            ZERO,
        )

    @scalar
    def words4(c0, c1, c2, c3):
        return U(c0 | U(c1 << HALF)), U(c2 | U(c3 << HALF)), ZERO, ZERO

    @scalar
    def words2(c0, c1, c2, c3):
        return U(U(c0 | U(c1 << U(8))) | U(U(c2 << HALF) | U(c3 << U(24)))), ZERO, ZERO, ZERO

    together = {8: words8, 6: words6, 4: words4, 2: words2}[bits]

    @scalar
    def put(words, first, last, c0, c1, c2, c3):
        w = together(c0, c1, c2, c3)
        if wide and count == 4:
            store4(words, first, w[0], w[1], w[2], w[3])
        elif wide and count == 2:
            store2(words, first, w[0], w[1])
        else:
            for k in range(count):
                if k <= last:
                    words[first + k] = w[k]

    return put
