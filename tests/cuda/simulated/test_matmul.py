"""Products of packed and dense matrices in the simulator, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from autoq.kernels.cuda import blas, matmul, pieces
from autoq.kernels.cuda.operand import Packed
from autoq.kernels.cuda.pieces import View
from autoq.storage import QTensor
from autoq.storage.plan import plan_of

BFLOAT = ml_dtypes.bfloat16
SCHEMES = ["mxfp8", "mxfp6_e2m3", "nvfp4", "nvfp4_2d", "int8", "int4", "fp8_e4m3", "fp8_block"]


def view(q: QTensor) -> View:
    tensor_scale = None if q.tensor_scale is None else np.array(q.tensor_scale, np.float32)
    extents = q.scheme.block or ()
    return View(
        Packed(q.words, q.scales, tensor_scale, plan_of(q.scheme).codec, extents, q.storage_shape),
        q.layout.order,
    )


def packed(name: str, *shape: int, seed: int = 0) -> QTensor:
    return QTensor.quantize(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), name)


def near(found: np.ndarray, a: np.ndarray, b: np.ndarray, bits: int = 21) -> bool:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return bool((np.abs(found - a @ b) <= 2.0**-bits * (np.abs(a) @ np.abs(b)) + 1e-30).all())


@pytest.fixture
def tensor_cores(monkeypatch):
    """Take the ways of cuBLAS, which the array library then stands for."""
    monkeypatch.setattr(blas, "available", lambda: True)
    monkeypatch.setattr(
        blas,
        "gemm",
        lambda a, b, out, alpha, accumulate, precision: blas._by_arrays(a, b, out, alpha, accumulate),
    )
    monkeypatch.setattr(matmul, "SPLIT_FROM", 0)
    monkeypatch.setattr(matmul.blas_fp8, "product", lambda *operands, **how: False)


@pytest.mark.parametrize("name", SCHEMES)
def test_packed_by_packed_in_pieces(name, tensor_cores):
    a, b = packed(name, 3, 40), packed(name, 5, 40, seed=1)
    assert near(matmul.product(view(a), view(b.T)), a.dequantize(), b.dequantize().T)


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "int8"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT])
def test_dense_by_packed(name, dtype, tensor_cores):
    a, b = np.random.default_rng(2).standard_normal((9, 40)).astype(dtype), packed(name, 40, 6)
    assert near(matmul.product(a, view(b)), a, b.dequantize())


@pytest.mark.parametrize("precision", ["highest", "tf32", "bf16", "exact"])
def test_precisions(precision, tensor_cores):
    a, b = packed("int8", 3, 40), packed("int8", 40, 5, seed=1)
    out_dtype = "float64" if precision == "exact" else "float32"
    found = matmul.product(view(a), view(b), out_dtype, precision)
    assert found.dtype == np.dtype(out_dtype)
    assert near(found, a.dequantize(), b.dequantize(), {"bf16": 7, "exact": 50}.get(precision, 21))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4,), (4,)),
        ((4,), (4, 3)),
        ((2, 4), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((0, 4), (4, 2)),
        ((3, 0), (0, 2)),
    ],
)
def test_shapes_are_those_of_numpy(a, b):
    x, y = (np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate((a, b)))
    found = matmul.product(x, y)
    assert found.shape == np.matmul(x, y).shape
    assert np.allclose(found, np.matmul(x, y), atol=1e-5)


def test_packed_vectors_and_what_a_product_is_added_to():
    q, x = packed("mxfp8", 33), np.ones((33, 2), np.float32)
    found = matmul.product(view(q), x, start=np.array([1.0, 2.0], np.float32))
    assert np.allclose(found, q.dequantize() @ x + [1, 2], atol=1e-5)


def test_a_product_of_no_terms_is_what_it_is_added_to():
    start = np.arange(3, dtype=np.float32)
    assert np.array_equal(
        matmul.product(np.ones((2, 0), np.float32), np.ones((0, 3), np.float32), start=start), [start] * 2
    )


@pytest.mark.filterwarnings("ignore:invalid value")
def test_pieces_add_up_to_every_float():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 2**32, 2000, dtype=np.uint32).view(np.float32)
    edges = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4028235e38, -3.4e38, 1e-45, 2.0**-126], np.float32
    )
    x = np.concatenate([edges, x])
    three = np.array([piece.astype(np.float64) for piece in pieces.split(x, 3)])
    finite = np.isfinite(x)
    large = finite & (np.abs(x) > 2.0**-109)  # below, the third piece falls under bfloat16's smallest
    assert np.array_equal(three.sum(axis=0)[large], x[large].astype(np.float64))
    assert (np.abs(three.sum(axis=0) - x)[finite] <= 2.0**-133).all()
    assert np.array_equal(three[0][~finite], x[~finite].astype(np.float64), equal_nan=True)
    assert (three[1:, ~finite] == 0).all()
    first, second = (piece.astype(np.float64) for piece in pieces.split(x, 2))
    assert (np.abs(first + second - x)[large] <= 2.0**-17 * np.abs(x[large])).all()


def test_pieces_keep_the_order_in_memory():
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert all(piece.T.flags.c_contiguous for piece in pieces.split(x.T, 2))
    assert np.array_equal(pieces.split(x[:, ::2], 1)[0].astype(np.float32), x[:, ::2])


@pytest.mark.parametrize("size", [(4, 3), (5, 3)])
def test_one_piece_alone_is_that_of_the_sum(size):
    x = np.random.default_rng(4).standard_normal(size, dtype=np.float32)
    for count in (1, 2, 3):
        for place, piece in enumerate(pieces.split(x, count)):
            (alone,) = pieces.split(x, count, place)
            assert np.array_equal(alone.view(np.uint16), piece.view(np.uint16))


@pytest.mark.filterwarnings("ignore:overflow")
def test_factors_multiply_to_at_most_the_largest():
    large, small = np.array(3e38, np.float32), np.array(2.0, np.float32)
    assert pieces.product_of(None, small) is small
    assert pieces.product_of(large, large)[()] == np.finfo(np.float32).max
    assert pieces.product_of(small, small)[()] == 4
    assert np.isnan(pieces.product_of(small, np.array(np.nan, np.float32))[()])


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("mxfp8", 4),
        ("nvfp4", 6),
        ("mxfp8_e5m2", 3),
        ("int8", 24),
        ("fp8_e4m3", 4),
        ("mxint8", 7),
        ("int2", 24),
    ],
)
def test_significant_bits(name, bits):
    assert pieces.bits_of(view(packed(name, 4, 32))) == bits
