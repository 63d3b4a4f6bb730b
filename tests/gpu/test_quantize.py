"""Quantizing on the device equals the CPU bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autoq.kernels.cuda import launch
from autoq.kernels.cuda.measure import amax, first_nonfinite
from autoq.kernels.cuda.quantize import quantize
from autoq.schemes import CATALOG, QuantScheme, scheme
from autoq.storage import convert
from autoq.storage.layout import grid_shape, words_shape
from autoq.storage.plan import codec_of

pytestmark = pytest.mark.gpu

FLOATS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
DRAW = (0x0123456789ABCDEF, 0xFEDCBA9876543210)
KEY = np.array([0x89ABCDEF, 0x01234567, 0x76543210, 0xFEDCBA98], np.uint32)
NVFP4 = scheme("nvfp4")
CHOICES = {
    **{f"mxfp8 {rule}": scheme("mxfp8").replace(scale_rule=rule) for rule in ("floor", "ceil", "even")},
    **{f"mxfp4 {rule}": scheme("mxfp4").replace(scale_rule=rule) for rule in ("floor", "ceil", "even")},
    **{f"nvfp4 {rule}": NVFP4.replace(scale_rule=rule) for rule in ("torchao", "four_over_six", "round_up")},
    "nvfp4 stochastic": NVFP4.replace(rounding="stochastic"),
    "nvfp4 four_over_six stochastic": NVFP4.replace(scale_rule="four_over_six", rounding="stochastic"),
    "mxfp8 stochastic": scheme("mxfp8").replace(rounding="stochastic"),
    "mxfp6 stochastic8": scheme("mxfp6_e3m2").replace(rounding="stochastic8"),
    "int8 stochastic": scheme("int8").replace(rounding="stochastic"),
    "mxfp8 saturate": scheme("mxfp8").replace(nonfinite="saturate"),
    "mxfp4 saturate": scheme("mxfp4").replace(nonfinite="saturate"),
    "mxfp8_e5m2 saturate": scheme("mxfp8_e5m2").replace(nonfinite="saturate"),
    "fp8 tensor saturate": scheme("fp8_e4m3").replace(nonfinite="saturate"),
    "int2 bf16 mean": QuantScheme("int2", (20,), "bf16", scale_rule="nearest", calibration="abs_mean"),
    "int8 tensor mean": QuantScheme("int8", None, "f32", calibration="abs_mean"),
    "int4 f16 20": QuantScheme("int4", (20,), "f16"),
    "e2m3 f16 two-level": QuantScheme("e2m3", (16,), "f16", tensor_scale=True),
    "e4m3 of three axes": QuantScheme("e4m3", (2, 3, 8), "ue8m0"),
    "int8 of 7": QuantScheme("int8", (7,)),
    "e2m1 of 1": QuantScheme("e2m1", (1,), "bf16"),
    "int8 of 1000": QuantScheme("int8", (1000,)),
    "e3m2 across": QuantScheme("e3m2", (32, 1), "ue8m0"),
}
SCHEMES = {name: scheme(name) for name in sorted(CATALOG)} | CHOICES
SHAPES = [(1, 32), (5, 64), (3, 40), (257, 513), (64, 1024), (4, 3, 100), (2, 7, 5, 96)]


def edge_values(shape: tuple[int, ...], seed: int = 0, finite: bool = False) -> np.ndarray:
    """float32 values of all sizes and ties, zeros of both signs, and NaN and infinity."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.ldexp(1.0, rng.integers(-140, 120, (*shape[:-1], 1)))
    x[..., ::5] = rng.integers(-28, 29, x[..., ::5].shape) * 0.25
    x = x.astype(np.float32)
    flat = x.reshape(-1)
    flat[::7], flat[3::11] = 0.0, -0.0
    flat[: shape[-1]] = 3.4e38
    if not finite:
        flat[-1], flat[flat.size // 2] = np.nan, -np.inf
    return x


def encoded(cupy: Any, x: Any, s: QuantScheme, draw: Any = None, scales: Any = None) -> tuple[bytes, ...]:
    """The bytes of words, scales and tensor scale of a device array."""
    given, given_amax = (scales if s.tensor_scale else (scales, None)) if scales is not None else (None, None)
    words = cupy.full(words_shape(x.shape, s.element_bits), 0xAAAAAAAA, np.uint32)
    stored = s.scale_format.stored_dtype
    held = np.dtype(np.uint16) if stored.name == "bfloat16" else stored
    grid = cupy.empty(grid_shape(x.shape, s.extents(x.ndim)), held)
    level = cupy.empty((), np.float32) if s.tensor_scale else None
    given = None if given is None else cupy.asarray(given)
    codec = codec_of(s, given is not None)
    quantize(x, codec, s.block or (), words, grid, level, given, given_amax, draw)
    results = (words, grid) if level is None else (words, grid, level)
    return tuple(array.get().tobytes() for array in results)


def expected(x: np.ndarray, s: QuantScheme, draw: Any = None, scales: Any = None) -> tuple[bytes, ...]:
    """The bytes of the CPU's."""
    packed = convert.quantize(x, s, draw=draw, scales=scales)
    results = packed[:2] if packed.tensor_scale is None else packed
    return tuple(np.asarray(array).tobytes() for array in results)


def draw_of(s: QuantScheme) -> tuple[int, int] | None:
    return None if s.rounding == "nearest" else DRAW


def to_device(cupy: Any, x: np.ndarray) -> Any:
    """A device array, of bfloat16 too."""
    return cupy.asarray(x.view(np.uint16)).view(x.dtype) if x.dtype.name == "bfloat16" else cupy.asarray(x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_from_every_float(cupy: Any, name: str, dtype: str) -> None:
    s = SCHEMES[name]
    for seed, shape in enumerate(SHAPES):
        if s.block and len(s.block) > len(shape):
            continue
        with np.errstate(over="ignore"):
            x = edge_values(shape, seed).astype(FLOATS[dtype])
        assert encoded(cupy, to_device(cupy, x), s, draw_of(s)) == expected(x, s, draw_of(s)), shape


@pytest.mark.parametrize(
    "name", ["mxfp8", "mxfp6_e3m2", "nvfp4", "int4", "fp8_block_2d", "nvfp4_2d", "fp8_e4m3"]
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_arrays_of_any_strides_and_alignments(cupy: Any, name: str, dtype: str) -> None:
    s = scheme(name)
    with np.errstate(over="ignore"):
        x = edge_values((96, 160), finite=True).astype(FLOATS[dtype])
    ways: list[Callable[[Any], Any]] = [
        lambda a: a.T,
        lambda a: a[::2],
        lambda a: a[:, ::2],
        lambda a: a[:, 1:],
        lambda a: a[::-1, ::-1],
        lambda a: a[:, :128],
        lambda a: a.reshape(4, 24, 5, 32).transpose(2, 0, 1, 3),
        lambda a: a.reshape(4, 24, 5, 32).transpose(3, 1, 0, 2),
        lambda a: a.reshape(-1)[4:].reshape(-1, 4),
        lambda a: a.reshape(-1)[1:15329].reshape(2, -1),
    ]
    on_device = to_device(cupy, x)
    for i, way in enumerate(ways):
        assert encoded(cupy, way(on_device), s) == expected(way(x), s), i


@pytest.mark.parametrize("block", [(32,), (7,), (4, 8), (16, 1), None])
def test_a_mean_is_summed_in_one_order_however_the_array_lies(cupy: Any, block: Any) -> None:
    s = scheme("int8").replace(block=block, calibration="abs_mean")
    x = edge_values((96, 160), finite=True)
    ways: list[Callable[[Any], Any]] = [
        lambda a: a,
        lambda a: a.T,
        lambda a: a[:, 1:],
        lambda a: a[::-1, ::-2],
        lambda a: a.reshape(4, 24, 5, 32).transpose(3, 1, 0, 2),
    ]
    on_device = cupy.asarray(x)
    for i, way in enumerate(ways):
        assert encoded(cupy, way(on_device), s) == expected(way(x), s), i
        assert encoded(cupy, cupy.ascontiguousarray(way(on_device)), s) == expected(way(x), s), i


def test_arrays_with_axes_of_stride_0_and_without_axes(cupy: Any) -> None:
    line = edge_values((1, 64))
    repeated = cupy.broadcast_to(cupy.asarray(line), (5, 64))
    assert encoded(cupy, repeated, scheme("mxfp8")) == expected(
        np.broadcast_to(line, (5, 64)), scheme("mxfp8")
    )
    number = np.array(-3.25, np.float32)
    assert encoded(cupy, cupy.asarray(number), scheme("fp8_e4m3")) == expected(number, scheme("fp8_e4m3"))


GIVEN = ("mxfp8", "nvfp4", "nvfp4 torchao", "nvfp4 four_over_six", "int4 f16 20", "fp8_e4m3", "nvfp4_2d")


@pytest.mark.parametrize("name", GIVEN)
def test_given_scales(cupy: Any, name: str) -> None:
    s, x = SCHEMES[name], edge_values((64, 320))
    grid = grid_shape(x.shape, s.extents(2))
    given = np.abs(np.random.default_rng(1).standard_normal(grid)).astype(np.float32)
    given.reshape(-1)[::5] = 0.0
    scales = (given, 3.5) if s.tensor_scale else given
    assert encoded(cupy, cupy.asarray(x), s, scales=scales) == expected(x, s, scales=scales)


@pytest.mark.parametrize("name", [name for name in CHOICES if "stochastic" in name])
def test_a_key_on_the_device_draws_as_its_numbers(cupy: Any, name: str) -> None:
    s, x = CHOICES[name], edge_values((40, 256))
    assert encoded(cupy, cupy.asarray(x), s, cupy.asarray(KEY)) == expected(x, s, DRAW)


def test_a_magnitude_on_the_device_replaces_the_measured_one(cupy: Any) -> None:
    x = edge_values((8, 64), finite=True)
    wanted = convert.encode(x, NVFP4, 9.0)
    for given in (9.0, cupy.asarray(np.array(9.0, np.float32))):
        words, scales = cupy.empty((8, 8), np.uint32), cupy.empty((8, 4), np.uint8)
        level = cupy.empty((), np.float32)
        quantize(cupy.asarray(x), codec_of(NVFP4), (16,), words, scales, level, given_amax=given)
        assert words.get().tobytes() == wanted.words.tobytes()
        assert scales.get().tobytes() == wanted.scales.tobytes()
        assert level.get().tobytes() == wanted.tensor_scale.tobytes()


LAUNCHES = {
    "mxfp8": 1,
    "mxfp6_e2m3": 1,
    "int8 of 7": 1,
    "mxfp8_2d": 1,
    "nvfp4": 2,
    "nvfp4_2d": 2,
    "fp8_e4m3": 2,
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_launches_are_one_and_one_for_the_magnitude_of_the_tensor(cupy: Any, name: str) -> None:
    x, before = cupy.asarray(edge_values((64, 128))), launch.launches
    encoded(cupy, x, SCHEMES[name])
    assert launch.launches == before + LAUNCHES[name]
    before = launch.launches
    quantize(x[:0], codec_of(SCHEMES[name]), (), None, None)
    assert launch.launches == before


@pytest.mark.parametrize("dtype", FLOATS)
def test_measures_of_the_whole_array(cupy: Any, dtype: str) -> None:
    x = edge_values((301, 515), finite=True)
    with np.errstate(over="ignore"):
        x = x.astype(FLOATS[dtype])
    x[~np.isfinite(x.astype(np.float32))] = 1.0
    on_device = to_device(cupy, x)
    for way in (
        lambda a: a,
        lambda a: a.T,
        lambda a: a[1:, 1:],
        lambda a: a[:, ::3],
        lambda a: a[:256, :512],
    ):
        assert float(amax(way(on_device))) == np.abs(way(x).astype(np.float32)).max()
        assert first_nonfinite(way(on_device)) == -1
    x[200, 7], x[101, 300] = np.inf, np.nan
    on_device = to_device(cupy, x)
    assert first_nonfinite(on_device) == 101 * 515 + 300
    assert first_nonfinite(on_device.T) == 7 * 301 + 200
    assert first_nonfinite(on_device[:100]) == -1


def test_an_array_beyond_two_to_the_31_values(cupy: Any) -> None:
    free, _ = cupy.cuda.runtime.memGetInfo()
    size = (1 << 31) + (1 << 20)
    if free < 3 * size:
        pytest.skip("less than 7 GiB of free device memory")
    x = cupy.zeros(size, np.float16)
    tail = edge_values((1, 1 << 20), finite=True).clip(-6e4, 6e4).astype(np.float16).reshape(-1)
    x[-tail.size :] = cupy.asarray(tail)
    words, scales = cupy.empty(size // 8, np.uint32), cupy.empty(size // 32, np.uint8)
    quantize(x, codec_of(scheme("mxfp4")), (32,), words, scales)
    wanted = convert.quantize(tail, scheme("mxfp4"))
    assert words[-tail.size // 8 :].get().tobytes() == wanted.words.tobytes()
    assert scales[-tail.size // 32 :].get().tobytes() == wanted.scales.tobytes()
    assert not words[: -tail.size // 8].any()
