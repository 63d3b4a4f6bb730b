"""einsum and what is made of it: NumPy's results for any operands, gradients to any order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, ShapeError

CASES = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ba", (2, 3)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iji->j", (2, 3, 2)),
    ("ij,ik,il->jkl", (2, 3), (2, 4), (2, 2)),
    ("a,b,c,d->dcba", (2,), (3,), (2,), (3,)),
    ("...ij,...jk->...ik", (5, 2, 3), (3, 4)),
    ("...ij,...jk", (4, 1, 2, 3), (5, 3, 2)),
    ("i...,i...->...", (2, 3), (2, 1)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    (" i j -> j i ", (2, 3)),
    ("->", ()),
    (",i->i", (), (3,)),
    ("ij,ij->", (0, 3), (0, 3)),
]


def operands(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize(("subscripts", "shapes"), [(s, shapes) for s, *shapes in CASES])
def test_einsum_equals_numpy(subscripts, shapes):
    arrays = operands(shapes)
    np.testing.assert_allclose(
        aq.einsum(subscripts, *arrays).numpy(), np.einsum(subscripts, *arrays), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize(("subscripts", "shapes"), [(s, shapes) for s, *shapes in CASES if "i" in s])
def test_gradients_are_einsums_of_the_other_operands(subscripts, shapes):
    arrays = operands(shapes)
    leaves = [aq.tensor(a, requires_grad=True) for a in arrays]
    out = aq.einsum(subscripts, *leaves)
    cotangent = np.asarray(np.random.default_rng(1).standard_normal(out.shape))
    out.backward(cotangent)
    for i, leaf in enumerate(leaves):  # linear in each operand: the gradient is found one unit at a time
        expected = np.zeros(leaf.shape)
        for place in itertools.product(*map(range, leaf.shape)):
            unit = np.zeros(leaf.shape)
            unit[place] = 1
            changed = [*arrays[:i], unit, *arrays[i + 1 :]]
            expected[place] = np.sum(cotangent * np.einsum(subscripts, *changed))
        np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=1e-10, atol=1e-12)


def test_one_tensor_as_two_operands_gets_both_gradients():
    x = aq.tensor([1.0, 2.0], requires_grad=True)
    aq.einsum("i,i->", x, x).backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_einsum_of_mixed_operands_follows_the_type_rule():
    q = aq.tensor(operands([(4, 32)])[0], dtype=aq.mxfp8)
    weight = aq.Parameter(operands([(32, 64)])[0], dtype=aq.nvfp4)
    out = aq.einsum("ij,jk->ik", q, weight)
    assert out.dtype == aq.mxfp8
    assert out.qtensor.same_bits(aq.matmul(q, weight).qtensor)
    assert aq.einsum("ij,jk->ik", q, weight, out_dtype=aq.float32).dtype == aq.float32
    assert aq.einsum("i,i->", aq.tensor([1, 2]), aq.tensor([3, 4])).dtype == aq.int64
    assert aq.einsum("i,->i", aq.tensor([1.0, 2.0], aq.float16), 3).dtype == aq.float16


@pytest.mark.parametrize("axes", [0, 1, 2, ([0], [1]), ([2, 1], [0, 1]), (-1, 0)])
def test_tensordot_equals_numpy(axes):
    a, b = operands([(2, 3, 2), (2, 3, 2)]) if axes == ([0], [1]) else operands([(2, 3, 2), (2, 3, 4)])
    if axes == 2:
        b = operands([(3, 2, 4)])[0]
    if axes == ([0], [1]):
        b = operands([(3, 2)])[0]
    np.testing.assert_allclose(aq.tensordot(a, b, axes).numpy(), np.tensordot(a, b, axes), rtol=1e-12)


@pytest.mark.parametrize(("a", "b", "axis"), [((3,), (3,), -1), ((2, 3), (3,), -1), ((3, 2), (3, 1), 0)])
def test_vecdot_equals_the_sum_of_products(a, b, axis):
    x, y = operands([a, b])
    np.testing.assert_allclose(aq.vecdot(x, y, axis=axis).numpy(), (x * y).sum(axis), rtol=1e-12)


def test_outer_and_trace_and_diagonal_equal_numpy():
    a, b = operands([(3,), (4,)])
    np.testing.assert_array_equal(aq.outer(a, b).numpy(), np.outer(a, b))
    x = operands([(2, 3, 4)])[0]
    for offset in (-3, -1, 0, 2, 4):
        diagonal = np.diagonal(x, offset, -2, -1)
        np.testing.assert_array_equal(aq.diagonal(x, offset).numpy(), diagonal)
        np.testing.assert_allclose(aq.trace(x, offset=offset).numpy(), diagonal.sum(-1))


def test_exact_precision_accumulates_in_float64():
    x = np.array([1e8, 1.0, -1e8, 1.0], np.float32)
    with aq.precision("exact"):
        assert aq.einsum("i,i->", x, np.ones(4, np.float32)).item() == 2.0


WRONG = [
    (lambda: aq.einsum("ij,jk->ik", np.ones((2, 3))), ArgumentError, "names 2 operands, 1 are given"),
    (lambda: aq.einsum("ij", np.ones(3)), ShapeError, "'ij'"),
    (lambda: aq.einsum("i,i->", np.ones(3), np.ones(2)), ShapeError, "lengths 3 and 2"),
    (lambda: aq.einsum("i->j", np.ones(3)), ArgumentError, "'j'"),
    (lambda: aq.einsum("i->ii", np.ones(3)), ArgumentError, "'ii'"),
    (lambda: aq.einsum("...i->i", np.ones((2, 3))), ArgumentError, "'i'"),
    (lambda: aq.einsum("i.j", np.ones((2, 3))), ArgumentError, "'i.j'"),
    (lambda: aq.einsum("i->i->i", np.ones(3)), ArgumentError, "subscripts"),
    (lambda: aq.einsum(np.ones(3), "i"), ArgumentError, "Pass the subscripts first"),
    (lambda: aq.einsum("i"), ArgumentError, "0 operands"),
    (lambda: aq.tensordot(np.ones((2, 3)), np.ones((2, 3)), 1), ShapeError, "lengths"),
    (lambda: aq.tensordot(np.ones(2), np.ones(2), 2), ShapeError, "axes=2"),
    (lambda: aq.tensordot(np.ones(2), np.ones(2), ([0], [0, 0])), ShapeError, "axis=(0, 0)"),
    (lambda: aq.outer(np.ones((2, 2)), np.ones(2)), ShapeError, "(2, 2)"),
    (lambda: aq.vecdot(np.ones(2), np.ones(3)), ShapeError, "lengths 2 and 3"),
    (lambda: aq.trace(np.ones(2)), ShapeError, "(2,)"),
    (lambda: aq.diagonal(np.ones((2, 2)), axis1=0, axis2=0), ShapeError, "axis=(0, 0)"),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG)
def test_error_says_what_was_given_allowed_and_what_to_do(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert caught.value.allowed
    assert caught.value.remedy
