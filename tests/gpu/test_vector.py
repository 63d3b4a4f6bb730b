"""The vector product on the device against float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda import vector
from autoq.kernels.cuda.vector_kernels import Shape
from autoq.ops.on_device.products import operand, turned
from autoq.storage import QTensor

NAMES = ["nvfp4", "nvfp4_single", "mxfp4", "mxfp8", "int8", "int4", "int8_full", "int4_full", "fp8_block"]
FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16]


def weight(cupy: Any, name: str, n: int, k: int) -> QTensor:
    rng = np.random.default_rng(n + k)
    x = rng.standard_normal((n, k)) * np.exp(2 * rng.standard_normal((n, 1)))
    return QTensor.quantize(cupy.asarray(x.astype(np.float32)), aq.scheme(name))


def vectors(cupy: Any, rows: int, k: int, dtype: Any) -> Any:
    return cupy.asarray(np.random.default_rng(rows).standard_normal((rows, k)).astype(np.float32)).astype(
        dtype
    )


def check(cupy: Any, q: QTensor, x: Any, shape: Shape | None = None) -> None:
    out = cupy.full((*x.shape[:-1], q.shape[0]), 7, np.float32)
    assert vector.multiply(x, operand(turned(q)), out, shape)
    values, exact = q.dequantize().get().astype(np.float64), x.get().astype(np.float64)
    size = np.abs(exact) @ np.abs(values).T
    assert (np.abs(out.get() - exact @ values.T) <= (1e-6 + q.shape[1] / 16 * 2.0**-22) * size).all()


@pytest.mark.parametrize(
    ("name", "dtype", "rows"),
    [
        *[(name, np.float32, 1) for name in NAMES],
        *[("nvfp4", dtype, rows) for dtype in FLOATS for rows in (2, 8)],
        ("nvfp4", np.float32, 3),
        ("mxfp8", ml_dtypes.bfloat16, 8),
        ("int4", np.float16, 4),
    ],
)
def test_sizes(cupy: Any, name: str, dtype: Any, rows: int) -> None:
    for n, k in ((64, 256), (1, 128), (100, 1152), (1000, 8192)):
        check(cupy, weight(cupy, name, n, k), vectors(cupy, rows, k, dtype))


@pytest.mark.parametrize("k", [32, 64, 96, 160, 992, 9216, 16384 + 32])
@pytest.mark.parametrize("name", ["nvfp4", "mxfp8", "int4"])
def test_lengths_that_are_no_whole_chunks_or_passes(cupy: Any, name: str, k: int) -> None:
    for rows in (1, 8):
        check(cupy, weight(cupy, name, 48, k), vectors(cupy, rows, k, np.float32))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *[("nvfp4", shape) for shape in [(1, 1), (2, 8), (8, 4), (1, 16), (3, 8)]],
        *[("nvfp4", shape) for shape in [(4, 8, 1), (4, 4, 1), (4, 4, 2), (4, 8, 1, 256)]],
        *[("nvfp4", shape) for shape in [(4, 4, 2, 128), (4, 4, 2, 256)]],
        *[("mxfp8", shape) for shape in [(1, 2), (4, 4), (4, 4, 2), (4, 4, 2, 128), (4, 8, 0, 128)]],
        *[("int8", shape) for shape in [(2, 1), (2, 4), (4, 4, 1)]],
        *[("int4", shape) for shape in [(2, 4), (4, 4, 1)]],
    ],
)
def test_every_way_to_divide_the_work(cupy: Any, name: str, shape: tuple[int, ...]) -> None:
    for k in (2080, 8192 + 1056):
        check(cupy, weight(cupy, name, 333, k), vectors(cupy, 1, k, np.float32), Shape(*shape))


def test_warps_that_share_a_row_with_several_rows(cupy: Any) -> None:
    for rows, k in ((2, 4096), (3, 8192 + 96), (8, 32)):
        check(cupy, weight(cupy, "nvfp4", 70, k), vectors(cupy, rows, k, np.float32), Shape(4, 4, 1, 256))


def test_views(cupy: Any) -> None:
    q, x = weight(cupy, "nvfp4", 96, 512), vectors(cupy, 2, 1024, np.float32)
    check(cupy, q[32:], x[:, 512:])
    check(cupy, q[:, 256:], x[:, :512:2])
    check(cupy, q, x[:, 1:513])
    check(cupy, q, x.reshape(2, 1, 2, 512)[:, :, 1])


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4", "mxfp8", "int8", "fp8_block"])
def test_nan_stays_in_its_row(cupy: Any, name: str) -> None:
    values = np.ones((40, 256), np.float32)
    values[17, 200] = np.nan
    q = QTensor.quantize(cupy.asarray(values), aq.scheme(name))
    out = cupy.zeros((3, 40), np.float32)
    assert vector.multiply(cupy.zeros((3, 256), np.float32), operand(turned(q)), out)
    bad = np.isnan(out.get())
    assert bad[:, 17].all()
    assert bad.sum() == 3


def test_results_are_the_same_every_time(cupy: Any) -> None:
    q, x = weight(cupy, "nvfp4", 4096, 4096), vectors(cupy, 1, 4096, np.float32)
    first = None
    for _ in range(20):
        out = cupy.zeros((1, 4096), np.float32)
        assert vector.multiply(x, operand(turned(q)), out)
        first = out.get() if first is None else first
        assert (out.get() == first).all()


@pytest.mark.parametrize("name", ["nvfp4", "int8"])
def test_linear_layers_use_it(cupy: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    multiply = vector.product
    monkeypatch.setattr(vector, "product", lambda *args: calls.append(multiply(*args)) or calls[-1])
    x, q = (
        aq.tensor(vectors(cupy, 4, 512, np.float32)),
        aq.quantize(aq.tensor(vectors(cupy, 64, 512, np.float32)), name),
    )
    y = aq.linear(x, q, out_dtype=aq.float32)
    assert [call is not None for call in calls] == [True]
    assert np.allclose(y.numpy(), x.numpy() @ q.qtensor.dequantize().get().T, atol=1e-3)
