"""The device's quantizer in the simulator, against the CPU's bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoq.kernels.cuda.quantize import quantize
from autoq.schemes import CATALOG, QuantScheme, scheme
from autoq.storage import convert
from autoq.storage.layout import grid_shape, words_shape
from autoq.storage.plan import codec_of

# Values of a block that has no codes may overflow when they are scaled: NumPy warns, devices do not.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in scalar")

DRAW = (0x0123456789ABCDEF, 0xFEDCBA9876543210)
KEY = np.array([0x89ABCDEF, 0x01234567, 0x76543210, 0xFEDCBA98], np.uint32)


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


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_named_schemes_have_the_bytes_of_the_cpu(name: str) -> None:
    x = values((3, 40))
    assert_equal_bytes(x, scheme(name))


CHOICES = {
    "saturating": scheme("mxfp8").replace(nonfinite="saturate"),
    "saturating e5m2": scheme("mxfp8_e5m2").replace(nonfinite="saturate", scale_rule="even"),
    "floor": scheme("mxfp6_e2m3").replace(scale_rule="floor"),
    "torchao": scheme("nvfp4").replace(scale_rule="torchao"),
    "four over six": scheme("nvfp4").replace(scale_rule="four_over_six"),
    "four over six, drawn": scheme("nvfp4").replace(scale_rule="four_over_six", rounding="stochastic"),
    "f16 scales": QuantScheme("int4", (20,), "f16"),
    "mean": QuantScheme("int2", (20,), "bf16", scale_rule="nearest", calibration="abs_mean"),
    "mean, saturating": QuantScheme("int8", (8,), "f32", nonfinite="saturate", calibration="abs_mean"),
    "mean of the tensor": QuantScheme("int8", None, "f32", calibration="abs_mean"),
    "saturating tensor": QuantScheme("e4m3", None, "f32", nonfinite="saturate"),
    "stochastic": QuantScheme("int8", (32,), "f32", rounding="stochastic", nonfinite="saturate"),
    "stochastic8": QuantScheme("e4m3", (32,), "ue4m3", rounding="stochastic8"),
    "stochastic nvfp4": scheme("nvfp4").replace(rounding="stochastic"),
    "two levels of f16": QuantScheme("int8", (16,), "f16", tensor_scale=True),
    "a block a value": QuantScheme("e2m3", (1,), "bf16"),
    "blocks across lines": QuantScheme("e3m2", (4, 1), "ue8m0"),
    "tiles": QuantScheme("e2m1", (2, 6), "ue4m3"),
    "long blocks": QuantScheme("int8", (100,), "f16"),
}


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("finite", [True, False])
def test_rules_roundings_and_policies_have_the_bytes_of_the_cpu(name: str, finite: bool) -> None:
    s = CHOICES[name]
    assert_equal_bytes(values((5, 41), finite=finite), s, DRAW if s.rounding != "nearest" else None)
