"""QTensor under arguments that don't fit: errors of ours, and no scale that makes values vanish."""

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, AutoqError, DTypeError, IndexingError, ShapeError

X = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
Q = aq.QTensor.quantize(X, aq.mxfp8)
STOCHASTIC = aq.int4.replace(rounding="stochastic")
N = aq.QTensor.quantize(X, aq.nvfp4)


def given(scheme, scales):
    return lambda: aq.QTensor.quantize(X, scheme, scales=scales)


REFUSED = {
    "NaN scales": (ArgumentError, given(aq.mxfp8, np.full((4, 2), np.nan))),
    "infinite scales": (ArgumentError, given(aq.int4, np.full((4, 2), np.inf))),
    "scales beyond float32": (ArgumentError, given(aq.int4, np.full((4, 2), 1e39))),
    "negative scales": (ArgumentError, given(aq.int4, -np.ones((4, 2)))),
    "a negative tensor amax": (ArgumentError, given(aq.nvfp4, (np.ones((4, 4)), -1.0))),
    "a tensor amax of None": (ArgumentError, given(aq.nvfp4, (np.ones((4, 4)), None))),
    "a tensor amax of strings": (ArgumentError, given(aq.nvfp4, (np.ones((4, 4)), "a"))),
    "three tensor amaxes": (ArgumentError, given(aq.nvfp4, (np.ones((4, 4)), np.ones(3)))),
    "ragged scales": (ShapeError, given(aq.mxfp8, [[1.0], [1.0, 2.0]])),
    "a pair for one level": (ShapeError, given(aq.mxfp8, (np.ones((4, 2)), 1.0))),
    "a number as a draw": (ArgumentError, lambda: aq.QTensor.quantize(X, STOCHASTIC, draw=3)),
    "no scheme": (AutoqError, lambda: aq.QTensor.quantize(X, "mxfp")),
    "decoding to a scheme": (DTypeError, lambda: Q.dequantize(aq.mxfp4)),
    "out that is a number": (ShapeError, lambda: Q.dequantize(out=3)),
    "a shape of strings": (ShapeError, lambda: Q.reshape("a")),
    "a shape of None": (ShapeError, lambda: Q.reshape(None)),
    "a shape of floats": (ShapeError, lambda: Q.reshape(2.0, 128)),
    "one axis of two": (ShapeError, lambda: Q.permute_dims(0)),
    "axes of None": (ShapeError, lambda: Q.permute_dims(None)),
    "axes of floats": (ShapeError, lambda: Q.transpose(1.5, 0)),
    "a place of None": (ShapeError, lambda: Q.expand_dims(None)),
    "a place of strings": (ShapeError, lambda: Q.expand_dims("a")),
    "squeezing a float": (ShapeError, lambda: Q.squeeze(1.0)),
    "broadcasting to None": (ShapeError, lambda: Q.broadcast_to(None)),
    "broadcasting to a number": (ShapeError, lambda: Q.broadcast_to(3)),
    "flipping strings": (ShapeError, lambda: Q.flip("a")),
    "ragged positions": (IndexingError, lambda: Q.take([[0], [1, 2]], 0)),
    "an axis of strings": (ShapeError, lambda: Q.take([0], "a")),
    "a step of 0": (IndexingError, lambda: Q[::0]),
    "a slice of strings": (IndexingError, lambda: Q[:"a"]),
    "a ragged index": (IndexingError, lambda: Q[[[0, 1], [2]]]),
    "72 axes": (IndexingError, lambda: Q[(None,) * 70]),
    "a tensor of a shape of strings": (
        ShapeError,
        lambda: aq.QTensor(Q.words, Q.scales, None, Q.scheme, "a"),
    ),
    "a layout of 3": (DTypeError, lambda: aq.QTensor(Q.words, Q.scales, None, Q.scheme, (4, 64), layout=3)),
    "a tensor scale of strings": (
        DTypeError,
        lambda: aq.QTensor(N.words, N.scales, "a", N.scheme, (4, 64)),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_an_error_of_ours(case):
    error, call = REFUSED[case]
    with pytest.raises(error):
        call()


def test_comparing_with_anything_else_is_false():
    assert not Q.same_bits(None)
    assert not Q.same_bits(N)
    assert not Q.shares_memory(3)


@pytest.mark.parametrize("scheme", [aq.mxfp8, aq.nvfp4_2d, aq.fp8_e4m3, aq.mxfp8.replace(block=(3, 5))])
def test_as_many_axes_as_numpy_has_are_encoded_like_two(scheme):
    lead = (1,) * 62
    many = aq.QTensor.quantize(X.reshape(*lead, 4, 64), scheme)
    few = aq.QTensor.quantize(X, scheme)
    np.testing.assert_array_equal(many.dequantize().reshape(4, 64), few.dequantize())
    np.testing.assert_array_equal(many.T.dequantize().reshape(64, 4), few.T.dequantize())


def test_blocks_over_several_axes_are_encoded_matrix_by_matrix():
    stack = np.random.default_rng(1).standard_normal((2, 3, 20, 40)).astype(np.float32)
    for scheme in (aq.mxfp8_2d, aq.mxfp8.replace(block=(3, 5)), aq.mxfp4.replace(block=(2, 4, 8))):
        q = aq.QTensor.quantize(stack, scheme)
        parts = [aq.QTensor.quantize(np.ascontiguousarray(part), scheme) for part in stack]
        np.testing.assert_array_equal(q.dequantize(), np.stack([p.dequantize() for p in parts]))
