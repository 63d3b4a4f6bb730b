"""The cross-entropy by the device's kernels, in the simulator, against the CPU's op."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.errors import IndexingError, ShapeError
from autoq.kernels.cuda import launch, losses
from autoq.kernels.cuda.row_kernels import Shape
from autoq.ops.on_device import losses as on_device
from autoq.schemes import scheme
from autoq.storage import QTensor
from autoq.tape.accelerated import _forwards, _rules
from autoq.tape.namespace import RAW
from autoq.tape.op import REGISTRY
from autoq.types import float32

OP = REGISTRY["cross_entropy"]
LABELS = np.array([[2, 0, 9], [7, 2, 2]])


def logits(shape=(2, 3, 10), seed=0):
    return 3 * np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def forward(x, **static):
    return _forwards["cross_entropy"](OP, (x,), {**OP.defaults, **static}, float32, float32)


def gradient(g, x, dense, **static):
    options = {**OP.defaults, **static}
    read = [options[k] for k in ("labels", "reduction", "label_smoothing", "ignore_index")]
    found = _rules["cross_entropy", "logits"](g, x, dense.shape, *read)
    return found, OP.vjp["logits"](RAW, g, dense, dense.shape, *read)


@pytest.mark.parametrize("packed", [None, "mxfp8", "mxfp6_e3m2"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("smoothing", "ignored"), [(0.0, None), (0.1, None), (0.0, 2), (0.2, 2)])
def test_losses_and_gradients_are_those_of_the_cpu(reduction, smoothing, ignored, packed):
    x = dense = logits()
    if packed:
        x = QTensor.quantize(dense, scheme(packed))
        dense = x.dequantize()
    static = {"labels": LABELS, "reduction": reduction, "label_smoothing": smoothing, "ignore_index": ignored}
    before = launch.launches
    found = forward(x, **static)
    assert launch.launches - before == (1 if reduction == "none" else 2)
    wanted = np.asarray(OP.forward(dense, **static))
    assert found.shape == wanted.shape
    assert np.allclose(found, wanted, rtol=1e-6, atol=1e-6)
    g = np.asarray(np.random.default_rng(1).standard_normal(wanted.shape), np.float32)
    before = launch.launches
    found, wanted = gradient(g, x, dense, **static)
    assert launch.launches - before == 1
    assert np.allclose(found, wanted, rtol=1e-5, atol=1e-7)


def test_long_rows_have_the_bits_of_short_ones():
    x, labels, g = logits((3, 90)), np.array([5, 89, 0]), np.array(0.7, np.float32)
    results = []
    for shape in (Shape(4, 8, 3, False, True), Shape(4, 8, 0, False, True)):
        found, grown = np.zeros(3, np.float32), np.zeros((3, 90), np.float32)
        assert losses.losses(x, labels, found, 0.1, shape=shape)
        assert losses.losses_gradient(x, labels, g, 3.0, grown, 0.1, shape=shape)
        results.append(found.tobytes() + grown.tobytes())
    assert results[0] == results[1]


def test_labels_on_the_host_are_checked():
    with pytest.raises(IndexingError, match="labels from 0 to 10"):
        forward(logits(), labels=np.where(LABELS == 9, 10, LABELS))
    with pytest.raises(ShapeError):
        forward(logits(), labels=LABELS[0])
    assert on_device.cross_entropy is _forwards["cross_entropy"]


def test_a_label_on_the_device_that_is_no_class_gives_nan():
    out = np.zeros(2, np.float32)
    assert losses.losses(logits((2, 4)), np.array([4, 1]), out)
    assert np.isnan(out[0])
    assert np.isfinite(out[1])


@pytest.mark.parametrize("static", [{"reduction": "median"}, {"label_smoothing": 2.0}])
def test_what_the_op_refuses_is_left_to_it(static):
    assert forward(logits(), labels=LABELS, **static) is NotImplemented
