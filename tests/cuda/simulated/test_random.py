"""Random numbers of the device's kernels, in the simulator, against the CPU's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from autoq.kernels.cuda import random
from autoq.random import Draw, Generator, random_words, uniform01

DRAW = Draw(0x0123456789ABCDEF, 0xFEDCBA9876543210)
KEY = np.array([0x89ABCDEF, 0x01234567, 0x76543210, 0xFEDCBA98], np.uint32)


@pytest.mark.parametrize("draw", [DRAW, KEY], ids=["numbers", "array"])
@pytest.mark.parametrize("start", [0, 5])
def test_words_are_those_of_the_cpu(draw, start):
    out = np.zeros(11, np.uint32)
    random.random_words(draw, out, start)
    assert np.array_equal(out, random_words(DRAW, 11, start))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("n", [1, 6, 8])
def test_uniform_numbers_are_those_of_the_cpu(dtype, n):
    out = np.zeros(n, dtype)
    random.uniform(DRAW, out, -1.5, 2.25)
    expected = (np.float32(-1.5) + uniform01(DRAW, n) * np.float32(3.75)).astype(dtype)
    assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("n", [3, 8])
def test_normal_numbers_are_near_those_of_the_cpu(n):
    rng = Generator(11)
    expected = rng.normal(n, 1.0, 2.0)
    out = np.zeros(n, np.float32)
    random.normal(Generator(11).draw("normal"), out, 1.0, 2.0)
    assert np.abs(out - expected).max() < 4e-6


def test_gaussian_is_accurate_wherever_its_words_lie():
    rng = np.random.default_rng(0)
    edges = [
        0,
        1,
        2,
        3,
        2**31 - 1,
        2**31,
        2**31 + 1,
        2**32 - 2,
        2**32 - 1,
        2**29,
        2**29 - 1,
        2**30,
        3 * 2**30,
    ]
    first = np.array(edges + list(rng.integers(0, 2**32, 300)), np.uint64)
    turns = np.array(list(reversed(edges)) + list(rng.integers(0, 2**32, 300)), np.uint64)
    exact = np.sqrt(-2.0 * np.log((first + 1.0) * 2.0**-32)) * np.cos(2.0 * np.pi * 2.0**-32 * turns)
    with np.errstate(over="ignore"):
        found = [random.gaussian(np.uint32(a), np.uint32(b)) for a, b in zip(first, turns, strict=True)]
    error = np.abs(np.array(found, np.float64) - exact)
    # At quarters of a turn the CPU's cosine, of a rounded angle, is 2e-16 where it should be 0.
    assert (error <= 3 * np.spacing(np.abs(exact).astype(np.float32)) + 4e-15).all()
    assert all(type(x) is np.float32 for x in found)


def test_nothing_is_launched_for_nothing():
    from autoq.kernels.cuda import launch

    before = launch.launches
    empty = np.zeros((0, 3), np.float32)
    random.uniform(DRAW, empty)
    random.normal(DRAW, empty)
    random.random_words(DRAW, np.zeros(0, np.uint32))
    assert launch.launches == before
