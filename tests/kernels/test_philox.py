"""Philox: the published vectors, and the numbering of draws."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.kernels.cpu.draws import draw_run
from autoq.kernels.cpu.quantize import key_of
from autoq.kernels.scalar.bits import U
from autoq.kernels.scalar.philox import W, draw16, philox
from autoq.random import Draw, random_bits

# Random123's known answers: counter, key, output.
VECTORS = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
DRAW = Draw(0x0123456789ABCDEF, 0xFEDCBA9876543210)


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(counter: list[int], key: list[int], expected: list[int]) -> None:
    assert [int(word) for word in philox(*map(U, counter), *map(U, key))] == expected


@pytest.mark.parametrize("first", [0, 3, 8, 21])
def test_a_run_of_draws_is_numbered_as_the_generator_numbers_them(first: int) -> None:
    expected = random_bits(DRAW, first + 20)[first:]
    draws = np.zeros(20 + 16, np.uint16)
    begin = draw_run(draws, first, 20, key_of(DRAW))
    np.testing.assert_array_equal(draws[begin : begin + 20], expected)
    assert [int(draw16(W(first + i), key_of(DRAW))) for i in range(20)] == expected.tolist()
