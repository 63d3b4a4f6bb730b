"""Gradients of unusual calls, and the functions that differentiate functions."""

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, DTypeError, GradientError


def leaf(*shape):
    return aq.tensor(np.random.default_rng(0).standard_normal(shape), dtype=aq.float32, requires_grad=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: aq.take(x, [], axis=1),
        lambda x: aq.take(x.quantize(aq.mxfp8), [], axis=0),
        lambda x: x[[]],
        lambda x: x.quantize(aq.int4)[4:],
        lambda x: aq.concat([x, x], axis=np.int64(-1)),
        lambda x: aq.broadcast_to(x, (0, 4, 64)),
        lambda x: x.broadcast_to([2, 4, 64])[:0],
    ],
)
def test_a_gradient_through_nothing_is_zeros(call):
    x = leaf(4, 64)
    y = call(x)
    (y * 0).sum().backward()
    assert x.grad.shape == x.shape
    assert not x.grad.numpy().any()


def test_each_argument_is_differentiated_once():
    product = lambda x, y: (x * y).sum()  # noqa: E731
    x, y = leaf(2), leaf(2)
    for argnums in ((0, 0), (1, -1), "a", None, (0, "a"), 1.0):
        with pytest.raises(ArgumentError, match="argnums"):
            aq.grad(product, argnums=argnums)(x, y)
    np.testing.assert_array_equal(aq.grad(product, argnums=[1, 0])(x, y)[0].numpy(), x.numpy())


@pytest.mark.parametrize("returned", [3.0, None, (), "a", [leaf(1)]])
def test_vjp_and_grad_need_a_function_that_returns_a_tensor(returned):
    for transform in (aq.vjp, lambda f, x: aq.value_and_grad(f)(x)):
        with pytest.raises(GradientError):
            transform(lambda x: returned, leaf(1))


def test_integers_have_no_gradient_to_quantize():
    with pytest.raises(DTypeError, match="no gradient"):
        aq.quantize_grad(aq.tensor([1, 2]), "int4")
