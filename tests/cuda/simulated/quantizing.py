"""Quantizing in the simulator, against the CPU's bytes: values, results filled with what must not stay."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.kernels.cuda.quantize import quantize
from autoq.schemes import QuantScheme
from autoq.storage import convert
from autoq.storage.layout import grid_shape, words_shape
from autoq.storage.plan import codec_of

DRAW = (0x0123456789ABCDEF, 0xFEDCBA9876543210)


def values(shape: tuple[int, ...], seed: int = 0, finite: bool = True) -> np.ndarray:
    """float32 of many magnitudes, with zeros of both signs, and NaN and infinity where asked for."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.ldexp(1.0, rng.integers(-6, 6, shape))
    flat = x.reshape(-1)
    flat[::7] = -0.0
    if not finite:
        flat[rng.integers(0, flat.size)] = np.nan
        flat[rng.integers(0, flat.size)] = -np.inf
    return x.astype(np.float32)


def on_device(x: Any, s: QuantScheme, draw: Any = None, scales: Any = None) -> tuple[Any, Any, Any]:
    """Words, scales and tensor scale, filled with what must not be left over."""
    given, given_amax = (scales if s.tensor_scale else (scales, None)) if scales is not None else (None, None)
    words = np.full(words_shape(x.shape, s.element_bits), 0xAAAAAAAA, np.uint32)
    grid = grid_shape(x.shape, s.extents(x.ndim))
    stored = np.zeros(grid, s.scale_format.stored_dtype)
    level = np.zeros((), np.float32) if s.tensor_scale else None
    quantize(x, codec_of(s, given is not None), s.block or (), words, stored, level, given, given_amax, draw)
    return words, stored, level


def assert_equal_bytes(x: Any, s: QuantScheme, draw: Any = None, scales: Any = None, cpu: Any = None) -> None:
    words, stored, level = on_device(x, s, draw, scales)
    expected = convert.quantize(x, s, draw=cpu or draw, scales=scales)
    assert stored.tobytes() == expected.scales.tobytes()
    assert words.tobytes() == expected.words.tobytes()
    if level is not None:
        assert level.tobytes() == np.float32(expected.tensor_scale).tobytes()
