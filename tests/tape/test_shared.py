"""What the rules of an operation have in common."""

import numpy as np

import autoq as aq
from autoq.tape.apply import apply
from autoq.tape.op import Op
from autoq.testing import check_grads


def test_what_rules_share_is_computed_once_a_backward_and_differentiated():
    runs = []

    def shared(F, a, b):
        runs.append(F)
        return F.exp(a * b)

    op = Op(
        "exponential_of_product",
        lambda a, b: np.exp(a * b),
        {"a": lambda F, g, b, shared: g * shared * b, "b": lambda F, g, a, shared: g * shared * a},
        shared=shared,
    )
    a, b = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    check_grads(lambda a, b: apply(op, a, b), a, b, order=2)
    runs.clear()
    both = apply(op, aq.tensor(a, requires_grad=True), aq.tensor(b, requires_grad=True))
    both.sum().backward()
    assert len(runs) == 1
    one = aq.tensor(a, requires_grad=True)
    apply(op, one, aq.tensor(b)).sum().backward()
    assert len(runs) == 2
    np.testing.assert_allclose(one.grad.numpy(), np.exp(a * b) * b, rtol=1e-6)
