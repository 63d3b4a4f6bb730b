"""Products of packed and dense operands on every device, and the precisions that are chosen for them."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.context import current
from autoq.errors import ArgumentError, ShapeError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("highest", (False, "highest")),
        ("float32", (False, "highest")),
        ("tf32", (False, "tf32")),
        ("bf16", (False, "bf16")),
        ("exact", (True, "highest")),
    ],
)
def test_a_precision_holds_in_its_block(name, expected):
    with aq.precision("bf16"), aq.precision(name):
        assert (current().exact, current().products) == expected
    assert (current().exact, current().products) == (False, "highest")


def test_other_precisions_are_refused():
    with pytest.raises(ArgumentError, match="'tf32' or 'bf16'"):
        aq.precision("half")


@pytest.mark.parametrize("name", ["tf32", "bf16"])
def test_the_cpu_computes_as_ever(name):
    a, b = (aq.Generator(i).normal((5, 7)) for i in range(2))
    a, b = aq.tensor(a, device="cpu"), aq.tensor(b, device="cpu")
    expected = (a @ b.T).numpy()
    with aq.precision(name):
        assert np.array_equal((a @ b.T).numpy(), expected)


SCHEMES = ["mxfp8", "nvfp4", "int8", "fp8_e4m3"]


def leaf(x: np.ndarray, scheme: str | None) -> aq.Tensor:
    t = aq.tensor(x, requires_grad=True)
    return t if scheme is None else aq.quantize(t, scheme)


@pytest.mark.parametrize("scheme", [None, *SCHEMES])
@pytest.mark.parametrize("shape", [(3, 32), (2, 3, 32), (32,)])
def test_linear_and_its_gradients_are_the_exact_ones(scheme, shape):
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(s).astype(np.float32) for s in (shape, (16, 32)))
    bias = rng.standard_normal(16).astype(np.float32)
    tensors = [aq.tensor(v, requires_grad=True) for v in (x, weight, bias)]
    inputs = [t if scheme is None else aq.quantize(t, scheme) for t in tensors[:2]]
    y = aq.linear(*inputs, tensors[2], out_dtype=aq.float32)
    values = [
        t.dequantize().numpy().astype(np.float64) if scheme else t.numpy().astype(np.float64) for t in inputs
    ]
    assert np.allclose(y.numpy(), values[0] @ values[1].T + bias, atol=1e-4)
    g = rng.standard_normal(y.shape).astype(np.float32)
    y.backward(g)
    rows = values[0].reshape(-1, 32), g.reshape(-1, 16).astype(np.float64)
    expected = [g @ values[1], rows[1].T @ rows[0], rows[1].sum(axis=0)]
    for t, want in zip(tensors, expected, strict=True):
        assert np.allclose(t.grad.numpy(), want, atol=1e-4)


@pytest.mark.parametrize("scheme", [None, "mxfp8"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 32), (32, 4)),
        ((2, 3, 32), (32, 4)),
        ((3, 32), (2, 32, 4)),
        ((2, 1, 3, 32), (5, 32, 4)),
        ((32,), (32, 4)),
        ((3, 32), (32,)),
    ],
)
def test_matmul_and_its_gradients(scheme, a, b):
    rng = np.random.default_rng(1)
    x, y = (aq.tensor(rng.standard_normal(s).astype(np.float32), requires_grad=True) for s in (a, b))
    left = x if scheme is None else aq.quantize(x, scheme)
    values = left.dequantize().numpy() if scheme else left.numpy()
    z = aq.matmul(left, y, out_dtype=aq.float32)
    assert np.allclose(z.numpy(), values @ y.numpy(), atol=1e-4)
    z.sum().backward()
    eager_x, eager_y = (
        aq.tensor(values, requires_grad=True, device="cpu"),
        aq.tensor(y.numpy(), requires_grad=True, device="cpu"),
    )
    aq.matmul(eager_x, eager_y).sum().backward()
    assert np.allclose(x.grad.numpy(), eager_x.grad.numpy(), atol=1e-4)
    assert np.allclose(y.grad.numpy(), eager_y.grad.numpy(), atol=1e-4)


def test_what_does_not_fit_says_why():
    x, weight = aq.ones((3, 32)), aq.quantize(aq.ones((4, 16)), "nvfp4")
    with pytest.raises(ShapeError, match="inner axes differ"):
        x @ weight.T
    with pytest.raises(ShapeError, match="weight is"):
        aq.linear(x, weight)


def test_products_of_whole_numbers_stay_whole():
    x = aq.tensor(np.arange(6).reshape(2, 3))
    assert (x @ x.T).numpy().tolist() == [[5, 14], [14, 50]]
