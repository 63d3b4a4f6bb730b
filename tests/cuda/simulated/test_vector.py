"""The vector product in the simulator, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from autoq.kernels.cuda import vector
from autoq.kernels.cuda.operand import Packed
from autoq.kernels.cuda.pieces import View
from autoq.kernels.cuda.vector_kernels import Shape
from autoq.storage import QTensor
from autoq.storage.plan import plan_of

BFLOAT = ml_dtypes.bfloat16


def view(q: QTensor, order: tuple[int, ...] = (1, 0)) -> View:
    tensor_scale = None if q.tensor_scale is None else np.array(q.tensor_scale, np.float32)
    return View(
        Packed(q.words, q.scales, tensor_scale, plan_of(q.scheme).codec, q.scheme.block or (), q.shape), order
    )


def weight(name: str, n: int, k: int, seed: int = 0) -> QTensor:
    rng = np.random.default_rng(seed)
    spread = np.exp(2 * rng.standard_normal((n, 1)))
    return QTensor.quantize((rng.standard_normal((n, k)) * spread).astype(np.float32), name)


def check(q: QTensor, x: np.ndarray, shape: Shape | None) -> None:
    out = np.full((*x.shape[:-1], q.shape[0]), 7, np.float32)
    assert vector.multiply(x, view(q), out, shape)
    values, exact = q.dequantize().astype(np.float64), x.astype(np.float64)
    size = np.abs(exact) @ np.abs(values).T
    assert (np.abs(out - exact @ values.T) <= 2.0**-22 * size).all()


@pytest.mark.parametrize(
    ("name", "n", "k", "rows", "dtype", "shape"),
    [
        ("nvfp4", 20, 288, 1, np.float32, Shape(2, 1)),
        ("nvfp4", 16, 544, 2, np.float32, Shape(1, 2, 1)),
        ("nvfp4", 40, 96, 1, BFLOAT, Shape(2, 1, 2, 128)),
        ("nvfp4", 16, 1120, 8, np.float32, Shape(1, 1)),
        ("nvfp4_single", 5, 64, 3, BFLOAT, Shape(1, 1)),
        ("mxfp4", 16, 160, 2, BFLOAT, Shape(1, 1)),
        ("mxfp8", 16, 96, 1, np.float16, Shape(1, 2, 2)),
        ("mxfp8", 3, 32, 4, np.float32, Shape(1, 1)),
        ("int8", 16, 160, 1, np.float32, Shape(1, 2, 1)),
        ("int8_full", 16, 32, 1, np.float32, Shape(1, 1)),
        ("int4", 16, 288, 2, np.float16, Shape(1, 1)),
        ("int4", 9, 64, 5, np.float32, Shape(1, 1)),
        ("fp8_block", 16, 256, 1, np.float32, Shape(1, 1)),
    ],
)
def test_a_product_is_near_the_exact_one(name, n, k, rows, dtype, shape):
    x = np.random.default_rng(1).standard_normal((rows, k)).astype(dtype)
    check(weight(name, n, k), x, shape)


@pytest.mark.parametrize(
    ("name", "k", "rows", "parts"),
    [
        ("nvfp4", 1440, 1, (1, 2, 1)),
        ("nvfp4", 1440, 8, (1, 2, 2, 256)),
        ("mxfp8", 1248, 8, (1, 2, 0, 128)),
        ("int4", 1440, 8, (1, 2, 1)),
        ("nvfp4", 32, 1, (1, 1, 1)),
    ],
)
def test_warps_that_share_a_row_read_each_chunk_once(name, k, rows, parts):
    # As many turns for each warp, since the simulator's products wait for the whole block.
    x = np.random.default_rng(k).standard_normal((rows, k)).astype(np.float32)
    check(weight(name, 9, k), x, Shape(*parts))


def test_a_second_pass_of_one_row_goes_on_where_the_first_ended():
    check(weight("nvfp4", 3, 8224), np.linspace(-1, 2, 8224, dtype=np.float32)[None], Shape(1, 1, 1))


def test_every_value_of_a_vector_counts_in_full():
    # One place a row: the result is the value times the weight, without a rounding to bfloat16.
    q = QTensor.quantize(np.eye(16, 64, dtype=np.float32), "mxfp4")
    x = (1 + np.arange(64) * 2.0**-23).astype(np.float32)[None]
    out = np.zeros((1, 16), np.float32)
    assert vector.multiply(x, view(q), out, Shape(1, 1))
    assert np.array_equal(out[0], x[0, :16])


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4", "mxfp8", "int8", "fp8_block"])
def test_a_row_of_the_weight_with_nan_gives_nan_and_no_other(name):
    values = np.ones((6, 128), np.float32)
    values[2, 70] = np.nan
    q = QTensor.quantize(values, name)
    out = np.zeros((2, 6), np.float32)
    assert vector.multiply(np.zeros((2, 128), np.float32), view(q), out, Shape(1, 1))
    assert np.isnan(out[:, 2]).all()
    assert (out[:, [0, 1, 3, 4, 5]] == 0).all()


def test_a_nan_code_gives_nan():
    q = QTensor.quantize(np.ones((2, 32), np.float32), "mxfp8")
    q.words[1, 5] |= np.uint32(0x7F << 16)
    out = np.zeros((1, 2), np.float32)
    assert vector.multiply(np.ones((1, 32), np.float32), view(q), out, Shape(1, 1))
    assert out[0, 0] == 32
    assert np.isnan(out[0, 1])


@pytest.mark.parametrize("name", ["mxfp4", "mxfp8"])
def test_scales_at_both_ends(name):
    q = QTensor.quantize(np.full((3, 32), 0.5, np.float32), name)
    for row, code in enumerate((0, 20, 240)):
        q.scales[row] = code
    out, x = np.zeros((1, 3), np.float32), np.full((1, 32), 2.0**-8, np.float32)
    assert vector.multiply(x, view(q), out, Shape(1, 1))
    exact = q.dequantize().astype(np.float64).sum(axis=1) * 2.0**-8
    assert np.allclose(out[0], exact, rtol=2.0**-20, atol=2.0**-126)


@pytest.mark.filterwarnings("ignore:.*invalid value encountered in cast")
def test_infinity_and_nan_of_a_vector_come_through():
    q = QTensor.quantize(np.ones((2, 64), np.float32), "mxfp4")
    for kind in (np.float32, np.float16, BFLOAT):
        x = np.ones((4, 64), np.float32)
        x[0, 3], x[1, 60], x[2, 9] = np.inf, -np.inf, np.nan
        out = np.zeros((4, 2), np.float32)
        assert vector.multiply(x.astype(kind), view(q), out, Shape(1, 1))
        assert np.array_equal(out[:, 0], [np.inf, -np.inf, np.nan, 64], equal_nan=True)


@pytest.mark.filterwarnings("ignore:.*invalid value encountered in scalar")
def test_nan_whose_high_half_is_that_of_infinity_is_nan():
    q, x = QTensor.quantize(np.ones((1, 32), np.float32), "mxfp4"), np.ones((1, 32), np.float32)
    x.view(np.uint32)[0, 7] = 0x7F800001
    out = np.zeros((1, 1), np.float32)
    assert vector.multiply(x, view(q), out, Shape(1, 1))
    assert np.isnan(out[0, 0])


def test_strides_leading_axes_and_a_slice_of_rows():
    q, x = weight("nvfp4", 24, 96), np.random.default_rng(2).standard_normal((2, 1, 192)).astype(np.float32)
    check(q, x[..., ::2], Shape(1, 1))
    check(q[8:], x[:, :, 96:], Shape(1, 1))
    four = np.random.default_rng(3).standard_normal((2, 2, 96)).astype(np.float32)
    check(q, four.transpose(1, 0, 2), Shape(1, 1))


def test_places_beyond_31_bits_are_left_to_others_in_either_direction():
    found = view(weight("nvfp4", 20, 96))
    assert vector.weight_form(found) is not None
    for step in (1 << 30, -(1 << 30)):
        words = np.lib.stride_tricks.as_strided(found.packed.words, strides=(step, 4))
        assert vector.weight_form(found._replace(packed=found.packed._replace(words=words))) is None


def test_plans_are_kept_by_how_operands_lie(monkeypatch):
    monkeypatch.setattr(vector, "usual_shape", lambda *given: Shape(1, 1))
    q, x = weight("nvfp4", 20, 96), np.random.default_rng(4).standard_normal((2, 96)).astype(np.float32)
    made = len(vector._plans)
    first, again = vector.product(x, view(q)), vector.product(x + 0, view(q))
    assert len(vector._plans) == made + 1
    assert np.array_equal(first, again)
    assert vector.product(x[1], view(q)).shape == (20,)
    assert np.array_equal(vector.product(x[1], view(q)), first[1])
    assert vector.product(x, x.T) is None
    assert vector.product(view(q, (0, 1)), view(q)) is None


@pytest.mark.parametrize(
    ("name", "shape", "order"),
    [
        ("mxfp6_e3m2", (16, 32), (1, 0)),
        ("mxfp8_e5m2", (16, 32), (1, 0)),
        ("fp8_e4m3", (16, 32), (1, 0)),
        ("nvfp4", (16, 48), (1, 0)),
        ("nvfp4", (32, 16), (0, 1)),
        ("nvfp4_2d", (16, 32), (1, 0)),
    ],
)
def test_what_it_is_not_for_is_left_alone(name, shape, order):
    q = weight(name, *shape)
    found = view(q, order)
    out = np.full((1, found.shape[1]), 7, np.float32)
    assert not vector.multiply(np.ones((1, found.shape[0]), np.float32), found, out)
    assert (out == 7).all()
