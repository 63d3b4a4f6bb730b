"""Casts between float dtypes keep every number that the result's dtype holds, the smallest too."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.devices import to_host

# Ties, and numbers below the normal ones of float32, which CuPy's casts make 0.
SMALL = np.array([1e-40, -1e-40, 1e-45, 2.0**-126 - 2.0**-149, 3e-39, 1 + 2.0**-11 + 2.0**-40, 6e-8, 1 / 3])
FLOATS = [aq.float64, aq.float32, aq.float16, aq.bfloat16]


def numpy_cast(x, dtype):
    return np.asarray(x).astype(dtype).astype(np.float64)


@pytest.mark.parametrize("target", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("source", FLOATS, ids=lambda d: d.name)
def test_a_cast_is_that_of_numpy(source, target):
    x = SMALL.astype(source)
    for made in (aq.tensor(x).astype(target), aq.tensor(x, dtype=target), aq.tensor(x).dequantize(target)):
        assert made.dtype == target
        np.testing.assert_array_equal(made.numpy().astype(np.float64), numpy_cast(x, target))


@pytest.mark.parametrize("source", FLOATS, ids=lambda d: d.name)
def test_gradients_of_casts_are_cast_likewise(source):
    x = aq.tensor(np.ones(8), dtype=source, requires_grad=True)
    x.astype(aq.float64).backward(aq.tensor(SMALL))
    expected = numpy_cast(SMALL if source == aq.float64 else SMALL.astype(np.float32), source)
    np.testing.assert_array_equal(x.grad.numpy().astype(np.float64), expected)


def test_values_set_are_cast_likewise():
    x = aq.zeros(8)
    x[...] = aq.tensor(SMALL)
    np.testing.assert_array_equal(x.numpy(), SMALL.astype(np.float32))
    x.assign(SMALL[::-1].copy())
    np.testing.assert_array_equal(x.numpy(), SMALL[::-1].astype(np.float32))


@pytest.mark.parametrize("name", ["mxfp8", "int8", "nvfp4"])
def test_float64_is_encoded_as_its_float32(name):
    x = np.tile(SMALL[:5], 32).reshape(2, 80) * np.array([[1.0], [-3.0]])
    q = aq.tensor(x).quantize(name).qtensor
    expected = aq.tensor(x.astype(np.float32)).quantize(name).qtensor
    host = aq.QTensor.quantize(x, aq.scheme(name))
    assert q.same_bits(expected)
    assert q.to("cpu").same_bits(host)
    np.testing.assert_array_equal(to_host(q.dequantize(np.float64)), host.dequantize(np.float64))


def test_scales_of_float16_and_bfloat16_are_read_whole():
    for scale in ("f16", "bf16"):
        q = aq.tensor(np.full((1, 32), 1e-38, np.float32)).quantize(aq.int8.replace(scale=scale)).qtensor
        host = q.to("cpu")
        np.testing.assert_array_equal(to_host(q.effective_scales()), host.effective_scales())
