"""jacobian, hessian, jvp and hvp against formulas, finite differences and each other."""

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, GradientError, ShapeError

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((2, 3)), RNG.standard_normal((3, 4))


def nest(x, w):
    return {"product": (x @ w).tanh(), "rest": [x * 2, ((w * w).sum(), x[0] * w[:, 0])]}


def flat(tree):
    if isinstance(tree, dict):
        return [y for value in tree.values() for y in flat(value)]
    if isinstance(tree, list | tuple):
        return [y for value in tree for y in flat(value)]
    return [tree]


def difference(f, x, step=1e-6):
    """The jacobian of f by x by central differences, of shape f.shape + x.shape."""
    columns = []
    for k in range(x.size):
        d = np.zeros(x.size)
        d[k] = step
        ahead, behind = (f(aq.tensor(x + s * d.reshape(x.shape))).numpy() for s in (1, -1))
        columns.append((ahead - behind) / (2 * step))
    return np.stack(columns, axis=-1).reshape(*columns[0].shape, *x.shape)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobian_of_nests_against_central_differences(mode):
    found = aq.jacobian(nest, argnums=(0, 1), mode=mode)(aq.tensor(X), aq.tensor(W))
    assert found.keys() == {"product", "rest"}
    assert type(found["product"]) is tuple
    blocks = flat(found)
    values = flat(nest(aq.tensor(X), aq.tensor(W)))
    for k, value in enumerate(values):
        by_x = difference(lambda x, k=k: flat(nest(x, aq.tensor(W)))[k], X)
        by_w = difference(lambda w, k=k: flat(nest(aq.tensor(X), w))[k], W)
        assert blocks[2 * k].shape == value.shape + X.shape
        np.testing.assert_allclose(blocks[2 * k].numpy(), by_x, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(blocks[2 * k + 1].numpy(), by_w, rtol=1e-7, atol=1e-8)


def test_jacobian_by_a_nest_has_the_nest_in_it():
    point = {"a": aq.tensor([1.0, 2.0]), "b": [aq.tensor(3.0)]}
    for mode in ("reverse", "forward"):
        found = aq.jacobian(lambda p: p["a"] * p["b"][0], mode=mode)(point)
        assert found["a"].tolist() == [[3.0, 0.0], [0.0, 3.0]]
        assert found["b"][0].tolist() == [1.0, 2.0]


def test_both_modes_agree_through_straight_through_casts_and_clip():
    scheme = aq.int4.replace(block=None)
    x = aq.tensor([0.4, -2.6, 9.0, 3.3], dtype=aq.float64)

    def f(x):
        q = aq.quantize(x, scheme, scales=np.array([1.0], np.float32), ste="clip")
        return (q.dequantize(aq.float64) * x).exp() / 1e20

    reverse, forward = (aq.jacobian(f, mode=m)(x).numpy() for m in ("reverse", "forward"))
    decoded = np.array([0.0, -3.0, 7.0, 3.0])
    expected = np.exp(decoded * x.numpy()) / 1e20 * (decoded + x.numpy() * np.array([1, 1, 0, 1]))
    # The gradient of a quantized signal is float32 (S23).
    np.testing.assert_allclose(np.diag(reverse), expected, rtol=2e-7)
    np.testing.assert_allclose(forward, reverse, rtol=2e-7)


def test_jacobian_of_quantized_tensors_is_dense():
    q = aq.tensor(np.linspace(-1, 1, 32, dtype=np.float32), dtype=aq.mxfp8)
    found = aq.jacobian(lambda q: q * 2)(q)
    assert found.dtype == aq.float32
    assert (found.numpy() == 2 * np.eye(32)).all()


def test_jacobian_of_what_does_not_depend_is_zero_and_of_nothing_is_empty():
    x = aq.tensor([1.0, 2.0])
    for mode in ("reverse", "forward"):
        assert aq.jacobian(lambda x: aq.tensor([5.0]), mode=mode)(x).tolist() == [[0.0, 0.0]]
        assert aq.jacobian(lambda x: x[:0], mode=mode)(x).shape == (0, 2)
        assert aq.jacobian(lambda x: x.sum(), mode=mode)(aq.tensor(np.zeros((0, 3)))).shape == (0, 3)


def test_jacobian_of_a_jacobian_in_any_mix_of_modes():
    x = aq.tensor(np.array([1.0, 2.0]))
    expected = np.zeros((2, 2, 2))
    expected[0, 0, 0], expected[1, 1, 1] = 24, 48
    for one in ("reverse", "forward"):
        for two in ("reverse", "forward"):
            third = aq.jacobian(aq.jacobian(aq.grad(lambda x: (x**4).sum()), mode=one), mode=two)(x)
            np.testing.assert_allclose(third.numpy(), expected, rtol=1e-12)


def test_a_jacobian_of_a_jacobian_has_its_axes_in_order():
    def f(x):  # from two values to three
        return aq.stack([x[0] ** 2 * x[1], x[1] ** 3, x[0] * x[1]])

    expected = np.array([[[6.0, 4.0], [4.0, 0.0]], [[0.0, 0.0], [0.0, 18.0]], [[0.0, 1.0], [1.0, 0.0]]])
    x = aq.tensor(np.array([2.0, 3.0]))
    for one in ("reverse", "forward"):
        for two in ("reverse", "forward"):
            second = aq.jacobian(aq.jacobian(f, mode=one), mode=two)(x)
            np.testing.assert_allclose(second.numpy(), expected, rtol=1e-12)


def test_hessian_and_hvp_against_differences_of_the_gradient():
    def f(x):
        return (x.exp() @ aq.tensor(W)).sin().sum()

    expected = difference(aq.grad(f), X, 1e-5)
    h = aq.hessian(f)(aq.tensor(X))
    np.testing.assert_allclose(h.numpy(), expected, rtol=1e-6, atol=1e-7)
    v = RNG.standard_normal(X.shape)
    product = aq.hvp(f, aq.tensor(X), aq.tensor(v))
    np.testing.assert_allclose(product.numpy(), np.einsum("ijkl,kl", h.numpy(), v), rtol=1e-10)


def test_hessian_and_hvp_of_nests():
    def f(p):
        return (p["a"] * p["b"][0]).sum() * p["b"][0]

    p = {"a": aq.tensor([1.0, 2.0]), "b": [aq.tensor(3.0)]}
    h = aq.hessian(f)(p)
    assert h["a"]["a"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert h["a"]["b"][0].tolist() == [6.0, 6.0]
    assert h["b"][0]["b"][0].item() == 6.0
    product = aq.hvp(f, p, {"a": [1.0, 0.0], "b": [aq.tensor(2.0)]})
    assert product["a"].tolist() == [12.0, 12.0]
    assert product["b"][0].item() == 6.0 + 12.0


@pytest.mark.parametrize(("scheme", "rtol"), [(aq.float64, 1e-12), (aq.int8, 2e-7)])
def test_jvp_is_the_derivative_along_the_direction_and_the_transpose_of_vjp(scheme, rtol):
    x, w = aq.tensor(X), aq.tensor(W)
    dx, dw = RNG.standard_normal(X.shape), RNG.standard_normal(W.shape)

    def f(x, w):
        return (x.astype(scheme).dequantize(aq.float64) @ w).tanh() * x.sum()

    value, tangent = aq.jvp(f, (x, w), (dx, dw))
    assert value.numpy().tolist() == f(x, w).tolist()
    assert not value.requires_grad
    assert not tangent.requires_grad
    u = RNG.standard_normal(value.shape)
    _, pullback = aq.vjp(f, x, w)
    gx, gw = pullback(u)
    forward, backward = np.sum(u * tangent.numpy()), np.sum(gx.numpy() * dx) + np.sum(gw.numpy() * dw)
    np.testing.assert_allclose(forward, backward, rtol=rtol)


def test_jvp_can_be_differentiated_by_primals_and_tangents():
    x = aq.tensor([2.0])
    assert aq.grad(lambda x: aq.jvp(lambda x: x**3, (x,), (x,))[1].sum())(x).tolist() == [36.0]
    assert aq.grad(lambda v: aq.jvp(lambda x: x**3, (x,), (v,))[1].sum())(x).tolist() == [12.0]
    w = aq.Parameter([5.0])
    aq.jvp(lambda x: x * x * w, (x,), ([1.0],))[1].sum().backward()
    assert w.grad.tolist() == [4.0]


def test_jvp_hands_on_what_is_not_a_float_and_zeros_where_nothing_depends():
    value, tangent = aq.jvp(lambda x: [x > 0, aq.tensor([4.0]), x * 2], (aq.tensor([1.0]),), ([3.0],))
    assert value[0].tolist() == tangent[0].tolist() == [True]
    assert tangent[1].tolist() == [0.0]
    assert tangent[2].tolist() == [6.0]


def test_hooks_outside_the_function_do_not_run():
    calls = []
    w = aq.tensor([2.0], requires_grad=True) * 1
    w.register_hook(lambda g: calls.append(g))
    aq.jvp(lambda x: x * w, (aq.tensor([1.0]),), ([1.0],))
    assert not calls


def test_misuse_is_named():
    x = aq.tensor([1.0, 2.0])
    with pytest.raises(ArgumentError, match="mode='backward'"):
        aq.jacobian(lambda x: x, mode="backward")
    with pytest.raises(ArgumentError, match="argnums 1 of a call with 1"):
        aq.jacobian(lambda x: x, argnums=1)(x)
    with pytest.raises(GradientError, match="jacobian of a function that returned"):
        aq.jacobian(lambda x: x > 0)(x)
    with pytest.raises(ShapeError, match=r"a direction of shape \(3,\) for an argument of shape \(2,\)"):
        aq.jvp(lambda x: x, (x,), (aq.tensor([1.0, 2.0, 3.0]),))
    with pytest.raises(ArgumentError, match="directions for 2 arguments of 1"):
        aq.jvp(lambda x: x, (x,), (x, x))
    with pytest.raises(ArgumentError, match="primals are a AutodiffTensor"):
        aq.jvp(lambda x: x, x, x)
    with pytest.raises(ArgumentError, match="a dict of 1 in the place of a list of 1"):
        aq.hvp(lambda x: x[0].sum(), [x], {"a": x})
    with pytest.raises(GradientError, match="a tensor of one value"):
        aq.hvp(lambda x: x, x, x)
