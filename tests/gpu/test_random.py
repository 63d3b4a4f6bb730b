"""Random numbers on the device: the CPU's bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from autoq.kernels.cuda import random
from autoq.random import Draw, Generator, random_words, uniform01

DRAW = Draw(0x0123456789ABCDEF, 0xFEDCBA9876543210)
KEY = np.array([0x89ABCDEF, 0x01234567, 0x76543210, 0xFEDCBA98], np.uint32)
SIZES = [1, 2, 3, 4, 5, 255, 1024, 100_003, 3_000_000]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_words_are_those_of_the_cpu(cupy, n, keyed):
    out = cupy.zeros(n, np.uint32)
    random.random_words(cupy.asarray(KEY) if keyed else DRAW, out, 7)
    assert np.array_equal(out.get(), random_words(DRAW, n, 7))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("n", SIZES)
def test_uniform_numbers_are_those_of_the_cpu(cupy, n, dtype):
    out = cupy.zeros(n, dtype)
    random.uniform(DRAW, out, -1.5, 2.25)
    expected = (np.float32(-1.5) + uniform01(DRAW, n) * np.float32(3.75)).astype(dtype)
    assert out.get().tobytes() == expected.tobytes()


@pytest.mark.parametrize("n", SIZES)
def test_normal_numbers_are_near_those_of_the_cpu(cupy, n):
    out = cupy.zeros(n, np.float32)
    random.normal(Generator(11).draw("normal"), out)
    exact = Generator(11).normal(n, dtype=np.float64)
    error = np.abs(out.get().astype(np.float64) - exact)
    assert (error <= 6 * np.spacing(np.abs(exact).astype(np.float32)) + 4e-15).all()


def test_a_key_on_the_device_is_read_when_the_kernel_runs(cupy):
    key, out = cupy.zeros(4, np.uint32), cupy.zeros(16, np.float32)
    for stream in (1, 2):
        key[2] = stream
        random.uniform(key, out)
        assert np.array_equal(out.get(), uniform01(Draw(0, stream), 16))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_odd_addresses(cupy, dtype):
    whole = cupy.zeros(1001, dtype)
    random.uniform(DRAW, whole[1:], 0.0, 1.0)
    assert np.array_equal(whole[1:].get(), uniform01(DRAW, 1000).astype(dtype))
