"""Dequantizing on the device equals the CPU bit for bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autoq.kernels.cuda import launch
from autoq.kernels.cuda.dequantize import dequantize
from autoq.schemes import CATALOG, QuantScheme, scheme
from autoq.storage import convert
from autoq.storage.plan import codec_of

pytestmark = pytest.mark.gpu

FLOATS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ODD = {
    "int4 f16 20": QuantScheme("int4", (20,), "f16"),
    "int2 bf16 6": QuantScheme("int2", (6,), "bf16"),
    "e4m3 of two axes": QuantScheme("e4m3", (3, 8), "ue4m3"),
    "e2m3 f16 two-level": QuantScheme("e2m3", (16,), "f16", tensor_scale=True),
    "int8 of 7": QuantScheme("int8", (7,)),
    "e4m3 of three axes": QuantScheme("e4m3", (2, 3, 8), "ue8m0"),
}
SCHEMES = {name: scheme(name) for name in sorted(CATALOG)} | ODD
SHAPES = [(1, 32), (5, 64), (3, 40), (257, 513), (4, 3, 100), (2, 7, 5, 96)]


def edge_values(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """float32 values of all sizes, with zeros of both signs and values that aren't finite."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.ldexp(1.0, rng.integers(-140, 120, (*shape[:-1], 1)))
    x = x.astype(np.float32)
    flat = x.reshape(-1)
    flat[::7], flat[3::11] = 0.0, -0.0
    flat[-1] = np.nan
    return x


