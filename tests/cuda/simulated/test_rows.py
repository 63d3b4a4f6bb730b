"""Softmax and normalization of rows by the device's kernels, in the simulator, against the CPU's ops."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from autoq.kernels.cuda import rows
from autoq.kernels.cuda.operand import Packed
from autoq.kernels.cuda.row_kernels import Shape
from autoq.ops.normalization import layer_norm, layer_norm_x, rms_norm
from autoq.ops.softmax import log_softmax, softmax
from autoq.schemes import scheme
from autoq.storage import QTensor
from autoq.storage.layout import grid_shape, words_shape
from autoq.storage.plan import plan_of
from autoq.tape.namespace import RAW
from autoq.tape.op import REGISTRY

FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16]
SCHEMES = [
    "mxfp8",
    "mxfp8_e5m2",
    "mxfp6_e3m2",
    "mxfp4",
    "nvfp4",
    "nvfp4_2d",
    "mxfp8_2d",
    "int8",
    "int2",
    "fp8_e4m3",
]
RESULTS = ["mxfp8", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp4", "nvfp4_single", "int8", "int2_full", "fp8_block"]


def random(shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def packed(q: QTensor) -> Packed:
    plan = plan_of(q.scheme)
    tensor = None if q.tensor_scale is None else np.asarray(q.tensor_scale)
    return Packed(q.words, q.scales, tensor, plan.codec, plan.extents, q.shape)


def empty_packed(name: str, shape) -> QTensor:
    made = scheme(name)
    words = np.zeros(words_shape(shape, made.element_bits), np.uint32)
    scales = np.zeros(grid_shape(shape, made.extents(len(shape))), plan_of(made).scale_dtype)
    return QTensor(words, scales, np.float32(1) if made.tensor_scale else None, made, shape)


def assert_near(found, expected, ulps=8, terms=None):
    """Within some last places of the larger of each value and its row's typical one, or of what is summed."""
    expected = np.asarray(expected, np.float32)
    typical = np.nan_to_num(np.abs(expected if terms is None else terms)).mean(axis=-1, keepdims=True)
    size = np.maximum(np.abs(expected), typical)
    both_nan = np.isnan(found) & np.isnan(expected)
    with np.errstate(invalid="ignore"):
        near = np.abs(found - expected) <= ulps * np.spacing(size)
    assert (near | both_nan | (found == expected)).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (2, 2, 8), (40, 3), (2, 130)])
@pytest.mark.parametrize("log", [False, True])
def test_softmax_of_floats(shape, dtype, log):
    x, out = random(shape, dtype=dtype), np.zeros(shape, np.float32)
    assert rows.softmax(x, out, log=log)
    assert_near(out, (log_softmax if log else softmax)(x.astype(np.float32)))


@pytest.mark.parametrize("dtype", FLOATS[1:])
@pytest.mark.parametrize("n", [5, 16])
def test_results_are_rounded_to_their_dtype(n, dtype):
    x, out, wide = random((3, n)), np.zeros((3, n), dtype), np.zeros((3, n), np.float32)
    assert rows.softmax(x, out)
    assert rows.softmax(x, wide, shape=rows.shape_of(n, ("float32", np.dtype(dtype).name), 1))
    assert out.tobytes() == wide.astype(dtype).tobytes()


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("shape", [(3, 32), (2, 2, 40)])
def test_packed_rows_are_decoded(name, shape):
    if name == "int2" and shape[-1] == 40:
        shape = (2, 2, 30)
    q, out = QTensor.quantize(random(shape), scheme(name)), np.zeros(shape, np.float32)
    dense = np.zeros(shape, np.float32)
    assert rows.softmax(packed(q), out)
    assert rows.softmax(q.dequantize(), dense, shape=rows.shape_of(shape[-1], (packed_kind(q), "float32"), 1))
    assert out.tobytes() == dense.tobytes()


