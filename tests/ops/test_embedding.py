"""Embedding: rows by number, as they are stored; and how their gradients add up."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.devices import to_host
from autoq.errors import ArgumentError, IndexingError, ShapeError


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
def test_rows_take_the_place_of_their_numbers(shape):
    table, indices = data(7, 4), np.random.default_rng(1).integers(0, 7, shape)
    y = aq.embedding(aq.Parameter(table), indices)
    np.testing.assert_array_equal(y.numpy(), table[indices])
    assert y.propagation is aq.Propagation.PROPAGATE


def test_numbers_may_be_a_tensor_or_a_list():
    table = aq.tensor(data(4, 2))
    for indices in (aq.tensor(np.array([3, 1])), [3, 1], np.array([3, 1], np.uint8)):
        np.testing.assert_array_equal(aq.embedding(table, indices).numpy(), table.numpy()[[3, 1]])
    assert aq.embedding(table, []).shape == (0, 2)


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "int4", "mxfp6_e2m3"])
def test_packed_rows_are_copied_without_decoding(name):
    table = aq.tensor(data(7, 64), dtype=aq.scheme(name))
    y = aq.embedding(table, [5, 5, 0])
    assert y.dtype == table.dtype
    np.testing.assert_array_equal(y.numpy(), table.numpy()[[5, 5, 0]])
    np.testing.assert_array_equal(to_host(y.value.codes()), to_host(table.value.codes())[[5, 5, 0]])
    assert aq.embedding(table, [5], out_dtype=aq.float32).dtype == aq.float32


@pytest.mark.parametrize("indices", [3, (3, 1), [3, 1], np.int64(3), range(3), [[1], [2]]])
def test_whatever_names_the_rows_the_result_propagates(indices):
    table = data(5, 2)
    y = aq.embedding(aq.Parameter(table), indices)
    assert y.propagation is aq.Propagation.PROPAGATE
    np.testing.assert_array_equal(y.numpy(), table[np.asarray(indices)])


def test_the_result_of_a_lookup_votes_though_the_table_does_not():
    table = aq.Parameter(data(7, 32)).quantize(aq.mxfp8)
    assert table.propagation is aq.Propagation.INHIBIT
    assert (aq.embedding(table, [1, 2]) * aq.Parameter(data(32))).dtype == aq.mxfp8


def test_gradients_of_repeated_rows_add_up_and_padding_gets_none():
    table, g = aq.Parameter(data(5, 2)), data(2, 3, 2, seed=1)
    indices = np.array([[1, 4, 1], [0, 1, 4]])
    aq.embedding(table, indices).backward(g)
    expected = np.zeros((5, 2), np.float32)
    np.add.at(expected, indices, g)
    np.testing.assert_allclose(table.grad.numpy(), expected, rtol=1e-6)
    table.grad = None
    aq.embedding(table, indices, padding_idx=1).backward(g)
    expected[1] = 0
    np.testing.assert_allclose(table.grad.numpy(), expected, rtol=1e-6)


def test_padding_gets_no_gradient_where_entries_have_several_axes():
    table = aq.tensor(data(3, 2, 2), requires_grad=True)
    aq.embedding(table, [0, 1, 2, 0], padding_idx=1).backward(np.ones((4, 2, 2), np.float32))
    assert table.grad.numpy()[:, 0, 0].tolist() == table.grad.numpy()[:, 1, 1].tolist() == [2, 0, 1]


def test_padding_has_no_second_gradient_either():
    table = aq.tensor(data(3, 2), dtype=np.float64, requires_grad=True)
    y = aq.embedding(table, [0, 1, 1], padding_idx=1)
    (y * y * y).sum().backward(create_graph=True)
    g, table.grad = table.grad, None
    g.sum().backward()
    expected = np.zeros((3, 2))
    expected[0] = 6 * table.numpy()[0]
    np.testing.assert_allclose(table.grad.numpy(), expected)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((np.ones((3, 2)), [3]), IndexingError, "from 3 to 3"),
        ((np.ones((3, 2)), [0, -1]), IndexingError, "from -1 to 0"),
        ((np.ones((3, 2)), [0.5]), IndexingError, "float"),
        ((np.ones((3, 2)), [True]), IndexingError, "bool"),
        ((np.ones((0, 2)), [0]), IndexingError, "for 0 rows"),
        ((np.float64(1.0), [0]), ShapeError, "weight is"),
        ((np.ones((3, 2)), [0], 3), ArgumentError, "padding_idx=3"),
    ],
)
def test_errors_say_what_was_given_allowed_and_what_to_do(arguments, error, text):
    with pytest.raises(error, match=text) as caught:
        aq.embedding(*arguments)
    assert caught.value.allowed
    assert caught.value.remedy