def packed(chosen: QuantScheme, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
    words, scales, level = convert.quantize(x, chosen)
    return words, scales, level


def on_device(cupy: Any, words: np.ndarray, scales: np.ndarray, level: Any) -> tuple[Any, Any, Any]:
    held = scales.view(np.uint16) if scales.dtype.name == "bfloat16" else scales
    return cupy.asarray(words), cupy.asarray(held), None if level is None else cupy.asarray(np.array(level))


def same(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether both are NaN in the same places and have the same bits elsewhere."""
    bits = f"u{found.dtype.itemsize}"
    nan = np.isnan(wanted.astype(np.float32))
    return bool((np.isnan(found.astype(np.float32)) == nan).all()) and bool(
        (found.view(bits) == wanted.view(bits))[~nan].all()
    )


def host(array: Any, dtype: Any) -> np.ndarray:
    """A device array of any strides as a contiguous NumPy one."""
    pattern = array.view(f"u{array.dtype.itemsize}")
    return np.ascontiguousarray(pattern.get()).view(dtype)


def decoded(words: Any, scales: Any, level: Any, chosen: QuantScheme, shape: Any, dtype: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        return convert.dequantize(words, scales, level, chosen, shape).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_to_every_float(cupy: Any, name: str, dtype: str) -> None:
    chosen, kind = SCHEMES[name], FLOATS[dtype]
    for seed, shape in enumerate(SHAPES):
        if chosen.block and len(chosen.block) > len(shape):
            continue
        words, scales, level = packed(chosen, edge_values(shape, seed))
        out = cupy.empty(shape, kind)
        launched = launch.launches
        dequantize(*on_device(cupy, words, scales, level), codec_of(chosen), chosen.block or (), out)
        assert launch.launches == launched + 1
        assert same(host(out, kind), decoded(words, scales, level, chosen, shape, kind)), shape


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["mxfp8", "mxfp6_e3m2", "nvfp4", "int4", "fp8_block_2d"])
def test_results_of_any_strides_and_alignments(cupy: Any, name: str, dtype: str) -> None:
    chosen, kind = scheme(name), FLOATS[dtype]
    shape = (70, 136)
    words, scales, level = packed(chosen, edge_values(shape))
    wanted = decoded(words, scales, level, chosen, shape, kind)
    arrays = on_device(cupy, words, scales, level)
    outs = [
        cupy.empty((136, 70), kind).T,
        cupy.empty((70, 272), kind)[:, 1::2],
        cupy.empty((140, 140), kind)[::2, 4:],
        cupy.empty((70, 137), kind)[:, 1:],
        cupy.empty((70, 136), kind)[::-1],
        cupy.empty((70, 136), kind)[:, ::-1],
        cupy.empty(70 * 136 + 1, kind)[1:].reshape(shape),
        cupy.empty(70 * 136 + 2, kind)[2:].reshape(shape),
    ]
    for out in outs:
        dequantize(*arrays, codec_of(chosen), chosen.block or (), out)
        assert same(host(out, kind), wanted), out.strides


@pytest.mark.parametrize("name", ["mxfp8", "mxfp6_e3m2", "nvfp4", "int8", "mxint8"])
def test_views_of_words_and_scales(cupy: Any, name: str) -> None:
    chosen, shape = scheme(name), (6, 10, 128)
    words, scales, level = packed(chosen, edge_values(shape))
    wanted = decoded(words, scales, level, chosen, shape, np.float32)
    w, s, t = on_device(cupy, words, scales, level)
    half_words, half_scales = words.shape[-1] // 2, scales.shape[-1] // 2
    views = [
        (w[1:, ::2], s[1:, ::2], wanted[1:, ::2]),
        (w.transpose(1, 0, 2), s.transpose(1, 0, 2), wanted.transpose(1, 0, 2)),
        (w[..., half_words:], s[..., half_scales:], wanted[..., 64:]),
        (w[3, 1:], s[3, 1:], wanted[3, 1:]),
        *[(cupy.broadcast_to(w[:1], w.shape), cupy.broadcast_to(s[:1], s.shape), wanted[:1].repeat(6, 0))],
    ]
    for view_words, view_scales, values in views:
        for kind in FLOATS.values():
            out = cupy.empty(values.shape, kind)
            dequantize(view_words, view_scales, t, codec_of(chosen), chosen.block, out)
            with np.errstate(over="ignore"):
                assert same(host(out, kind), np.ascontiguousarray(values).astype(kind))


@pytest.mark.parametrize("bits_of_words", [1, 3])
def test_words_that_are_aligned_to_four_bytes_only(cupy: Any, bits_of_words: int) -> None:
    chosen, shape = scheme("mxfp8"), (8, 64)
    words, scales, _ = packed(chosen, edge_values(shape))
    shifted = cupy.zeros(words.size + bits_of_words, np.uint32)[bits_of_words:].reshape(words.shape)
    shifted[...] = cupy.asarray(words)
    for kind in FLOATS.values():
        out = cupy.empty(shape, kind)
        dequantize(shifted, cupy.asarray(scales), None, codec_of(chosen), chosen.block, out)
        assert same(host(out, kind), decoded(words, scales, None, chosen, shape, kind))


def test_more_axes_than_a_kernel_walks(cupy: Any) -> None:
    chosen, shape = scheme("mxfp4"), (2, 3, 2, 3, 2, 40)
    words, scales, _ = packed(chosen, edge_values(shape))
    out = cupy.empty(shape, np.float32).transpose(4, 3, 2, 1, 0, 5)
    dequantize(cupy.asarray(words), cupy.asarray(scales), None, codec_of(chosen), chosen.block, out)
    assert same(host(out, np.float32), decoded(words, scales, None, chosen, shape, np.float32))


def test_no_axes_and_no_values(cupy: Any) -> None:
    chosen = QuantScheme("int8", None)
    words, scales, _ = packed(chosen, np.array(3.0, np.float32))
    out = cupy.zeros((), np.float32)
    dequantize(cupy.asarray(words), cupy.asarray(scales), None, codec_of(chosen), (), out)
    assert float(out) == 3
    launched = launch.launches
    empty = cupy.zeros((0, 2), np.uint32), cupy.zeros((0, 1), np.uint8)
    dequantize(*empty, None, codec_of(scheme("mxfp8")), (32,), cupy.zeros((0, 8), np.float32))
    assert launch.launches == launched


@pytest.mark.slow
def test_more_than_two_to_the_thirty_one_values(cupy: Any) -> None:
    chosen = scheme("mxfp4")
    lines, n = (1 << 31) // (1 << 20) + 3, 1 << 20
    if cupy.cuda.runtime.memGetInfo()[0] < 3 * lines * n:
        pytest.skip("the device has less than 6.5 GB free")
    tail_words, tail_scales, _ = packed(chosen, edge_values((1, n)))
    words = cupy.zeros((lines, n // 8), np.uint32)
    scales = cupy.zeros((lines, n // 32), np.uint8)
    words[-1], scales[-1] = cupy.asarray(tail_words[0]), cupy.asarray(tail_scales[0])
    out = cupy.full((lines, n), 7, np.float16)
    dequantize(words, scales, None, codec_of(chosen), chosen.block, out)
    wanted = decoded(tail_words, tail_scales, None, chosen, (1, n), np.float16)
    assert same(host(out[-1:], np.float16), wanted)
    assert not bool(out[:-1].any())
    del words, scales, out
    cupy.get_default_memory_pool().free_all_blocks()


def test_the_current_stream_is_used(cupy: Any) -> None:
    chosen = scheme("mxfp8")
    words, scales, _ = packed(chosen, edge_values((64, 64)))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        out = cupy.empty((64, 64), np.float32)
        dequantize(cupy.asarray(words), cupy.asarray(scales), None, codec_of(chosen), chosen.block, out)
    stream.synchronize()
    assert same(host(out, np.float32), decoded(words, scales, None, chosen, (64, 64), np.float32))
