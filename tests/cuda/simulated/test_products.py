"""Matrix products of stored operands as ops and gradient rules on a GPU call them."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.kernels.cuda import blas, matmul
from autoq.ops.on_device import products
from autoq.storage import QTensor
from autoq.tape.op import REGISTRY

FLOAT = np.dtype(np.float32)
RNG = np.random.default_rng(0)


def stored(x: np.ndarray, scheme: str | None) -> object:
    if scheme is None:
        return x
    q = QTensor.quantize(x, scheme)
    scale = None if q.tensor_scale is None else np.array(q.tensor_scale)
    made = QTensor.make(q.words, q.scales, q.tensor_scale, q.scheme, q.shape)
    object.__setattr__(made, "tensor_scale", scale)
    return made


def values(x: object) -> np.ndarray:
    array = x.dequantize() if isinstance(x, QTensor) else x
    return np.asarray(array, np.float64)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(params=["arrays", "pieces", "panels"])
def way(request, monkeypatch):
    """By the array library alone, and as with cuBLAS, whose calls that library then stands for."""
    if request.param == "panels":
        monkeypatch.setattr(matmul, "PANEL", 0)
        monkeypatch.setattr(matmul, "ROWS", 2)
    if request.param != "arrays":
        monkeypatch.setattr(blas, "available", lambda: True)
        monkeypatch.setattr(
            blas, "gemm", lambda a, b, out, alpha, add, how: blas._by_arrays(a, b, out, alpha, add)
        )
        monkeypatch.setattr(matmul, "SPLIT_FROM", 0)
        monkeypatch.setattr(matmul.blas_fp8, "product", lambda *operands, **how: False)


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


def test_pieces_of_large_matrices_are_made_some_rows_at_a_time(monkeypatch):
    monkeypatch.setattr(blas, "available", lambda: True)
    monkeypatch.setattr(matmul, "SPLIT_FROM", 0)
    monkeypatch.setattr(matmul, "PANEL", 1000)
    monkeypatch.setattr(matmul, "ROWS", 2)
    rows = []

    def gemm(a, b, out, alpha, add, how):
        rows.append(len(out))
        blas._by_arrays(a, b, out, alpha, add)

    monkeypatch.setattr(blas, "gemm", gemm)
    g, x = normal(7, 32), stored(normal(32, 32), "mxfp8")
    found = matmul.product(g, products.operand(x))
    assert rows == [4, 4, 4, 3, 3, 3]  # of 192 bytes a row, five fit, and rows come in twos
    assert np.allclose(found, g @ values(x), atol=1e-4)
    rows.clear()
    matmul.product(g[:5], products.operand(x))
    assert rows == [5, 5, 5]
    start = normal(32)
    assert np.allclose(matmul.product(g, products.operand(x), start=start), g @ values(x) + start, atol=1e-4)


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