def packed_kind(q):
    from autoq.kernels.cuda.chunks import kind_of

    return kind_of(packed(q))


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("n", [16, 128, 150])
def test_results_are_encoded(name, n):
    x, q = random((3, n)), empty_packed(name, (3, n))
    x[0, :4] = [3e4, -3e4, 0.0, 1e-30]
    x[2, -1] = np.nan
    dense = np.zeros((3, n), np.float32)
    assert rows.softmax(x, packed(q), log=True)
    assert rows.softmax(x, dense, log=True, shape=rows.shape_of(n, ("float32", result(q)), 1))
    assert QTensor.encode(dense, scheme(name)).same_bits(q)


def result(q):
    from autoq.kernels.cuda.chunks import result_kind

    return result_kind(packed(q))


@pytest.mark.parametrize("name", ["nvfp4", "mxfp8_2d", "fp8_e4m3"])
def test_results_that_need_more_than_a_row_are_left_to_others(name):
    assert not rows.softmax(random((2, 32)), packed(empty_packed(name, (2, 32))))


@pytest.mark.parametrize(
    ("shape", "mask"),
    [
        ((3, 6), (6,)),
        ((3, 6), (3, 1)),
        ((2, 3, 8), (3, 8)),
        ((2, 2, 3, 5), (2, 1, 1, 5)),
        ((2, 2, 3, 5), (2, 1, 3, 5)),
        ((2, 2, 3, 5), (1, 2, 1, 5)),
    ],
)
def test_a_mask_broadcasts(shape, mask):
    x, kept = random(shape), np.random.default_rng(1).random(mask) < 0.6
    out, gradient, g = np.zeros(shape, np.float32), np.zeros(shape, np.float32), random(shape, 2)
    assert rows.softmax(x, out, kept)
    assert_near(out, softmax(x, mask=kept))
    assert rows.softmax_gradient(x, g, gradient, kept)
    assert_near(gradient, rule("softmax", "x")(RAW, g, x, -1, kept), terms=g)


