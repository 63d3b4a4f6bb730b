"""Matrix products of stored operands as ops and gradient rules on a GPU call them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from autoq.kernels.cuda import blas, matmul, panels
from autoq.ops.on_device import products
from autoq.storage import QTensor
from autoq.tape.op import REGISTRY
from tests.cuda.simulated.operands import stored

FLOAT = np.dtype(np.float32)
RNG = np.random.default_rng(0)


def values(x: object) -> np.ndarray:
    array = x.dequantize() if isinstance(x, QTensor) else x
    return np.asarray(array, np.float64)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(params=["arrays", "pieces", "panels"])
def way(request, monkeypatch):
    """By the array library alone, and as with cuBLAS, whose calls that library then stands for."""
    if request.param == "panels":
        monkeypatch.setattr(panels, "PANEL", 0)
        monkeypatch.setattr(panels, "ROWS", 2)
    if request.param != "arrays":
        as_with_cublas(monkeypatch)


def as_with_cublas(monkeypatch):
    """The array library's product in the place of cuBLAS; returns the shapes of what is written."""
    shapes = []

    def gemm(a, b, out, alpha=1.0, add=False, precision="highest"):
        shapes.append(out.shape)
        blas._by_arrays(a, b, out, alpha, add)

    monkeypatch.setattr(blas, "available", lambda: True)
    monkeypatch.setattr(blas, "gemm", gemm)
    monkeypatch.setattr(matmul, "SPLIT_FROM", 0)
    monkeypatch.setattr(matmul.blas_fp8, "product", lambda *operands, **how: False)
    return shapes


@pytest.mark.parametrize("scheme", [None, "mxfp8", "nvfp4", "int8"])
@pytest.mark.parametrize("shape", [(3, 32), (2, 2, 32), (32,)])
def test_linear(way, scheme, shape):
    x, weight, bias = stored(normal(*shape), scheme), stored(normal(8, 32), scheme), normal(8)
    found = products.linear(REGISTRY["linear"], (x, weight, bias), {}, FLOAT, FLOAT)
    assert found.dtype == np.float32
    assert np.allclose(found, values(x) @ values(weight).T + bias, atol=1e-4)
    double = products.linear(REGISTRY["linear"], (x, weight, None), {}, FLOAT, np.dtype(np.float64))
    assert np.allclose(double, values(x) @ values(weight).T, atol=1e-12)


@pytest.mark.parametrize("scheme", [None, "mxfp8", "nvfp4", "int8"])
def test_gradients_of_linear(way, scheme):
    g, x, weight = normal(3, 8), stored(normal(3, 32), scheme), stored(normal(8, 32), scheme)
    assert np.allclose(products.linear_x(g, weight), g @ values(weight), atol=1e-4)
    assert np.allclose(products.linear_weight(g, x, (3, 32)), g.T @ values(x), atol=1e-4)
    leading = normal(2, 2, 8)
    dense = normal(2, 2, 32)
    found = products.linear_weight(leading, dense, dense.shape)
    assert np.allclose(found, leading.reshape(4, 8).T @ dense.reshape(4, 32), atol=1e-4)


@pytest.mark.parametrize("scheme", [None, "mxfp8", "nvfp4"])
@pytest.mark.parametrize(("a", "b"), [((3, 32), (32, 8)), ((2, 3, 32), (32, 8)), ((2, 3, 32), (2, 32, 8))])
def test_matmul_and_its_gradients(way, scheme, a, b):
    x, y = stored(normal(*a), scheme), stored(normal(*b), scheme)
    found = products.matmul(REGISTRY["matmul"], (x, y), {}, FLOAT, FLOAT)
    assert np.allclose(found, values(x) @ values(y), atol=1e-4)
    g = normal(*found.shape)
    assert np.allclose(products.matmul_a(g, y, a, b), g @ values(y).swapaxes(-1, -2), atol=1e-4)
    by_b = products.matmul_b(g, x, a, b)
    if scheme is not None and len(b) == 2 < len(a):
        assert by_b is NotImplemented
    else:
        summed = values(x).swapaxes(-1, -2) @ g
        assert np.allclose(by_b, summed.sum(axis=0) if len(b) == 2 < len(a) else summed, atol=1e-4)


def parts(monkeypatch, size, rows=2):
    """Large is what has more bytes of pieces than ``size``."""
    monkeypatch.setattr(panels, "PANEL", size)
    monkeypatch.setattr(panels, "ROWS", rows)
    return as_with_cublas(monkeypatch)


def test_pieces_of_large_matrices_are_made_some_rows_at_a_time(monkeypatch):
    shapes = parts(monkeypatch, 1000)
    g, x = normal(7, 32), stored(normal(32, 32), "mxfp8")
    found = matmul.product(g, products.operand(x))
    assert shapes == [(4, 32)] * 3 + [(3, 32)] * 3  # of 192 bytes a row, five fit, and rows come in twos
    assert np.allclose(found, g @ values(x), atol=1e-4)
    start = normal(32)
    assert np.allclose(matmul.product(g, products.operand(x), start=start), g @ values(x) + start, atol=1e-4)
    monkeypatch.setattr(panels, "PANEL", 5 * 192 + 2048)
    shapes.clear()
    matmul.product(g[:5], products.operand(x))
    assert shapes == [(5, 32)] * 3


