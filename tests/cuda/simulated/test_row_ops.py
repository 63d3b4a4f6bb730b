"""Softmax, normalization and dropout as ops on GPUs find them, in the simulator, against the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.kernels.cuda import launch
from autoq.ops import on_device
from autoq.random import Draw
from autoq.schemes import scheme
from autoq.storage import QTensor
from autoq.tape.accelerated import _forwards, _rules
from autoq.tape.namespace import RAW
from autoq.tape.op import REGISTRY
from autoq.types import float32, float64

SHAPE = (2, 3, 32)
DRAW = Draw(3, 1 << 40)


def random(shape=SHAPE, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def packed_as(name, x):
    """A packed array as it is on a device, where the tensor scale is an array."""
    q = QTensor.quantize(x, scheme(name))
    if q.tensor_scale is not None:
        q.tensor_scale = np.asarray(q.tensor_scale)
    return q


def test_the_module_registers_its_kernels():
    assert on_device.rows.softmax_rows is _forwards["softmax"]


def forward(name, *values, out=float32, compute=float32, **static):
    op = REGISTRY[name]
    return _forwards[name](op, values, {**op.defaults, **static}, out, compute)


def expected(name, *values, **static):
    dense = [x.dequantize() if isinstance(x, QTensor) else x for x in values]
    return REGISTRY[name].forward(*dense, **static)


def assert_close(found, wanted):
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 2e-6 * max(1.0, np.abs(wanted).max())


CASES = [
    ("softmax", (random(),), {}),
    ("softmax", (random(),), {"mask": np.tri(3, 32, dtype=bool), "axis": 2}),
    ("softmax", (random(),), {"mask": [1, 0] * 16}),
    ("log_softmax", (random(),), {}),
    ("layer_norm", (random(), random(32, 1), random(32, 2)), {"eps": 0.1}),
    ("layer_norm", (random(), random((3, 32), 1), None), {"axis": (-1, -2)}),
    ("rms_norm", (random(), None), {}),
    ("rms_norm", (random(), random(32, 1)), {"axis": (2,)}),
    ("dropout", (random(),), {"rate": 0.4, "draw": DRAW}),
    ("dropout", (random((3, 36)),), {"rate": 0.25, "draw": DRAW}),
]


@pytest.mark.parametrize(("name", "values", "static"), CASES)
def test_an_op_is_one_launch(name, values, static):
    before = launch.launches
    found = forward(name, *values, **static)
    assert launch.launches == before + 1
    assert_close(found, expected(name, *values, **static))


@pytest.mark.parametrize(("name", "values", "static"), CASES)
@pytest.mark.parametrize("packed", ["mxfp8", "nvfp4"])
def test_packed_operands_and_results_are_one_launch(name, values, static, packed):
    if isinstance(static.get("axis"), tuple) and len(static["axis"]) > 1:
        pytest.skip("rows of two axes are no lines")
    values = (packed_as(packed, values[0]), *values[1:])
    out = scheme("mxfp8")
    before = launch.launches
    found = forward(name, *values, out=out, **static)
    assert launch.launches == before + 1
    dense = forward(name, *values, **static)
    assert_close(dense, expected(name, *values, **static))
    if name == "dropout":
        assert found.same_bits(QTensor.encode(dense, out.innermost(dense.ndim)))
    assert found.scheme == out.innermost(len(found.shape))
    assert_close(found.dequantize(), QTensor.encode(dense, out).dequantize())


def test_dropout_has_the_bits_of_the_cpu():
    x = random((5, 7))
    x[0, :3] = [-1.0, np.inf, np.nan]
    with np.errstate(invalid="ignore"):
        wanted = expected("dropout", x, rate=0.5, draw=DRAW)
    assert forward("dropout", x, rate=0.5, draw=DRAW).tobytes() == wanted.tobytes()
    assert _rules["dropout", "x"](x, 0.5, DRAW).tobytes() == wanted.tobytes()


def test_results_that_rows_are_not_encoded_to_come_as_floats():
    found = forward("softmax", random(), out=scheme("nvfp4"))
    assert found.dtype == np.float32


RULES = [
    ("softmax", "x", (random(), -1, None)),
    ("softmax", "x", (random(), 2, np.tri(3, 32, dtype=bool))),
    ("log_softmax", "x", (random(), -1)),
    ("layer_norm", "x", (random(), random(32, 1), -1, 1e-5)),
    ("layer_norm", "x", (random(), None, (-2, -1), 1e-5)),
    ("rms_norm", "x", (random(), random(32, 1), -1, 1e-5)),
]


@pytest.mark.parametrize(("name", "operand", "reads"), RULES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_rule_is_one_launch(name, operand, reads, packed):
    g, dense = random(SHAPE, 9), reads[0]
    if packed:
        if any(isinstance(x, tuple) for x in reads):
            pytest.skip("rows of two axes are no lines")
        q = QTensor.quantize(dense, scheme("mxfp8"))
        reads, dense = (q, *reads[1:]), q.dequantize()
    before = launch.launches
    found = _rules[name, operand](g, *reads)
    assert launch.launches == before + 1
    assert_close(found, REGISTRY[name].vjp[operand](RAW, g, dense, *reads[1:]))


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("packed", ["mxfp8", "nvfp4", "int8"])
def test_over_several_axes_packed_operands_give_the_bits_of_decoded_ones(name, packed):
    q, weight, g = packed_as(packed, random()), random((3, 32), 1), random(SHAPE, 9)
    x, axis = q.dequantize(), (-2, -1)
    values = (weight, None) if name == "layer_norm" else (weight,)
    found = forward(name, q, *values, out=scheme(packed), axis=axis)
    assert found.tobytes() == forward(name, x, *values, axis=axis).tobytes()
    for operand, read in (("x", weight), ("weight", (3, 32))):
        rule = _rules[name, operand]
        assert rule(g, q, read, axis, 1e-5).tobytes() == rule(g, x, read, axis, 1e-5).tobytes()


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
@pytest.mark.parametrize("dtype", [np.bool_, np.int64])
def test_whole_numbers_give_the_bits_of_floats(name, dtype):
    x = (random() > 0).astype(dtype)
    values = {"layer_norm": (None, None), "rms_norm": (None,)}.get(name, ())
    assert forward(name, x, *values).tobytes() == forward(name, x.astype(np.float32), *values).tobytes()


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_a_weights_gradient_is_two_launches(name):
    x, g = random(), random(SHAPE, 9)
    before = launch.launches
    found = _rules[name, "weight"](g, x, (32,), -1, 1e-5)
    assert launch.launches == before + 2
    assert_close(found, REGISTRY[name].vjp["weight"](RAW, g, x, (32,), -1, 1e-5).sum(axis=(0, 1)))


@pytest.mark.parametrize(
    ("name", "values", "static"),
    [
        ("softmax", (random(),), {"axis": 0}),
        ("softmax", (random(),), {"mask": np.ones(5, bool)}),
        ("layer_norm", (random(), random((3, 1)), None), {}),
        ("layer_norm", (random(), None, None), {"axis": (0, 2)}),
        ("rms_norm", (random(), None), {"axis": 5}),
        ("rms_norm", (random(), None), {"eps": -1.0}),
        ("dropout", (random(),), {"rate": 1.0, "draw": DRAW}),
        ("dropout", (packed_as("mxfp8", random((3, 5))),), {"rate": 0.5, "draw": DRAW}),
        ("softmax", (random(),), {"axis": True}),
        ("layer_norm", (random(), None, None), {"axis": None}),
        ("layer_norm", (random(), None, None), {"axis": True}),
        ("layer_norm", (random(), None, None), {"eps": float("nan")}),
    ],
)
def test_what_no_kernel_is_for_is_left_to_the_op(name, values, static):
    assert forward(name, *values, **static) is NotImplemented


def test_float64_is_left_to_the_op():
    x = random().astype(np.float64)
    assert forward("softmax", x, out=float64, compute=float64) is NotImplemented
    assert _rules["softmax", "x"](x, random(), -1, None) is NotImplemented
