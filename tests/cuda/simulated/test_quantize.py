"""The device's quantizer in the simulator, against the CPU's bytes."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (NumPy learns of bfloat16)
import numpy as np
import pytest

from autoq.errors import ArgumentError, ShapeError
from autoq.kernels.cuda import quantize as quantizing
from autoq.kernels.cuda.measure import amax, first_nonfinite
from autoq.kernels.cuda.quantize import lanes_plan, plan_of, quantize
from autoq.kernels.cuda.quantize_axes import Axis
from autoq.kernels.cuda.quantize_lanes import Lanes
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
    assert_equal_bytes(values((3, 40)), scheme(name))


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


GIVEN = {
    "mxfp8": scheme("mxfp8"),
    "int4 f16": QuantScheme("int4", (20,), "f16"),
    "nvfp4": scheme("nvfp4"),
    "torchao": scheme("nvfp4").replace(scale_rule="torchao"),
    "tensor": scheme("int8").replace(block=None),
}


@pytest.mark.parametrize("name", GIVEN)
def test_given_scales_have_the_bytes_of_the_cpu(name: str) -> None:
    s, x = GIVEN[name], values((2, 64), finite=False)
    grid = grid_shape(x.shape, s.extents(2))
    given = np.abs(values(grid, seed=1)).astype(np.float32)
    assert_equal_bytes(x, s, scales=(given, 3.5) if s.tensor_scale else given)


@pytest.mark.parametrize("on_device", [False, True])
def test_a_given_magnitude_replaces_the_measured_one(on_device: bool) -> None:
    x, s = values((2, 64)), scheme("nvfp4")
    words, stored, level = np.zeros((2, 8), np.uint32), np.zeros((2, 4), np.uint8), np.zeros((), np.float32)
    given = np.array(9, np.float32) if on_device else np.float32(9)
    quantize(x, codec_of(s), s.block, words, stored, level, given_amax=given)
    expected = convert.encode(x, s, 9.0)
    assert (words.tobytes(), stored.tobytes()) == (expected.words.tobytes(), expected.scales.tobytes())
    assert level.tobytes() == expected.tensor_scale.tobytes()


@pytest.mark.parametrize("block", [(16,), (4, 4)])
def test_a_key_on_the_device_draws_as_its_numbers(block: tuple[int, ...]) -> None:
    s = scheme("nvfp4").replace(rounding="stochastic", block=block)
    assert_equal_bytes(values((4, 32)), s, KEY, cpu=DRAW)


STRIDES = {
    "transposed": lambda x: x.T,
    "every other line": lambda x: x[::2],
    "every other value": lambda x: x[:, ::2],
    "a part": lambda x: x[1:, 3:],
    "one line repeated": lambda x: np.broadcast_to(x[0], (3, 96)),
    "axes in another order": lambda x: x.reshape(4, 2, 6, 8).transpose(2, 0, 3, 1),
    "many axes": lambda x: x[:, :64].reshape((2, 2) + (2,) * 6).transpose(7, 1, 5, 3, 0, 2, 4, 6),
    "no axes": lambda x: x[1, 1],
    "one value a line": lambda x: x[:, :1],
}


@pytest.mark.parametrize("way", STRIDES)
def test_arrays_of_any_strides_have_the_bytes_of_the_cpu(way: str) -> None:
    x = np.asarray(STRIDES[way](values((4, 96))))
    for name in ("mxfp6_e2m3", "fp8_e4m3") if x.ndim else ("fp8_e4m3",):
        assert_equal_bytes(x, scheme(name))


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


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 32)])
def test_an_array_without_values_launches_nothing(shape: tuple[int, ...]) -> None:
    quantize(np.zeros(shape, np.float32), codec_of(scheme("mxfp8")), (32,), None, None)


def test_a_draw_is_asked_for() -> None:
    s = scheme("mxfp8").replace(rounding="stochastic")
    with pytest.raises(ArgumentError, match="without random numbers"):
        quantize(values((32,)), codec_of(s), (32,), None, None)


def test_blocks_of_too_many_axes_are_refused() -> None:
    s = QuantScheme("e4m3", (2,) * 6, "ue8m0")
    with pytest.raises(ShapeError, match="at most 4 axes"):
        on_device(values((3,) * 6), s)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_largest_finite_magnitude_is_measured(dtype: str) -> None:
    x = values((5, 41), finite=False).astype(dtype)
    for part in (x, x.T, x[:, 1::3], x[:4, :40].copy(), x[0, :1], x[:0]):
        finite = part[np.isfinite(part.astype(np.float32))].astype(np.float32)
        assert amax(part) == np.abs(finite).max(initial=0.0)
        assert amax(part).shape == ()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_first_value_that_is_not_finite_is_found(dtype: str) -> None:
    x = values((6, 40)).astype(dtype)
    assert first_nonfinite(x) == -1
    x[4, 7], x[2, 30], x[5, 0] = np.inf, np.nan, -np.inf
    assert first_nonfinite(x) == 110
    assert first_nonfinite(x.T) == 5
    assert first_nonfinite(x[:0]) == -1
