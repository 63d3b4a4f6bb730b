"""Convolutions against loops over every product, and as adjoints of each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, ShapeError

PLACEMENTS = [
    {"stride": s, "padding": p, "dilation": d, "groups": g}
    for s, p, d, g in [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1), (3, 0, 1, 4), ((2, 1), (0, 1), (1, 2), 2)]
]


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


def correlated(x, w, stride=1, padding=0, dilation=1, groups=1):
    """Every product of a convolution, one by one."""
    (sh, sw), (ph, pw), (dh, dw) = pair(stride), pair(padding), pair(dilation)
    x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    (n, _, height, width), (m, c, kh, kw) = x.shape, w.shape
    out = np.zeros((n, m, (height - dh * (kh - 1) - 1) // sh + 1, (width - dw * (kw - 1) - 1) // sw + 1))
    for b, o, i, j in itertools.product(*map(range, out.shape)):
        first = o // (m // groups) * c
        for a, p, q in itertools.product(range(c), range(kh), range(kw)):
            out[b, o, i, j] += x[b, first + a, i * sh + p * dh, j * sw + q * dw] * w[o, a, p, q]
    return out


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_conv2d_is_the_sum_of_all_products(placement):
    x, w, b = data(2, 4, 6, 5), data(4, 4 // placement["groups"], 3, 2, seed=1), data(4, seed=2)
    expected = correlated(x, w, **placement) + b[:, None, None]
    np.testing.assert_allclose(aq.conv2d(x, w, b, **placement).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("padding", [0, 2, "same", "valid", ((3, 1),)])
def test_conv1d_is_conv2d_over_one_row(padding):
    x, w, b = data(2, 4, 9), data(6, 2, 4, seed=1), data(6, seed=2)
    low, high = {0: (0, 0), 2: (2, 2), "same": (1, 2), "valid": (0, 0)}.get(padding, (3, 1))
    rows = np.pad(x, ((0, 0), (0, 0), (low, high)))[:, :, None]
    expected = correlated(rows, w[:, :, None], groups=2)[:, :, 0] + b[:, None]
    np.testing.assert_allclose(aq.conv1d(x, w, b, padding=padding, groups=2).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
def test_padding_same_keeps_the_length(kernel, dilation):
    y = aq.conv1d(data(1, 1, 7), data(1, 1, kernel), padding="same", dilation=dilation)
    assert y.shape == (1, 1, 7)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
@pytest.mark.parametrize("extra", [0, 1])
def test_conv_transpose2d_is_the_adjoint_of_conv2d(placement, extra):
    extra = tuple(min(extra, s - 1) for s in pair(placement["stride"]))
    w = data(8, 4 // placement["groups"], 3, 2, seed=1)
    y = data(2, 8, 3, 4)
    up = aq.conv_transpose2d(y, w, output_padding=extra, **placement).numpy()
    x = data(*up.shape, seed=2)
    down = aq.conv2d(x, w, **placement).numpy()
    assert down.shape == y.shape
    np.testing.assert_allclose(np.sum(down * y), np.sum(x * up), rtol=1e-12)


def test_conv_transpose1d_lays_filters_a_stride_apart():
    y = aq.conv_transpose1d([[[1.0, 2.0]]], [[[1.0, 10.0, 100.0]]], [0.5], stride=2, output_padding=1)
    assert y.tolist() == [[[1.5, 10.5, 102.5, 20.5, 200.5, 0.5]]]
    cut = aq.conv_transpose1d([[[1.0, 2.0]]], [[[1.0, 10.0, 100.0]]], stride=2, padding=1)
    assert cut.tolist() == [[[10.0, 102.0, 20.0]]]


def test_a_weight_as_a_matrix_is_the_same_weight():
    x, w = data(2, 3, 6, 6), data(4, 3, 3, 2, seed=1)
    given = {"kernel_size": (3, 2)}
    np.testing.assert_array_equal(aq.conv2d(x, w.reshape(4, 18), **given).numpy(), aq.conv2d(x, w).numpy())
    w = data(3, 4, 3, 2, seed=1)
    by_matrix = aq.conv_transpose2d(x, w.reshape(3, 24), **given).numpy()
    np.testing.assert_array_equal(by_matrix, aq.conv_transpose2d(x, w).numpy())


@pytest.mark.parametrize("chunk", [1, 40])
def test_samples_are_laid_out_in_chunks_of_bounded_size(monkeypatch, chunk):
    x, w = aq.tensor(data(5, 2, 6, 6), requires_grad=True), aq.tensor(data(3, 2, 3, 3), requires_grad=True)
    whole = aq.conv2d(x, w)
    whole.sum().backward()
    grads, x.grad, w.grad = (x.grad.numpy(), w.grad.numpy()), None, None
    for bound in ("_CHUNK", "_CHUNK_ON_GPU"):
        monkeypatch.setattr(f"autoq.ops.convolution_form.{bound}", chunk)
    parts = aq.conv2d(x, w)
    parts.sum().backward()
    np.testing.assert_allclose(parts.numpy(), whole.numpy(), rtol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), grads[0], rtol=1e-12)
    np.testing.assert_allclose(w.grad.numpy(), grads[1], rtol=1e-12)


def test_a_packed_signal_stays_packed_and_is_encoded_once():
    x, w = aq.tensor(data(2, 4, 8, 32), dtype="mxfp8"), aq.Parameter(data(4, 4, 3, 3).astype(np.float32))
    y = aq.conv2d(x, w, padding=1)
    expected = aq.conv2d(x.dequantize(), w, padding=1).quantize(aq.mxfp8)
    assert y.dtype == aq.mxfp8
    assert y.value.same_bits(expected.value)


def test_what_backward_needs_of_a_packed_weight_is_saved_packed():
    w = aq.Parameter(data(8, 27).astype(np.float32)).quantize(aq.nvfp4)
    x = aq.tensor(data(2, 3, 6, 6), dtype=np.float32, requires_grad=True)
    y = aq.conv2d(x, w, kernel_size=3)
    saved = {e.op: e.saved_bytes for e in aq.Tape.of(y).entries}
    assert saved["conv2d"] == x.nbytes + w.value.nbytes


def test_empty_batches_and_strides_beyond_the_kernel():
    w = aq.tensor(data(4, 3, 2, 2), requires_grad=True)
    x = aq.tensor(np.zeros((0, 3, 5, 5)), requires_grad=True)
    y = aq.conv2d(x, w)
    y.sum().backward()
    assert y.shape == (0, 4, 4, 4)
    assert x.grad.shape == x.shape
    np.testing.assert_array_equal(w.grad.numpy(), 0)
    x = data(1, 3, 9, 9)
    np.testing.assert_allclose(
        aq.conv2d(x, w, stride=5).numpy(), correlated(x, w.numpy(), stride=5), atol=1e-12
    )


def test_one_nan_reaches_only_the_windows_that_hold_it():
    x = np.zeros((1, 1, 6))
    x[0, 0, 0] = np.nan
    y = aq.conv1d(x, np.ones((1, 1, 2))).numpy()
    assert np.isnan(y[0, 0]).tolist() == [True, False, False, False, False]


X, W = np.ones((1, 4, 5, 5)), np.ones((2, 4, 3, 3))
WRONG = [
    ("conv2d", (X, np.ones((2, 3, 3, 3))), {}, ShapeError, r"weight is \(2, 3, 3, 3\)"),
    ("conv2d", (X, W), {"groups": 2}, ShapeError, "groups=2"),
    ("conv2d", (X, W, np.ones(3)), {}, ShapeError, r"bias is \(3,\), for 2 output channels"),
    ("conv2d", (X[0], W), {}, ShapeError, r"x is \(4, 5, 5\)"),
    ("conv2d", (X, np.ones((2, 4, 6, 3))), {}, ShapeError, r"spans \(6, 3\) over \(5, 5\)"),
    ("conv2d", (X, W), {"dilation": 3}, ShapeError, r"spans \(7, 7\)"),
    ("conv2d", (X, W), {"stride": 0}, ArgumentError, "stride=0"),
    ("conv2d", (X, W), {"stride": (1, 1, 1)}, ArgumentError, "or 2 of them"),
    ("conv2d", (X, W), {"padding": -1}, ArgumentError, "padding=-1"),
    ("conv2d", (X, W), {"padding": "full"}, ArgumentError, "'full'"),
    ("conv2d", (X, W), {"padding": "same", "stride": 2}, ArgumentError, r"with stride \(2, 2\)"),
    ("conv2d", (X, W), {"groups": 0}, ArgumentError, "groups=0"),
    ("conv2d", (X, np.ones((2, 35))), {"kernel_size": 3}, ShapeError, r"\(2, 35\)"),
    ("conv1d", (X, W), {}, ShapeError, "3 axes"),
    ("conv_transpose2d", (X, W), {}, ShapeError, "one row an input channel"),
    ("conv_transpose2d", (X, np.ones((4, 2, 3, 3))), {"output_padding": 1}, ArgumentError, "stride"),
    ("conv_transpose2d", (X, np.ones((4, 2, 3, 3))), {"padding": "same"}, ArgumentError, "'same'"),
    ("conv_transpose2d", (X, np.ones((4, 2, 3, 3))), {"padding": 4}, ShapeError, r"give \(-1, -1\)"),
]


@pytest.mark.parametrize(("name", "operands", "static", "error", "text"), WRONG)
def test_errors_say_what_was_given_allowed_and_what_to_do(name, operands, static, error, text):
    with pytest.raises(error, match=text) as caught:
        getattr(aq, name)(*operands, **static)
    assert name in str(caught.value)
    assert caught.value.allowed
    assert caught.value.remedy
