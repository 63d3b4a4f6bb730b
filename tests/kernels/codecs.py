"""Codecs and inputs that the tests of the kernels share."""

from __future__ import annotations

import numpy as np

from autoq.schemes import QuantScheme, scheme
from autoq.storage.plan import codec_of

# One codec for every branch of the kernels: width, kind of element, scale format, rule and policy.
SCHEMES = {
    "mxfp8": scheme("mxfp8"),
    "mxfp8_e5m2 even, saturating": scheme("mxfp8_e5m2").replace(scale_rule="even", nonfinite="saturate"),
    "mxfp6 floor": scheme("mxfp6_e2m3").replace(scale_rule="floor"),
    "mxint8 ceil": scheme("mxint8").replace(scale_rule="ceil"),
    "nvfp4": scheme("nvfp4"),
    "nvfp4 torchao": scheme("nvfp4").replace(scale_rule="torchao"),
    "nvfp4 four over six": scheme("nvfp4").replace(scale_rule="four_over_six"),
    "int4 f16": QuantScheme("int4", (20,), "f16"),
    "int2 bf16 mean": QuantScheme("int2", (20,), "bf16", scale_rule="nearest", calibration="abs_mean"),
    "int8 stochastic": QuantScheme("int8", (32,), "f32", rounding="stochastic", nonfinite="saturate"),
    "fp8 stochastic": QuantScheme("e4m3", (32,), "ue4m3", rounding="stochastic8"),
}
CODECS = {name: codec_of(value) for name, value in SCHEMES.items()}


def block_of(name: str) -> int:
    """Values a block of a scheme above."""
    return SCHEMES[name].block[-1]


def edge_lines(n: int, seed: int = 0, finite: bool = False) -> np.ndarray:
    """float32 (13, n): powers, ties, subnormals, ends of the range, both zeros, NaN and infinity."""
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((13, n))
    scale = np.array([1, 2.0**100, 2.0**-100, 2.0**-140, 2.0**-149, 3.4e38, 448, 0, 1, 1, 1, 1, 1])[:, None]
    x = normal.clip(-1, 1) * scale
    x[8] = rng.integers(-12, 13, n) * 0.25
    x[9] *= np.ldexp(1.0, rng.integers(-40, 40, n))
    x[10, ::3] = -0.0
    if not finite:
        x[11, rng.integers(0, n, 2)] = np.nan, np.inf
        x[12] = -np.inf
    return x.astype(np.float32)


def results(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Arrays for the words and scales of ``x``, filled with what must not be left over."""
    codec, block = CODECS[name], block_of(name)
    lines, n = x.shape
    words = np.full((lines, -(-n * codec.element.bits // 32) * 4), 0xAA, np.uint8)
    scales = np.zeros((lines, -(-n // block)), SCHEMES[name].scale_format.stored_dtype)
    return words, scales


def finite_amax(x: np.ndarray) -> float:
    """Largest finite magnitude."""
    return float(np.abs(np.where(np.isfinite(x), x, 0)).max())
