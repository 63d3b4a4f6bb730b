"""Repeating, turning and reordering: NumPy's results, and packed values that keep their bits."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, IndexingError, ShapeError

X = np.random.default_rng(0).standard_normal((4, 3, 64)).astype(np.float32)
SCHEMES = [aq.mxfp8, aq.mxfp6_e2m3, aq.mxfp4, aq.nvfp4, aq.int8, aq.QuantScheme("int8", None)]
MOVES = {
    "repeat rows": (lambda x: aq.repeat(x, 2, axis=0), lambda x: np.repeat(x, 2, 0)),
    "repeat by counts": (lambda x: aq.repeat(x, [0, 2, 1], axis=1), lambda x: np.repeat(x, [0, 2, 1], 1)),
    "tile": (lambda x: aq.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
    "tile into more axes": (lambda x: aq.tile(x, (2, 1, 1, 1)), lambda x: np.tile(x, (2, 1, 1, 1))),
    "roll rows": (lambda x: aq.roll(x, (1, -1), (0, 1)), lambda x: np.roll(x, (1, -1), (0, 1))),
    "roll whole blocks": (lambda x: aq.roll(x, 32, -1), lambda x: np.roll(x, 32, -1)),
    "roll flat by whole blocks": (lambda x: aq.roll(x, 96), lambda x: np.roll(x, 96)),
    "moveaxis": (lambda x: aq.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1)),
    "moveaxis of two": (lambda x: aq.moveaxis(x, (0, 2), (1, 0)), lambda x: np.moveaxis(x, (0, 2), (1, 0))),
    "swapaxes": (lambda x: aq.swapaxes(x, 0, -1), lambda x: np.swapaxes(x, 0, -1)),
    "flatten": (lambda x: x.flatten(), lambda x: x.reshape(-1)),
    "flatten two": (lambda x: x.flatten(1), lambda x: x.reshape(4, -1)),
    "ravel": (lambda x: x.ravel(), lambda x: x.reshape(-1)),
    "unstack": (lambda x: x.unstack(1)[2], lambda x: x[:, 2]),
}


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.name)
@pytest.mark.parametrize("name", MOVES)
def test_blocks_that_can_follow_keep_their_bits(name, scheme):
    move, numpy = MOVES[name]
    q = aq.tensor(X, dtype=scheme, requires_grad=True)
    out = move(q)
    assert out.dtype == scheme
    np.testing.assert_array_equal(out.numpy(), numpy(q.numpy()))
    out.backward(np.ones(out.shape, np.float32))
    picked = numpy(np.arange(X.size).reshape(X.shape))
    np.testing.assert_array_equal(
        q.grad.numpy(), np.bincount(picked.reshape(-1), minlength=X.size).reshape(X.shape)
    )


@pytest.mark.parametrize("name", MOVES)
def test_layout_functions_keep_an_inhibiting_flag(name):
    weight = aq.Parameter(X, dtype=aq.mxfp4)
    assert MOVES[name][0](weight).tensor_type is weight.tensor_type


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.name)
@pytest.mark.parametrize(
    "move",
    [
        lambda x: aq.roll(x, 5, -1),
        lambda x: aq.roll(x, 7),
        lambda x: aq.repeat(x, 2),
        lambda x: aq.tril(x[0], k=1),
        lambda x: aq.diagonal(x),
    ],
)
def test_blocks_that_are_cut_are_decoded_and_encoded_once(move, scheme):
    q = aq.tensor(X, dtype=scheme)
    out, expected = move(q), move(q.dequantize())
    again = expected.quantize(out.dtype)
    assert np.array_equal(out.numpy(), expected.numpy()) or out.qtensor.same_bits(again.qtensor)


@pytest.mark.parametrize("k", [-5, -1, 0, 2, 70])
def test_triangles_equal_numpy(k):
    np.testing.assert_array_equal(aq.tril(X, k).numpy(), np.tril(X, k))
    np.testing.assert_array_equal(aq.triu(X, k).numpy(), np.triu(X, k))
    assert aq.tril(aq.tensor(np.ones((2, 2), bool))).dtype == aq.bool_


def test_grids_equal_numpy():
    vectors = [np.arange(2.0), np.arange(3.0), np.arange(4.0)]
    for indexing in ("xy", "ij"):
        for count in (0, 1, 2, 3):
            found = aq.meshgrid(*vectors[:count], indexing=indexing)
            expected = np.meshgrid(*vectors[:count], indexing=indexing)
            assert len(found) == len(expected)
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_array_equal(a.numpy(), b)


def test_broadcast_arrays_are_views_with_gradients():
    a = aq.tensor(np.ones((2, 1)), requires_grad=True)
    b = aq.tensor(X[0], dtype=aq.mxfp8)
    wide, same = aq.broadcast_arrays(a, b[:2])
    assert wide.shape == same.shape == (2, 64)
    wide.sum().backward()
    assert a.grad.tolist() == [[64.0], [64.0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, aq.mxfp4])
def test_one_hot_in_any_dtype(dtype):
    indices = np.array([[0, 2], [1, 1]])
    x = aq.one_hot(indices, 3, dtype)
    assert x.dtype == dtype
    np.testing.assert_array_equal(x.numpy(), np.eye(3)[indices])
    assert aq.one_hot(aq.tensor(indices), 3).shape == (2, 2, 3)
    assert aq.one_hot(np.zeros((0,), int), 3).shape == (0, 3)


WRONG = [
    (lambda: aq.repeat(X, -1, 0), ArgumentError, "repeats=-1"),
    (lambda: aq.repeat(X, [1, 2], 0), ArgumentError, "of 4 entries"),
    (lambda: aq.repeat(X, 2, 3), ShapeError, "axis=3"),
    (lambda: aq.tile(X, -1), ArgumentError, "repetitions=-1"),
    (lambda: aq.roll(X, (1, 2), 0), ArgumentError, "shift=(1, 2)"),
    (lambda: aq.roll(X, 1, 3), ShapeError, "axis=3"),
    (lambda: aq.roll(X, 0.5), ArgumentError, "shift=0.5"),
    (lambda: aq.moveaxis(X, (0, 1), 2), ShapeError, "source=(0, 1)"),
    (lambda: aq.moveaxis(X, 0, 3), ShapeError, "axis=3"),
    (lambda: aq.swapaxes(X, 0, 3), ShapeError, "axis=3"),
    (lambda: aq.tensor(X).flatten(2, 1), ShapeError, "axes 2 to 1"),
    (lambda: aq.tril(np.ones(3)), ShapeError, "(3,)"),
    (lambda: aq.unstack(np.float32(1)), ShapeError, "axis=0"),
    (lambda: aq.meshgrid(X), ShapeError, "(4, 3, 64)"),
    (lambda: aq.meshgrid([1.0], indexing="yx"), ArgumentError, "'yx'"),
    (lambda: aq.broadcast_arrays(np.ones(2), np.ones(3)), ShapeError, "(2,) and (3,)"),
    (lambda: aq.one_hot([3], 3), IndexingError, "from 3 to 3"),
    (lambda: aq.one_hot([0.5], 3), IndexingError, "float"),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG)
def test_error_says_what_was_given_allowed_and_what_to_do(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert caught.value.allowed
    assert caught.value.remedy


@pytest.mark.parametrize("move", [aq.transpose, aq.permute_dims])
@pytest.mark.parametrize("axis", [0, -1, np.int64(0)])
def test_the_only_axis_of_a_vector_may_be_a_number(move, axis):
    x = aq.tensor(np.arange(32.0), dtype=aq.float32, requires_grad=True)
    for source in (x, x.quantize(aq.mxfp8)):
        x.grad = None
        moved = move(source, axis)
        assert moved.dtype == source.dtype
        moved.backward(np.arange(32, dtype=np.float32))
        np.testing.assert_array_equal(x.grad.numpy(), np.arange(32))