def rule(op, operand):
    return REGISTRY[op].vjp[operand]


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(odd):
    x, out = random((3, 6)), np.zeros((3, 6), np.float32)
    x[1, 2] = odd
    x[2] = -np.inf
    for log, op in [(False, softmax), (True, log_softmax)]:
        assert rows.softmax(x, out, log=log)
        with np.errstate(invalid="ignore"):
            assert_near(out, op(x))


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("name", [None, "mxfp8", "nvfp4"])
def test_gradients_of_softmax(name, log):
    x, g, out = random((3, 48)), random((3, 48), 1), np.zeros((3, 48), np.float32)
    operand = x
    if name:
        q = QTensor.quantize(x, scheme(name))
        operand, x = packed(q), q.dequantize()
    assert rows.softmax_gradient(operand, g, out, log=log)
    expected = rule("log_softmax", "x")(RAW, g, x, -1) if log else rule("softmax", "x")(RAW, g, x, -1, None)
    assert_near(out, expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("weighted", "biased"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("n", [7, 20])
def test_normalization_of_floats(weighted, biased, dtype, n):
    x, out = random((3, n), dtype=dtype), np.zeros((3, n), np.float32)
    weight, bias = random(n, 1, dtype) if weighted else None, random(n, 2) if biased else None
    wide = [None if a is None else a.astype(np.float32) for a in (x, weight, bias)]
    assert rows.norm(x, weight, bias, out, 1e-5, True)
    assert_near(out, layer_norm(*wide, eps=1e-5))
    if not biased:
        assert rows.norm(x, weight, None, out, 1e-5, False)
        assert_near(out, rms_norm(*wide[:2], eps=1e-5))


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4"])
@pytest.mark.parametrize("centered", [False, True])
def test_packed_rows_are_normalized_and_encoded(name, centered):
    x, weight = QTensor.quantize(random((3, 72)), scheme(name)), random(72, 1)
    q, dense = empty_packed(name, (3, 72)), np.zeros((3, 72), np.float32)
    assert rows.norm(packed(x), weight, None, packed(q), 1e-5, centered)
    assert rows.norm(packed(x), weight, None, dense, 1e-5, centered, rows.shape_of(72, (result(q),) * 2, 1))
    assert QTensor.encode(dense, scheme(name)).same_bits(q)
    assert_near(dense, (layer_norm if centered else rms_norm)(x.dequantize(), weight, eps=1e-5))


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", [None, "mxfp8"])
def test_gradients_of_normalization(name, weighted, centered):
    x, g, out = random((5, 40)), random((5, 40), 1), np.zeros((5, 40), np.float32)
    weight, operand = random(40, 2) if weighted else None, x
    if name:
        q = QTensor.quantize(x, scheme(name))
        operand, x = packed(q), q.dequantize()
    assert rows.norm_gradient(operand, weight, g, out, 1e-5, centered)
    of_x = layer_norm_x if centered else rule("rms_norm", "x")
    assert_near(out, of_x(RAW, g, x, weight, -1, 1e-5), 16)
    found = np.zeros(40, np.float32)
    assert rows.norm_weight_gradient(operand, g, found, 1e-5, centered)
    of_weight = rule("layer_norm" if centered else "rms_norm", "weight")
    assert_near(found, of_weight(RAW, g, x, (40,), -1, 1e-5).sum(axis=0), 16)


@pytest.mark.parametrize("n", [64, 90])
@pytest.mark.parametrize("masked", [False, True])
def test_long_rows_are_read_again_in_each_pass(n, masked):
    short, long = Shape(4, 8, 3, False, True), Shape(4, 8, 0, False, True)
    x, g, weight = random((3, n)), random((3, n), 1), random(n, 2)
    mask = random(n, 3) > 0 if masked else None
    results = []
    for shape in (short, long):
        made = [np.zeros((3, n), np.float32) for _ in range(6)]
        assert rows.softmax(x, made[0], mask, shape=shape)
        assert rows.softmax(x, made[1], mask, log=True, shape=shape)
        assert rows.softmax_gradient(x, g, made[2], mask, shape=shape)
        assert rows.softmax_gradient(x, g, made[3], mask, log=True, shape=shape)
        assert rows.norm(x, weight, weight, made[4], 1e-5, True, shape)
        assert rows.norm_gradient(x, weight, g, made[5], 1e-5, False, shape)
        results.append(b"".join(a.tobytes() for a in made))
    assert results[0] == results[1]


def test_several_warps_work_on_a_row():
    x, out, shape = random((2, 700)), np.zeros((2, 700), np.float32), Shape(4, 64, 3, False, True)
    assert rows.softmax(x, out, shape=shape)
    assert_near(out, softmax(x))
    assert rows.norm(x, None, None, out, 1e-5, True, shape)
    assert_near(out, layer_norm(x))


def test_views_of_other_strides():
    whole = random((4, 3, 24))
    for x in (whole[::2], whole[:, 1:], whole.transpose(1, 0, 2), whole[..., ::2], whole[..., 3:11]):
        out = np.zeros(x.shape, np.float32)
        assert rows.softmax(x, out)
        assert_near(out, softmax(x))


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,)])
def test_nothing_is_launched_for_nothing(shape):
    from autoq.kernels.cuda import launch

    before, x = launch.launches, np.zeros(shape, np.float32)
    assert rows.softmax(x, x.copy())
    assert rows.softmax_gradient(x, x, x.copy())
    assert rows.norm(x, None, None, x.copy(), 1e-5, True)
    assert rows.norm_gradient(x, None, x, x.copy(), 1e-5, True)
    assert launch.launches == before


@pytest.mark.parametrize(
    ("n", "size", "most", "lanes", "held"),
    [
        (1, 4, 16, 1, 1),
        (10, 4, 16, 4, 1),
        (128, 4, 48, 32, 1),
        (768, 4, 48, 64, 3),
        (4096, 4, 48, 256, 4),
        (24576, 4, 48, 512, 12),
        (24580, 4, 48, 256, 0),
        (8190, 4, 16, 512, 4),
        (12288, 4, 24, 512, 6),
        (8192, 16, 48, 512, 1),
        (8208, 16, 48, 256, 0),
    ],
)
def test_rows_are_spread_over_threads(n, size, most, lanes, held):
    shape = rows._shape(n, size, most, 0, True)
    assert (shape.lanes, shape.held) == (lanes, held)
    assert not shape.full or shape.held * shape.lanes * size == n
