"""Views in the simulator: a value off, turned around, transposed, repeated; bytes are the CPU's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autoq.kernels.cuda.dequantize import dequantize
from autoq.kernels.cuda.measure import amax, first_nonfinite
from autoq.kernels.cuda.quantize import quantize
from autoq.schemes import scheme
from autoq.storage import convert
from autoq.storage.layout import grid_shape, words_shape
from autoq.storage.plan import codec_of

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in scalar")

SHAPE = (2, 3, 33)
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def turned(dtype: Any) -> np.ndarray:
    return np.empty(SHAPE, dtype)[::-1, :, ::-1]


def repeated(dtype: Any) -> np.ndarray:
    view = np.broadcast_to(np.empty((2, 1, 33), dtype), SHAPE)
    view.flags.writeable = True
    return view


VIEWS = {
    "a value off": lambda dtype: np.empty(199, dtype)[1:].reshape(SHAPE),
    "three values off": lambda dtype: np.empty(201, dtype)[3:].reshape(SHAPE),
    "turned": turned,
    "transposed": lambda dtype: np.empty((33, 2, 3), dtype).transpose(1, 2, 0),
    "steps": lambda dtype: np.empty((4, 3, 67), dtype)[::2, :, 1::2],
    "a part": lambda dtype: np.empty((2, 4, 40), dtype)[:, 1:, 5:38],
}


def filled(view: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(view.shape) * np.ldexp(1.0, rng.integers(-8, 8, view.shape))
    values[0, 1, 7], values[1, 2, 0] = np.nan, -np.inf
    with np.errstate(over="ignore"):
        view[...] = values.astype(np.float32).astype(view.dtype)
    return view


def view_of(kind: str, dtype: str) -> np.ndarray:
    return filled(repeated(DTYPES[dtype]) if kind == "repeated" else VIEWS[kind](DTYPES[dtype]))


@pytest.mark.parametrize(("kind", "dtype"), list(zip([*VIEWS, "repeated"], [*DTYPES] * 3, strict=False)))
@pytest.mark.parametrize("name", ["mxfp8", "mxfp6_e3m2", "nvfp4", "int4", "fp8_e4m3"])
def test_quantized_views(name: str, kind: str, dtype: str) -> None:
    x, s = view_of(kind, dtype), scheme(name)
    words = np.full(words_shape(SHAPE, s.element_bits), 0xAAAAAAAA, np.uint32)
    scales = np.zeros(grid_shape(SHAPE, s.extents(3)), s.scale_format.stored_dtype)
    level = np.zeros((), np.float32) if s.tensor_scale else None
    quantize(x, codec_of(s, False), s.block or (), words, scales, level)
    expected = convert.quantize(np.ascontiguousarray(x), s)
    assert words.tobytes() == expected.words.tobytes()
    assert scales.tobytes() == expected.scales.tobytes()


@pytest.mark.parametrize(("kind", "dtype"), list(zip(VIEWS, [*DTYPES] * 2, strict=True)))
@pytest.mark.parametrize("name", ["mxfp8", "mxfp6_e3m2", "nvfp4"])
def test_views_that_are_decoded_into(name: str, kind: str, dtype: str) -> None:
    out, s = view_of(kind, dtype), scheme(name)
    words, scales, level = convert.quantize(
        np.nan_to_num(view_of("a part", "float32"), posinf=1, neginf=1), s
    )
    dequantize(words, scales, None if level is None else np.array(level), codec_of(s, False), s.block, out)
    with np.errstate(over="ignore"):
        expected = convert.dequantize(words, scales, level, s, SHAPE).astype(out.dtype)
    assert np.ascontiguousarray(out).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("kind", [*VIEWS, "repeated"])
def test_measured_views(kind: str, dtype: str) -> None:
    x = view_of(kind, dtype)
    wide = x.astype(np.float32)
    assert amax(x) == np.abs(wide[np.isfinite(wide)]).max()
    assert first_nonfinite(x) == np.flatnonzero(~np.isfinite(wide).reshape(-1))[0]
