"""The error records: SQNR, saturation and flushing against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.viz.error import saturated, scale_of_each_value

CATALOG = sorted(aq.CATALOG)


def test_sqnr_is_the_ratio_of_powers_in_decibels():
    x = np.array([4.0, 0.3], np.float32)
    q = aq.QTensor.quantize(x, aq.int4.replace(block=None), scales=np.array([1.0], np.float32))
    error = aq.viz.tensor_error("x", x, q)
    assert error.sqnr == pytest.approx(10 * np.log10((16 + 0.09) / 0.09), rel=1e-6)
    assert error.flushed == 0.5


def test_tensors_are_compared_like_arrays():
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    tensor = aq.tensor(x)
    expected = aq.viz.tensor_error("x", x, aq.QTensor.quantize(x, aq.mxfp4))
    assert aq.viz.tensor_error("x", tensor, tensor.quantize(aq.mxfp4)) == expected


def test_exact_values_have_infinite_sqnr():
    x = np.array([1.0, 2.0, -4.0, 0.0], np.float32)
    error = aq.viz.tensor_error("x", x, aq.QTensor.quantize(x, aq.mxfp8))
    assert error == ("x", np.inf, 0.0, 0.0)


def test_values_saturate_beyond_half_a_step_over_the_largest_code():
    x = np.array([7.0, 7.49, 7.51, -9.0], np.float32)
    q = aq.QTensor.quantize(x, aq.int4.replace(block=None), scales=np.array([1.0], np.float32))
    assert saturated(x, q).tolist() == [False, False, True, True]


def test_floor_saturates_and_round_up_does_not():
    x = np.full((1, 32), 7.9, np.float32)
    shares = [
        aq.viz.tensor_error(rule, x, aq.QTensor.quantize(x, aq.mxfp4.replace(scale_rule=rule))).saturated
        for rule in ("floor", "round_up")
    ]
    assert shares == [1.0, 0.0]


@pytest.mark.parametrize("name", CATALOG)
def test_element_times_scale_of_each_value_is_the_decoded_tensor(name):
    x = np.random.default_rng(3).standard_normal((40, 72), dtype=np.float32)
    q = aq.QTensor.quantize(x, aq.scheme(name))
    elements = q.scheme.element_format.values[q.codes()]
    assert np.array_equal(elements * scale_of_each_value(q), q.dequantize())
