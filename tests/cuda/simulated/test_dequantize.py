"""Dequantizing in the simulator equals the CPU bit for bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autoq.errors import DTypeError, ShapeError
from autoq.kernels.codec import Codec, ElementCodec
from autoq.kernels.cuda import launch
from autoq.kernels.cuda.dequantize import dequantize
from autoq.schemes import CATALOG, QuantScheme, scheme
from autoq.storage import convert
from autoq.storage.plan import codec_of

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16)
ODD = {
    "int4 f16 20": QuantScheme("int4", (20,), "f16"),
    "int2 bf16 6": QuantScheme("int2", (6,), "bf16"),
    "e4m3 two axes": QuantScheme("e4m3", (3, 8), "ue4m3"),
    "e2m3 f16 two-level": QuantScheme("e2m3", (16,), "f16", tensor_scale=True),
    "int8 of a line": QuantScheme("int8", (7,)),
}


def edge_values(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """float32 values of all sizes, with zeros of both signs and a block that isn't finite."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * np.ldexp(1.0, rng.integers(-20, 20, shape))).astype(np.float32)
    flat = x.reshape(-1)
    flat[::7], flat[3::11] = 0.0, -0.0
    flat[-1] = np.nan
    return x


def packed(chosen: QuantScheme, x: np.ndarray) -> tuple[Any, ...]:
    words, scales, level = convert.quantize(x, chosen)
    return words, scales, None if level is None else np.array(level, np.float32)


