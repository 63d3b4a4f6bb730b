"""check_production finds where float32 does something else than the float64 run."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.storage import QTensor
from autoq.tape import apply as engine
from autoq.tape.apply import apply
from autoq.tape.op import Op
from autoq.testing import BitsDiffer, ControlFlowDiverged, GradientMismatch, check_production

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 64))
W = RNG.standard_normal((64, 8)) / 4


def layer(x, w):
    q = x.quantize(aq.mxfp8)
    h = aq.layer_norm(q) @ w.quantize(aq.nvfp4).inhibit()
    return aq.softmax(aq.gelu(h)) * h.propagate()


def test_a_layer_agrees():
    check_production(layer, X, W)


@pytest.mark.compiled
def test_programs_large_enough_for_tiles_agree():
    x = RNG.standard_normal((80, 1024))
    check_production(lambda x: aq.tanh(aq.mul(x.quantize(aq.int8), 1.5)), x)


def test_a_skipped_encode_is_caught(monkeypatch):
    encoded = engine.encoded

    def skipping(value, out_type, reduced_last=False):
        if out_type.is_quantized:
            out_type = aq.TensorType(aq.float32)
        return encoded(value, out_type, reduced_last)

    monkeypatch.setattr(engine, "encoded", skipping)
    told = "tanh -> mxfp8 .* production path gives float32"
    with aq.default_device("cpu"), pytest.raises(BitsDiffer, match=told):  # a GPU's kernels encode themselves
        check_production(lambda x: aq.tanh(x.quantize(aq.mxfp8)) ** 2, X)


def test_a_second_encode_is_caught(monkeypatch):
    encoded = engine.encoded

    def twice(value, out_type, reduced_last=False):
        if out_type.is_quantized:
            value = QTensor.encode(value, aq.mxfp4).dequantize()
        return encoded(value, out_type, reduced_last)

    monkeypatch.setattr(engine, "encoded", twice)
    with aq.default_device("cpu"), pytest.raises(BitsDiffer, match="tanh -> mxfp8 .* other codes"):
        check_production(lambda x: aq.tanh(x.quantize(aq.mxfp8)) ** 2, X)


def test_swapped_results_are_caught():
    count = iter(range(100))

    def f(x):
        q = x.quantize(aq.mxfp8)
        a, b = (q, q * 0.5) if next(count) < 1 else (q * 0.5, q)
        return aq.tanh(a) * b

    with pytest.raises((BitsDiffer, ControlFlowDiverged)):
        check_production(f, X)


def test_a_float32_path_with_another_result_is_caught():
    made = Op("mutant", lambda x: np.tanh(x) * (1.05 if x.dtype == np.float32 else 1),
              {"x": lambda F, g, x: g * (1 - F.square(F.tanh(x)))}, operands=("x",))  # fmt: skip
    with pytest.raises(GradientMismatch, match="output 0"):
        check_production(lambda x: apply(made, x.quantize(aq.mxfp8).dequantize()), X)
    with pytest.raises(BitsDiffer, match="other codes"):
        check_production(lambda x: apply(made, x.quantize(aq.mxfp8)) ** 2, X)


def test_a_float32_gradient_that_is_another_is_caught():
    def rule(F, g, x):
        return g * (1 - F.square(F.tanh(x))) * (1.01 if g.dtype == np.float32 else 1)

    made = Op("mutant", np.tanh, {"x": rule}, operands=("x",))
    with pytest.raises(GradientMismatch, match="gradient by input 0"):
        check_production(lambda x: apply(made, x.quantize(aq.mxfp8)) ** 2, X)


def test_another_type_is_caught():
    count = iter(range(100))

    def f(x):
        q = x.quantize(aq.mxfp8)
        return aq.tanh(q) if next(count) < 1 else aq.tanh(q, out_dtype=aq.float32)

    with pytest.raises(BitsDiffer, match="gives float32"):
        check_production(f, X)
