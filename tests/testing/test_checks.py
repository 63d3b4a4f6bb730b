"""The checks of types, layouts, saved bytes, devices and tiles pass what is right and catch what isn't."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import autoq as aq
from autoq.errors import DeviceError
from autoq.storage import QTensor, move
from autoq.tape.apply import apply
from autoq.tape.op import Op
from autoq.testing import (
    BitsDiffer,
    CheckError,
    check_fused,
    check_layout,
    check_same_on,
    check_saved_bytes,
    check_type_rule,
)
from autoq.testing import strategies as sts
from tests.examples import scaled

X = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)


@pytest.mark.parametrize("name", ["mul", "tanh", "greater", "mse_loss", "transpose", "matmul"])
def test_built_in_ops_follow_the_type_rule(name):
    inputs = {"matmul": (X, X.T), "tanh": (X,), "transpose": (X,)}.get(name, (X, X))
    check_type_rule(name, *inputs)


def test_functions_follow_the_type_rule():
    check_type_rule(lambda x, y: aq.exp(x) * y + 1, X, X)


@pytest.mark.parametrize(
    "broken",
    [
        lambda x: aq.tanh(x, out_dtype=aq.float32),
        lambda x: aq.tanh(x.dequantize() if isinstance(x, aq.AutodiffQTensor) else x),
        lambda x: aq.tanh(x).inhibit(),
        lambda x: aq.tanh(x).propagate(),
    ],
)
def test_other_types_are_caught(broken):
    with pytest.raises(CheckError):
        check_type_rule(broken, X)


@settings(max_examples=scaled(30), deadline=None)
@given(sts.qtensors(("mxfp8", "int4")))
def test_layouts_of_any_packed_tensor_commute_with_decoding(q):
    check_layout(lambda x: x.T.flip(axis=0).reshape(-1)[1:], q)


def test_how_values_moved_is_told():
    q = aq.tensor(X, dtype=aq.mxfp8)
    assert check_layout(lambda x: x.T, q) == ["view"]
    assert check_layout(lambda x: aq.take(x, np.array([1, 1]), axis=0), q) == ["copy"]
    assert check_layout(lambda x: x[:, 3:40], q) == ["decode"]


@pytest.mark.parametrize("how", ["view", "decode"])
def test_a_layout_that_changes_bits_is_caught(how):
    def packed(q):
        again = QTensor.quantize(q.dequantize() * 1.5, q.scheme)
        return move.flip(again, axis=0)[0], how

    made = Op("mutant", lambda x: np.flip(x, 0), {"x": lambda F, g: F.flip(g, axis=0)}, kind="layout",
              packed=packed)  # fmt: skip
    with pytest.raises(BitsDiffer, match="mutant"):
        check_layout(lambda x: apply(made, x), aq.tensor(X, dtype=aq.mxfp8))


def test_saved_bytes_are_counted_packed():
    assert check_saved_bytes(lambda x: aq.tanh(x.quantize(aq.mxfp8)), X, at_most=132) == 132
    with pytest.raises(CheckError, match="bytes kept for backward"):
        check_saved_bytes(lambda x: aq.tanh(x.quantize(aq.mxfp8).dequantize()), X, at_most=132)


@pytest.mark.parametrize("name", ["tanh", "mul", "where"])
@pytest.mark.parametrize("scheme", ["mxfp8", "nvfp4"])
def test_ops_in_tiles_give_the_same_bits(name, scheme):
    q = aq.tensor(np.random.default_rng(0).standard_normal((9, 200)), dtype=aq.scheme(scheme))
    operands = {"tanh": (q,), "mul": (q, q), "where": (aq.greater(q, 0), q, 0.5)}[name]
    check_fused(name, *operands)


def test_an_op_that_depends_on_its_tile_is_caught():
    made = Op("mutant", lambda x: x - x.mean(), {"x": lambda F, g: g}, elementwise=True, operands=("x",))
    x = aq.tensor(np.random.default_rng(0).standard_normal((200, 1000)), dtype=aq.mxfp8)
    with pytest.raises(BitsDiffer, match="in tiles"):
        check_fused(made, x)


def test_only_element_wise_ops_run_in_tiles():
    with pytest.raises(CheckError, match="matmul isn't run in tiles"):
        check_fused("matmul", X, X.T)


def test_the_same_bits_on_the_same_device():
    check_same_on(["cpu"], lambda x: (aq.tanh(x).quantize(aq.mxfp4), x.sum()), X)


def test_different_bits_are_caught():
    rng = np.random.default_rng(0)
    with pytest.raises(BitsDiffer, match="result 0 on cpu"):
        check_same_on(["cpu"], lambda x: x * float(rng.standard_normal()), X)


def test_a_device_that_is_not_there_is_an_error():
    with pytest.raises(DeviceError):
        check_same_on(["cpu", "abacus"], lambda x: x, X)
