"""Random numbers on the device: the same bits of the same draw as on the CPU (autoq/random.py).

A draw is ``(seed, stream)``, or a uint32 (4,) array on the device with both in halves, low ones first:
kernels read it when they run, so that a replayed graph draws anew. One Philox block makes the 32-bit
numbers of four neighbours.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import F, U
from ..scalar.philox import LOW, WORD, W, philox
from .compile import uses_cuda
from .intrinsics import store4
from .launch import grid, kernel
from .operand import float_bits, float_kind, float_writer, is_aligned, pointer_of

cuda: Any = None
uses_cuda(globals())

I32, I64 = np.int32, np.int64
THREADS = 256
WAVES = 16
FOUR = 4
BYTE, BIT31, SPAN24 = U(8), U(0x80000000), F(2.0**-24)
SPAN32, ONE32 = F(2.0**-32), F(1.0)
OCTANT, QUARTER, ODD, TWO = I64(1 << 29), I64(30), I64(1), I64(2)
TURN = F(2.0 * math.pi * 2.0**-32)
MINUS_TWO = F(-2.0)
# Taylor's terms: on [-pi/4, pi/4] what is left out is below a twentieth of a last place.
SINE = tuple(F((-1) ** k / math.factorial(2 * k + 1)) for k in range(6))
COSINE = tuple(F((-1) ** k / math.factorial(2 * k)) for k in range(7))
S1, S2, S3, S4, S5 = SINE[1:]
C1, C2, C3, C4, C5, C6 = COSINE[1:]

DRAW = ("uint32", "uint32", "uint32", "uint32", "uint32*")


def draw_arguments(draw: Any) -> tuple[Any, ...]:
    """A draw as kernel arguments: four words, and the array that replaces them where it isn't None."""
    if not isinstance(draw, tuple):
        return 0, 0, 0, 0, draw
    seed, stream = draw
    low = 0xFFFFFFFF
    return seed & low, seed >> 32, stream & low, stream >> 32, None


def is_keyed(draw: Any) -> bool:
    """Whether a draw lies on the device."""
    return not isinstance(draw, tuple)


def key_reader(keyed: bool):
    """``key(a, b, c, d, array)``: the four words of a draw."""

    @scalar
    def read(a, b, c, d, array):
        return array[0], array[1], array[2], array[3]

    @scalar
    def given(a, b, c, d, array):
        return a, b, c, d

    return read if keyed else given


@scalar
def words4(group, key):
    """The 32-bit numbers of elements ``4 group`` to ``4 group + 3``."""
    g = W(group)
    return philox(U(W(g & LOW)), U(W(g >> WORD)), key[2], key[3], key[0], key[1])


@scalar
def word(index, key):
    """The 32-bit number of one element."""
    words = words4(index >> 2, key)
    lane = index & 3
    low = words[1] if lane & 1 else words[0]
    high = words[3] if lane & 1 else words[2]
    return high if lane > 1 else low


@scalar
def fraction(w):
    """A float32 in [0, 1): the top 24 bits, exactly."""
    return F(F(U(w >> BYTE)) * SPAN24)


@scalar
def sine(a):
    """sin(a) for a magnitude of at most pi/4."""
    s = F(a * a)
    t = F(S1 + F(s * F(S2 + F(s * F(S3 + F(s * F(S4 + F(s * S5))))))))
    return F(a + F(F(a * s) * t))


@scalar
def cosine(a):
    """cos(a) for a magnitude of at most pi/4."""
    s = F(a * a)
    t = F(C2 + F(s * F(C3 + F(s * F(C4 + F(s * F(C5 + F(s * C6))))))))
    return F(ONE32 + F(s * F(C1 + F(s * t))))


@scalar
def gaussian(w, turn):
    """A standard normal number of two 32-bit numbers (Box and Muller, 1958), in float32.

    The logarithm is taken from 1 downwards where its argument is near 1, and the angle is reduced as an
    integer: nothing cancels.
    """
    if w >= BIT31:
        logarithm = F(math.log1p(F(F(-F(U(~w))) * SPAN32)))
    else:
        logarithm = F(math.log(F(F(U(w + U(1))) * SPAN32)))
    quarter = I64(I64(I64(turn) + OCTANT) >> QUARTER)
    angle = F(F(I32(I64(turn) - I64(quarter << QUARTER))) * TURN)
    wave = sine(angle) if quarter & ODD else cosine(angle)
    wave = F(-wave) if I64(quarter + ODD) & TWO else wave
    return F(F(math.sqrt(F(MINUS_TWO * logarithm))) * wave)


