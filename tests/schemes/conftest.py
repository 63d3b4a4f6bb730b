"""Inputs at the edges of float32 and of the formats, and when two results are the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autoq.testing.codecs import Oracle, Storage

SMALL = (-149, -148, -140, -128, -127, -126, -125, -120, -90, -60, -20, -10, -3, -1)
EXPONENTS = (*SMALL, 0, 1, 2, 5, 20, 60, 100, 120, 125, 126, 127)
FRACTIONS = (1, 1.25, 1.5, 1.75, 1.875, 1.9375, 1 + 2**-23, 2 - 2**-23, 1.5 + 2**-23, 1.75 + 2**-22)
FLOAT_MAX = float(np.finfo(np.float32).max)
NONFINITE = np.array([np.nan, np.inf, -np.inf], np.float32)


def edges(rng: np.random.Generator, shape: tuple[int, ...], finite: bool = False) -> np.ndarray:
    """float32 lines around one edge magnitude each: ties, neighbours of ties, zeros, a few non-finite."""
    exponents = rng.choice(EXPONENTS, (*shape[:-1], 1)) - rng.integers(0, 14, shape) * (
        rng.random(shape) < 0.7
    )
    fractions = np.where(rng.random(shape) < 0.5, rng.choice(FRACTIONS, shape), 1 + rng.random(shape))
    x = np.clip(np.ldexp(fractions, np.maximum(exponents, -149)), 0, FLOAT_MAX).astype(np.float32)
    x[rng.random(shape) < 0.1] = 0
    x[rng.random(shape[:-1]) < 0.1] = 0
    x *= rng.choice(np.array([-1, 1], np.float32), shape)
    if not finite:
        lost = rng.random(shape) < 0.02
        x[lost] = rng.choice(NONFINITE, lost.sum())
    return x


def assert_same(scheme, x, draw=None, scales=None):
    """Storage writes the oracle's bytes for ``x``, and reads them as the oracle does."""
    ours = Storage.quantize(x, scheme, draw=draw, scales=scales)
    expected = Oracle.quantize(x, scheme, draw=draw, scales=scales)
    np.testing.assert_array_equal(ours.codes, expected.codes)
    assert ours.scales.dtype == expected.scales.dtype
    assert ours.scales.shape == expected.scales.shape
    # Bytes, so that one NaN is the other.
    assert ours.scales.tobytes() == expected.scales.tobytes()
    assert (ours.tensor_scale is None) == (expected.tensor_scale is None)
    assert np.array_equal(np.float32(ours.tensor_scale or 0), np.float32(expected.tensor_scale or 0))
    values = Storage.dequantize(*expected, scheme)
    decoded = Oracle.dequantize(*expected, scheme)
    np.testing.assert_array_equal(values, decoded)
    np.testing.assert_array_equal(np.signbit(values) & (values == 0), np.signbit(decoded) & (decoded == 0))


@pytest.fixture(name="edges", scope="session")
def edges_fixture() -> Callable[..., np.ndarray]:
    return edges


@pytest.fixture(name="assert_same", scope="session")
def assert_same_fixture() -> Callable[..., None]:
    return assert_same
