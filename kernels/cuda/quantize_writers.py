"""Storing the codes of a lane's values: whole words, or the parts of a word that lanes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..bind import scalar
from ..scalar.bits import U
from .intrinsics import store2, store4
from .quantize_instructions import shuffle_down

Function = Callable[..., Any]
BYTE, TWO_BYTES, THREE_BYTES = U(8), U(16), U(24)


def stored_type(width: int, count: int) -> str:
    """The pointer type that codes of ``width`` bits are stored by, ``count`` a lane.

    Example:
        >>> stored_type(4, 4), stored_type(6, 4)
        ('uint16*', 'uint32*')
    """
    return {8: "uint8*", 16: "uint16*"}.get(width * count, "uint32*")


def is_storable(width: int, count: int) -> bool:
    """Whether so many codes of a lane can be stored."""
    return (width, count) in WRITERS


@scalar
def one_unit(words, i, active, codes):
    """A word, or its half or quarter, a lane."""
    if active:
        words[i] = codes[0]


@scalar
def two_words(words, i, active, codes):
    """Two words a lane."""
    if active:
        store2(words, 2 * i, codes[0], codes[1])


@scalar
def two_of_four(words, i, active, codes):
    """Two words a lane, each the first of a pair."""
    if active:
        store2(words, 2 * i, codes[0], codes[2])


@scalar
def four_words(words, i, active, codes):
    """Four words a lane."""
    if active:
        store4(words, 4 * i, codes[0], codes[1], codes[2], codes[3])


@scalar
def halves(words, i, active, codes):
    """Two half words a lane."""
    if active:
        words[i] = U(codes[0] | U(codes[2] << TWO_BYTES))


@scalar
def three_words(words, i, active, codes):
    """Four chunks of 24 bits a lane."""
    if active:
        words[3 * i] = U(codes[0] | U(codes[1] << THREE_BYTES))
        words[3 * i + 1] = U(U(codes[1] >> BYTE) | U(codes[2] << TWO_BYTES))
        words[3 * i + 2] = U(U(codes[2] >> TWO_BYTES) | U(codes[3] << BYTE))


@scalar
def shared_words(words, i, active, codes):
    """24 bits a lane: of four lanes the first three write a word, with a part of the next lane's."""
    after, place = shuffle_down(codes[0], 1), U(i & 3)
    if active and i & 3 < 3:
        low = U(codes[0] >> U(BYTE * place))
        words[(i >> 2) * 3 + (i & 3)] = U(low | U(after << U(THREE_BYTES - U(BYTE * place))))


WRITERS: dict[tuple[int, int], Function] = {
    (8, 4): one_unit,
    (8, 8): two_words,
    (8, 16): four_words,
    (6, 4): shared_words,
    (6, 16): three_words,
    (4, 4): one_unit,
    (4, 8): one_unit,
    (4, 16): two_of_four,
    (2, 4): one_unit,
    (2, 8): one_unit,
    (2, 16): halves,
}


def writer(width: int, count: int) -> Function:
    """``write(words, i, active, codes)``: store the codes of run ``i``. Every lane of the warp takes part."""
    return WRITERS[width, count]
