"""Casts between float dtypes on the device: the bits of the CPU, numbers below the normal ones among them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import autoq as aq

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
FLOATS = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)
PAIRS = [(source, target) for source in FLOATS for target in FLOATS if source is not target]


def values(dtype):
    """Every bit pattern of a 16-bit dtype; of others numbers of all exponents and ties of narrower ones."""
    if np.dtype(dtype).itemsize == 2:
        return np.arange(1 << 16, dtype=np.uint16).view(dtype)
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    ties = (bits & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    x = np.concatenate([bits, ties, bits >> np.uint32(9)]).view(np.float32).astype(np.float64)
    beside = x * (1 + rng.integers(-1, 2, x.shape) * 2.0**-45)
    return np.concatenate([x, beside, np.array([0.0, -0.0, np.inf, -np.inf, np.nan])]).astype(dtype)


def same_bits(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    nan = np.isnan(b)
    return np.array_equal(np.isnan(a), nan) and np.array_equal(a[~nan].view("u8"), b[~nan].view("u8"))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_cast_is_that_of_the_cpu(source, target):
    x = values(source)
    for given in (x, x[1:-2], x[::-3], x[:1].reshape(()), x[: x.size // 4 * 4].reshape(4, -1).T):
        made = aq.tensor(given, device="cuda").astype(target)
        assert made.dtype == target
        assert same_bits(made.numpy(), given.astype(target))


@pytest.mark.parametrize("target", FLOATS[1:])
def test_a_tensor_is_made_of_an_array_on_the_device_likewise(target, cupy):
    x = values(np.float64)
    assert same_bits(aq.tensor(cupy.asarray(x), dtype=target).numpy(), x.astype(target))


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "int8"])
def test_float64_is_encoded_as_on_the_cpu(name):
    x = values(np.float64)[: 1 << 14].reshape(64, -1) * 1e-3
    found = aq.tensor(x, device="cuda").quantize(name).qtensor
    assert found.to("cpu").same_bits(aq.QTensor.quantize(x, aq.scheme(name)))
    wide = found.dequantize(np.float64)
    assert same_bits(wide.get(), found.to("cpu").dequantize(np.float64))