@kernel
def words_kernel(keyed):
    """Fill ``out`` with the numbers from element ``start`` on."""
    key_of = key_reader(keyed)

    def words(a, b, c, d, key, start, out, n):
        k = key_of(a, b, c, d, key)
        for i in range(cuda.grid(1), n, cuda.gridsize(1)):
            out[i] = word(start + i, k)

    return words, (*DRAW, "int64", "uint32*", "int64")


@kernel
def uniform_kernel(kind, keyed, wide):
    """``low + fraction * span``, four neighbours a thread, float32 written at once where it is aligned."""
    key_of, write = key_reader(keyed), float_writer(kind)

    def uniform(a, b, c, d, key, low, span, out, n):
        k = key_of(a, b, c, d, key)
        for group in range(cuda.grid(1), (n + 3) >> 2, cuda.gridsize(1)):
            w, first = words4(group, k), group << 2
            v0, v1 = F(low + F(fraction(w[0]) * span)), F(low + F(fraction(w[1]) * span))
            v2, v3 = F(low + F(fraction(w[2]) * span)), F(low + F(fraction(w[3]) * span))
            if wide and first + FOUR <= n:
                store4(out, first, v0, v1, v2, v3)
            else:
                write(out, first, v0)
                if first + 1 < n:
                    write(out, first + 1, v1)
                if first + 2 < n:
                    write(out, first + 2, v2)
                if first + 3 < n:
                    write(out, first + 3, v3)

    return uniform, (*DRAW, "float32", "float32", pointer_of(kind), "int64")


@kernel
def normal_kernel(kind, keyed):
    """``mean + std * normal`` of the numbers ``i`` and ``n + i``."""
    key_of, write = key_reader(keyed), float_writer(kind)

    def normal(a, b, c, d, key, mean, std, out, n):
        k = key_of(a, b, c, d, key)
        for group in range(cuda.grid(1), (n + 3) >> 2, cuda.gridsize(1)):
            w, first = words4(group, k), group << 2
            aligned = n & 3 == 0
            turns = words4((n >> 2) + group, k) if aligned else w
            for lane in range(FOUR):
                i = first + lane
                if i < n:
                    turn = turns[lane] if aligned else word(n + i, k)
                    write(out, i, F(mean + F(std * gaussian(w[lane], turn))))

    return normal, (*DRAW, "float32", "float32", pointer_of(kind), "int64")


def random_words(draw: Any, out: Any, start: int = 0) -> None:
    """Fill a uint32 array, C-contiguous, with the 32-bit numbers of elements ``start`` on, one launch.

    Args:
        draw: (seed, stream), or the uint32 (4,) array of both.
        out: Written.
        start: The element of the first number.
    """
    if out.size:
        made = words_kernel(is_keyed(draw))
        blocks = grid(out.size, THREADS, WAVES)
        made(blocks, THREADS, *draw_arguments(draw), start, out, out.size)


def uniform(draw: Any, out: Any, low: float = 0.0, high: float = 1.0) -> None:
    """Fill a float32, float16 or bfloat16 array, C-contiguous, uniformly from [low, high), one launch.

    float32 gets the CPU's bits; the others those rounded.
    """
    if out.size:
        kind = float_kind(out)
        made = uniform_kernel(kind, is_keyed(draw), kind == "float32" and is_aligned(out))
        blocks = grid(-(-out.size // FOUR), THREADS, WAVES)
        span = float(high) - float(low)
        made(blocks, THREADS, *draw_arguments(draw), float(low), span, float_bits(out), out.size)


def normal(draw: Any, out: Any, mean: float = 0.0, std: float = 1.0) -> None:
    """Fill a float32, float16 or bfloat16 array, C-contiguous, with normal numbers, one launch.

    They are computed in float32, the CPU's in float64: those before ``mean`` and ``std`` differ by a few
    last places at most.
    """
    if out.size:
        made = normal_kernel(float_kind(out), is_keyed(draw))
        blocks = grid(-(-out.size // FOUR), THREADS, WAVES)
        made(blocks, THREADS, *draw_arguments(draw), float(mean), float(std), float_bits(out), out.size)