def same(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether both are NaN in the same places and have the same bits elsewhere."""
    bits = f"u{found.dtype.itemsize}"
    nan = np.isnan(wanted.astype(np.float32))
    return bool((np.isnan(found.astype(np.float32)) == nan).all()) and bool(
        (found.view(bits) == wanted.view(bits))[~nan].all()
    )


def check(chosen: QuantScheme, shape: tuple[int, ...], out: np.ndarray | None = None) -> None:
    words, scales, level = packed(chosen, edge_values(shape))
    out = np.full(shape, 77, np.float32) if out is None else out
    dequantize(words, scales, level, codec_of(chosen), chosen.block or (), out)
    with np.errstate(over="ignore"):
        wanted = convert.dequantize(words, scales, None if level is None else level[()], chosen, shape)
        assert same(np.ascontiguousarray(out), wanted.astype(out.dtype))


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_named_schemes(name: str) -> None:
    for shape in [(1, 64), (3, 40)]:
        check(scheme(name), shape)


@pytest.mark.parametrize("name", sorted(ODD))
def test_odd_blocks(name: str) -> None:
    for shape in [(2, 1), (4, 40), (3, 2, 21)]:
        check(ODD[name], shape)


@pytest.mark.parametrize("bits", [1, 3, 5, 7])
def test_widths_that_no_format_has(bits: int) -> None:
    values = tuple(float(code) for code in range(1 << bits))
    element = ElementCodec(
        f"u{bits}", "table", bits, 0, 0, values[-1], 0.0, 1.0, len(values) - 1, False, -1, values
    )
    codes = np.random.default_rng(bits).integers(0, 1 << bits, 96).astype(np.uint8)
    scales = np.array([[127, 126, 128]], np.uint8)
    wanted = codes * np.repeat([1.0, 0.5, 2.0], 32)
    for dtype in FLOATS:
        out = np.zeros((1, 96), dtype)
        dequantize(
            convert.pack(codes, bits)[None], scales, None, Codec(element, "ue8m0", "floor"), (32,), out
        )
        assert same(out[0], wanted.astype(np.float32).astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("name", ["mxfp8", "mxfp6_e3m2", "nvfp4", "int8"])
def test_other_dtypes_are_rounded_from_float32(name: str, dtype: Any) -> None:
    for shape in [(2, 32), (3, 37)]:
        check(scheme(name), shape, np.zeros(shape, dtype))


def test_tiles_of_two_axes() -> None:
    four, three = QuantScheme("e4m3", (4, 8), "ue4m3"), QuantScheme("e2m1", (3, 8), "ue4m3", True, "te")
    for shape in [(4, 32), (6, 32), (2, 8, 32), (2, 6, 32), (2, 6, 40)]:
        check(four, shape)
        for chosen in (three, three.replace(block=(2, 8))):
            check(chosen, shape, np.zeros(shape, ml_dtypes.bfloat16))


def test_other_dtypes_are_refused() -> None:
    chosen = scheme("mxfp8")
    words, scales, _ = packed(chosen, edge_values((2, 64)))
    with pytest.raises(DTypeError, match="float64"):
        dequantize(words, scales, None, codec_of(chosen), chosen.block, np.zeros((2, 64)))


@pytest.mark.parametrize("name", ["mxfp8", "mxfp6_e2m3", "int4"])
def test_results_of_any_strides(name: str) -> None:
    shape = (6, 40)
    check(scheme(name), shape, np.zeros((40, 6), np.float32).T)
    check(scheme(name), shape, np.zeros((6, 80), np.float32)[:, 1::2])
    check(scheme(name), shape, np.zeros((12, 44), ml_dtypes.bfloat16)[::2, 4:])
    check(scheme(name), shape, np.zeros((6, 41), np.float32)[:, 1:])


def test_views_of_words_and_scales() -> None:
    for name in ("mxfp8", "mxfp6_e3m2", "nvfp4_single"):
        chosen, x = scheme(name), edge_values((3, 4, 64))
        words, scales, _ = packed(chosen, x)
        wanted = convert.dequantize(words, scales, None, chosen, x.shape)
        views = [
            (words[1:, ::2], scales[1:, ::2], wanted[1:, ::2]),
            (words.transpose(1, 0, 2), scales.transpose(1, 0, 2), wanted.transpose(1, 0, 2)),
            (words[..., words.shape[-1] // 2 :], scales[..., scales.shape[-1] // 2 :], wanted[..., 32:]),
            *[tuple(np.broadcast_to(a[:1], (2, *a.shape[1:])) for a in (words, scales, wanted))],
        ]
        for w, s, values in views:
            out = np.zeros(values.shape, np.float32)
            dequantize(w, s, None, codec_of(chosen), chosen.block, out)
            assert same(out, np.ascontiguousarray(values))


def test_more_axes_than_a_kernel_walks() -> None:
    chosen, x = scheme("mxfp4"), edge_values((2, 3, 2, 3, 2, 8))
    words, scales, _ = packed(chosen, x)
    out = np.zeros((2, 3, 2, 3, 2, 8), np.float32).transpose(4, 3, 2, 1, 0, 5)
    assert out.shape == x.shape
    dequantize(words, scales, None, codec_of(chosen), chosen.block, out)
    assert same(np.ascontiguousarray(out), convert.dequantize(words, scales, None, chosen, x.shape))


def test_an_array_without_axes_and_one_without_values() -> None:
    chosen = QuantScheme("int8", None)
    words, scales, _ = packed(chosen, np.array(3.0, np.float32))
    out = np.zeros((), np.float32)
    dequantize(words, scales, None, codec_of(chosen), (), out)
    assert out == 3
    words, scales = np.zeros((0, 2), np.uint32), np.zeros((0, 1), np.uint8)
    launched = launch.launches
    dequantize(words, scales, None, codec_of(scheme("mxfp8")), (32,), np.zeros((0, 8), np.float32))
    assert launch.launches == launched


def test_what_does_not_fit_is_refused() -> None:
    chosen = scheme("mxfp8")
    words, scales, _ = packed(chosen, edge_values((2, 64)))
    for out in (np.zeros((2, 65), np.float32), np.zeros((3, 64), np.float32), np.zeros((2, 32), np.float32)):
        with pytest.raises(ShapeError, match="dequantize"):
            dequantize(words, scales, None, codec_of(chosen), chosen.block, out)
