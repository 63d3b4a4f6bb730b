"""The ways of spreading quantizing over threads, in the simulator: by lanes, by tiles, by columns."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (NumPy learns of bfloat16)
import numpy as np
import pytest

from autoq.kernels.cuda import quantize as quantizing
from autoq.kernels.cuda.quantize import lanes_plan, plan_of
from autoq.kernels.cuda.quantize_axes import Axis
from autoq.kernels.cuda.quantize_lanes import Lanes
from autoq.schemes import QuantScheme, scheme
from autoq.storage.plan import codec_of

from .quantizing import DRAW, assert_equal_bytes, values

# Values of a block that has no codes may overflow when they are scaled: NumPy warns, devices do not.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in scalar")

LANES = {
    **{name: scheme(name) for name in ("mxfp8", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8")},
    **{name: scheme(name) for name in ("nvfp4", "nvfp4_single", "int8", "int4", "int2", "fp8_block")},
    "floor": scheme("mxfp4").replace(scale_rule="floor"),
    "even": scheme("mxfp6_e2m3").replace(scale_rule="even"),
    "ceil": scheme("mxfp8").replace(scale_rule="ceil"),
    "torchao": scheme("nvfp4").replace(scale_rule="torchao"),
    "saturating": scheme("mxfp8").replace(nonfinite="saturate"),
    "saturating e2m1": scheme("mxfp4").replace(nonfinite="saturate"),
    "stochastic": scheme("nvfp4").replace(rounding="stochastic"),
    "stochastic8": scheme("mxfp8").replace(rounding="stochastic8"),
    "stochastic e3m2": scheme("mxfp6_e3m2").replace(rounding="stochastic"),
    "stochastic saturating": scheme("mxfp4").replace(rounding="stochastic", nonfinite="saturate"),
    "fp8_e4m3": scheme("fp8_e4m3"),
    "int8 of the tensor": QuantScheme("int8", None),
    "saturating tensor": QuantScheme("e4m3", None, nonfinite="saturate"),
    "stochastic tensor": QuantScheme("int4", None, "f16", rounding="stochastic"),
    "mean of the tensor": QuantScheme("int8", None, calibration="abs_mean"),
    "mean of the tensor, e2m1": QuantScheme("e2m1", None, "f32", calibration="abs_mean"),
    "a wide block": QuantScheme("e2m1", (64,), "ue8m0"),
    "a narrow block": QuantScheme("e2m1", (8,), "f16"),
}


def lane_values(s: QuantScheme) -> np.ndarray:
    """Blocks of usual values, of zeros, ties, ends of the range, NaN and infinity."""
    if s.block is None:
        return values((7, 64), finite=s.nonfinite != "saturate")
    n = max(s.block[-1] * 2, 64)
    x = values((7, n), seed=3)
    x[1] = 0.0
    x[2] = np.random.default_rng(1).integers(-28, 29, n) * 0.25
    x[3] *= np.float32(2.0**-130)
    x[4, : n // 2] = 3.4e38
    x[5, 3], x[6, n - 1] = np.nan, -np.inf
    return x


HALVES = ("mxfp8", "mxfp6_e3m2", "nvfp4", "int8", "saturating", "stochastic")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, "float32") for name in LANES] + [(name, d) for name in HALVES for d in ("float16", "bfloat16")],
)
def test_lanes_have_the_bytes_of_the_cpu(name: str, dtype: str) -> None:
    s = LANES[name]
    with np.errstate(over="ignore"):
        x = lane_values(s).astype(dtype)
    assert plan_of(x, codec_of(s), s.block or (), True, False).by_words
    assert_equal_bytes(x, s, DRAW if s.rounding != "nearest" else None)


WAYS = {
    "mxfp8": [Lanes(4), Lanes(8, 2), Lanes(16, 4, True)],
    "mxfp6_e3m2": [Lanes(4, 2), Lanes(16)],
    "nvfp4": [Lanes(4, 1, True), Lanes(8, 4), Lanes(16)],
    "int2": [Lanes(4), Lanes(8), Lanes(16)],
}


@pytest.mark.parametrize(("name", "lanes"), [(name, lanes) for name in WAYS for lanes in WAYS[name]])
@pytest.mark.parametrize("waves", [0, 1])
def test_every_way_of_spreading_gives_the_same_bytes(
    name: str, lanes: Lanes, waves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One wave is two thread blocks of the simulator, which then take several turns."""
    s, used = scheme(name), []

    def plan(x: Any, codec: Any, extents: Any, aligned: bool, keyed: bool) -> Any:
        used.append(lanes_plan(codec, "float32", Axis(x.size, 1, extents[0]), lanes, keyed, waves))
        return used[-1]

    monkeypatch.setattr(quantizing, "plan_of", plan)
    assert_equal_bytes(values((3, 160)), s)
    assert len(used) == 1


def kernel_of(x: Any, s: QuantScheme) -> str:
    plan = plan_of(x, codec_of(s), s.block or (), True, False)
    return "" if plan is None else plan.kernel.source.name


TILES = {
    "lines cut off": ("mxfp8", (3, 2, 44), None),
    "short lines": ("nvfp4", (5, 24), None),
    "lines of six bits": ("mxfp6_e2m3", (3, 80), None),
    "lines apart": ("nvfp4", (6, 96), lambda x: x[::2, :48]),
    "long lines": ("mxfp4", (2, 1064), None),
    "tiles": ("nvfp4_2d", (40, 48), None),
    "tiles cut off": ("mxfp8_2d", (2, 33, 80), None),
    "small tiles": ("a tile", (9, 24), None),
    "tiles apart": ("mxfp8_2d", (3, 36, 128), lambda x: x[::2, :, 64:]),
    "drawn tiles": ("drawn", (17, 32), None),
    "saturating tiles": ("saturating", (40, 48), None),
}
TILE_SCHEMES = {
    "a tile": QuantScheme("e2m1", (4, 8), "ue8m0"),
    "drawn": scheme("nvfp4_2d").replace(rounding="stochastic"),
    "saturating": scheme("mxfp8_2d").replace(nonfinite="saturate"),
}


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("finite", [True, False])
def test_tiles_and_lines_cut_off_have_the_bytes_of_the_cpu(name: str, dtype: str, finite: bool) -> None:
    scheme_name, shape, view = TILES[name]
    s = TILE_SCHEMES.get(scheme_name) or scheme(scheme_name)
    x = values(shape, finite=finite).astype(dtype)
    x = x if view is None else view(x)
    if x.shape[-1] % 8 == 0 or dtype == "float32":
        assert kernel_of(x, s) == "tiles_kernel"
    assert_equal_bytes(x, s, DRAW if s.rounding != "nearest" else None)


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4", "mxfp6_e3m2", "int8", "drawn"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("finite", [True, False])
def test_blocks_across_memory_have_the_bytes_of_the_cpu(name: str, dtype: str, finite: bool) -> None:
    s = scheme("mxfp8").replace(rounding="stochastic8") if name == "drawn" else scheme(name)
    for shape in ((2, 80, 37), (32, 5), (16, 70)):
        x = values(shape, finite=finite).astype(dtype).swapaxes(-1, -2)
        assert kernel_of(x, s) == "columns_kernel"
        assert_equal_bytes(x, s, DRAW if s.rounding != "nearest" else None)