def test_pieces_of_a_large_second_matrix_are_made_some_columns_at_a_time(monkeypatch):
    shapes = parts(monkeypatch, 1000)
    x, weight, bias = stored(normal(6, 32), "mxfp8"), normal(7, 32), normal(7)
    for start in (None, bias):
        shapes.clear()
        found = matmul.product(products.operand(x), weight.T, start=start)
        assert shapes == [(6, 4)] * 3 + [(6, 3)] * 3
        assert np.allclose(found, values(x) @ weight.T + (0 if start is None else start), atol=1e-4)


@pytest.mark.parametrize("scheme", ["mxfp8", "nvfp4", "fp8_e4m3"])
def test_the_gradient_of_a_large_weight_is_added_up(monkeypatch, scheme):
    shapes = parts(monkeypatch, 300)
    g, x = normal(7, 8), stored(normal(7, 32), scheme)
    found = products.linear_weight(g, x, (7, 32))
    assert shapes == [(8, 32)] * 12  # two of seven rows at a time, one piece of three
    assert np.allclose(found, g.T @ values(x), atol=1e-4)
    assert np.allclose(products.matmul_b(g, x, (7, 32), (32, 8)), values(x).T @ g, atol=1e-4)


def test_a_bfloat16_result_is_rounded_once(monkeypatch):
    shapes = parts(monkeypatch, 300)
    a, b = normal(64, 8).astype(np.float16), stored(normal(64, 32), "mxfp8")
    found = matmul.product(a.T, products.operand(b), "bfloat16", "bf16")
    assert found.dtype.name == "bfloat16"
    assert shapes == [(8, 32)]
    exact = a.astype(found.dtype).astype(np.float64).T @ values(b)
    assert np.array_equal(found, exact.astype(np.float32).astype(found.dtype))


def test_blocks_along_the_summed_axis_are_left_whole(monkeypatch):
    shapes = parts(monkeypatch, 0)
    g, x = normal(32, 8), QTensor.quantize(normal(32, 16), "mxfp8_2d")
    assert np.allclose(products.linear_weight(g, x, (32, 16)), g.T @ values(x), atol=1e-4)
    assert {shape[1] for shape in shapes} == {16}


@pytest.mark.parametrize("scheme", [None, "mxfp8", "nvfp4"])
def test_a_large_product_is_written_over_a_cotangent_that_nothing_else_reads(monkeypatch, scheme):
    parts(monkeypatch, 1000)
    g, weight = normal(7, 64), stored(normal(64, 64), scheme)
    expected = g @ values(weight)
    kept = g.copy()
    assert not np.shares_memory(products.linear_x(kept, weight), kept)
    assert np.array_equal(kept, g)
    found = products.linear_x(g, weight, over=True)
    assert np.shares_memory(found, g)
    assert np.allclose(found, expected, atol=1e-4)


def test_what_would_be_read_after_it_is_written_is_not_written_over(monkeypatch):
    parts(monkeypatch, 1000)
    weight = stored(normal(64, 64), "mxfp8")
    for g in (normal(64, 64).T, normal(7, 128)[:, ::2], normal(64, 64).astype(np.float16)):
        expected = g.astype(np.float64) @ values(weight)
        assert np.allclose(products.linear_x(g, weight, over=True), expected, atol=0.1)
    small = normal(2, 64)
    monkeypatch.setattr(panels, "PANEL", 1 << 20)
    assert not np.shares_memory(products.linear_x(small, weight, over=True), small)
    wide = normal(7, 64)
    narrow = stored(normal(64, 32), "mxfp8")
    assert products.linear_x(wide, narrow, over=True).shape == (7, 32)


@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize("way", ["panels"], indirect=True)
def test_pieces_of_rows_that_lie_anyhow(way, rows):
    weight, start = stored(normal(32, 8), "mxfp8"), normal(rows, 1)
    for x in (
        normal(32, rows).T,
        normal(2 * rows, 32)[::2],
        normal(rows, 32)[::-1],
        normal(rows, 64)[:, ::2],
    ):
        found = matmul.product(x, products.operand(weight), start=start)
        assert np.allclose(found, x @ values(weight) + start, atol=1e-4)


def test_what_does_not_fit_is_left_to_the_op():
    linear, product = REGISTRY["linear"], REGISTRY["matmul"]
    whole = np.ones((2, 2), np.int64)
    for op, function, operands in (
        (product, products.matmul, (normal(3, 4), normal(3, 4))),
        (product, products.matmul, (whole, whole)),
        (product, products.matmul, (normal(2, 3, 4), normal(5, 4, 2))),
        (linear, products.linear, (normal(3, 4), normal(2, 3), None)),
        (linear, products.linear, (normal(3, 4), normal(2, 4), normal(3))),
    ):
        assert function(op, operands, {}, FLOAT, FLOAT) is NotImplemented
    assert products.matmul_a(normal(2), normal(3, 2), (3,), (3, 2)) is NotImplemented
    assert products.matmul_b(normal(3), normal(3, 2), (3, 2), (2,)) is NotImplemented


@pytest.mark.parametrize("way", ["pieces", "panels"], indirect=True)
def test_infinity_times_floats_of_several_pieces_is_infinity(way):
    a, b = np.ones((4, 8), np.float32), np.full((8, 4), np.inf, ml_dtypes.bfloat16)
    assert (matmul.product(a, b) == np.inf).all()
    assert (matmul.product(b.T, a.T) == np.inf).all()
    x = stored(np.ones((4, 32), np.float32), "mxfp8")
    assert (matmul.product(products.operand(x), np.full((32, 2), np.inf, np.float32)) == np.inf).all()
