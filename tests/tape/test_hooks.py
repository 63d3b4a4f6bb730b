"""Hooks, retained and accumulated gradients, assignments to .grad, stop_gradient."""

import copy
import gc
import threading
import weakref

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, DTypeError, GradientError, ShapeError


def leaf(*values, dtype=aq.float32):
    return aq.tensor(list(values), dtype=dtype, requires_grad=True)


def test_a_hook_sees_the_complete_gradient_once_and_may_replace_it():
    x = leaf(1.0, 2.0)
    y = x * 3
    seen = []
    y.register_hook(lambda g: seen.append(g.numpy().copy()))
    y.register_hook(lambda g: g * 10)
    (y + y * y).sum().backward()
    assert [s.tolist() for s in seen] == [[7.0, 13.0]]
    assert x.grad.tolist() == [210.0, 390.0]


def test_hooks_of_a_leaf_run_on_what_is_added_to_grad():
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: g + 1)
    (x * x).sum().backward()
    (x * 1).sum().backward()
    assert x.grad.tolist() == [2 * 2 + 1 + 3, 2 * 4 + 1 + 3]


def test_a_removed_hook_does_not_run():
    x = leaf(1.0)
    handle = x.register_hook(lambda g: g * 100)
    handle.remove()
    handle.remove()
    with x.register_hook(lambda g: g * 7):
        (x * 1).sum().backward()
    (x * 1).sum().backward()
    assert x.grad.tolist() == [8.0]


def test_a_hook_may_return_an_array():
    x = leaf(1.0, 1.0)
    y = x * 1
    y.register_hook(lambda g: np.array([4.0, 5.0]))
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 5.0]
    assert x.grad.dtype == aq.float32


def test_what_a_hook_changes_in_place_does_not_leak():
    x = leaf(1.0, 1.0)
    y = x * 1

    def in_place(g):
        g *= 50
        g[0] = 7

    y.register_hook(in_place)
    y.backward(np.ones(2, np.float32))
    assert x.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("wrap", [lambda f: f, aq.checkpoint], ids=["plain", "checkpoint"])
@pytest.mark.parametrize("tracked", [False, True])
def test_hooks_on_the_argument_of_a_differentiated_function(wrap, tracked):
    def f(x):
        x.register_hook(lambda g: g * 10)
        return (x * x).sum()

    x = aq.tensor([3.0], requires_grad=tracked)
    assert aq.grad(wrap(f))(x).tolist() == [60.0]
    _, pullback = aq.vjp(wrap(f), x)
    assert pullback(1.0)[0].tolist() == [60.0]
    if tracked:
        aq.grad(wrap(f))(x).sum().backward()
        assert x.grad.tolist() == [200.0]  # 20 through the hook's tensor once more


def test_a_node_that_a_walk_keeps_is_kept_after_its_hooks():
    from autoq.tape.gradient import walk

    x = leaf(3.0)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    z = y * 4
    found = walk([(z, np.ones(1, np.float32))], False, False, keep=[y._node])
    assert found[y._node].tolist() == [40.0]
    assert found[x].tolist() == [80.0]


@pytest.mark.parametrize(("answer", "error"), [(np.zeros(3), ShapeError), (np.zeros(2, bool), DTypeError)])
def test_a_hook_that_returns_something_unfit_is_an_error(answer, error):
    x = leaf(1.0, 2.0)
    y = x * 1
    y.register_hook(lambda g: answer)
    with pytest.raises(error, match="a hook returned"):
        y.sum().backward()


def test_hooks_on_what_no_gradient_reaches_are_an_error():
    with pytest.raises(GradientError, match="register_hook of an untracked"):
        aq.tensor([1.0]).register_hook(lambda g: g)
    with pytest.raises(GradientError, match="retain_grad of an untracked"):
        aq.tensor([1.0]).retain_grad()
    with pytest.raises(ArgumentError, match="register_hook"):
        leaf(1.0).register_hook(3)


def test_a_hook_on_a_quantized_signal_gets_dense_floats():
    x = aq.tensor(np.linspace(-1, 1, 32, dtype=np.float32), requires_grad=True)
    q = x.quantize(aq.mxfp4)
    kinds = []
    q.register_hook(lambda g: kinds.append((g.dtype, g.shape, type(g))))
    q.retain_grad()
    (q * 2).dequantize().sum().backward()
    assert kinds == [(aq.float32, (32,), aq.AutodiffTensor)]
    assert (q.grad.numpy() == 2).all()


def test_a_hook_is_differentiated_under_create_graph():
    def f(x):
        y = x * x
        y.register_hook(lambda g: g * g)
        return (y * x).sum()  # cotangent of y is x, the hook makes it x**2: 2x * x**2 + y

    x = aq.tensor([3.0])
    assert aq.grad(f)(x).tolist() == [2 * 27.0 + 9.0]
    assert aq.grad(lambda x: aq.grad(f)(x).sum())(x).tolist() == [6 * 9.0 + 6.0]


def test_hooks_run_without_recording_in_a_plain_backward():
    x = leaf(2.0)
    y = x * x
    modes = []
    w = leaf(1.0)
    y.register_hook(lambda g: modes.append((g * w).requires_grad))
    y.sum().backward()
    assert modes == [False]


def test_retain_grad_fills_and_accumulates_the_gradient_of_a_result():
    x = leaf(1.0, 2.0)
    y = x * 3
    y.retain_grad()
    y.retain_grad()
    loss = (y * y).sum()
    loss.backward(retain_graph=True)
    assert y.grad.tolist() == [6.0, 12.0]
    loss.backward()
    assert y.grad.tolist() == [12.0, 24.0]
    assert x.grad.tolist() == [36.0, 72.0]


def test_retained_gradients_are_those_after_the_hooks_and_a_leaf_needs_none():
    x = leaf(1.0)
    x.retain_grad()
    y = x * 1
    y.retain_grad()
    y.register_hook(lambda g: g * 5)
    y.sum().backward()
    assert y.grad.tolist() == x.grad.tolist() == [5.0]


def test_retain_grad_does_not_keep_the_tape_alive():
    x = leaf(1.0)
    y = x * 1
    y.retain_grad()
    node = weakref.ref(y._node)
    gc.disable()
    try:
        del y
        assert node() is None
    finally:
        gc.enable()


def test_gradients_of_several_passes_add_up_to_that_of_the_sum():
    w = aq.Parameter(np.random.default_rng(0).standard_normal((4, 3)))
    batch = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)
    for part in np.split(batch, 4):
        ((aq.tensor(part) @ w).tanh().sum() / 4).backward()
    accumulated, w.grad = w.grad, None
    ((aq.tensor(batch) @ w).tanh().sum() / 4).backward()
    np.testing.assert_allclose(accumulated.numpy(), w.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_grad_takes_floats_of_the_tensors_shape_only():
    x = leaf(1.0, 2.0)
    x.grad = np.array([1.0, 2.0], np.float32)
    (x * 1).sum().backward()
    assert x.grad.tolist() == [2.0, 3.0]
    with pytest.raises(ShapeError, match=r"x.grad of shape \(3,\) for a tensor of shape \(2,\)"):
        x.grad = aq.tensor([1.0, 2.0, 3.0])
    with pytest.raises(DTypeError, match="x.grad set to a int64"):
        x.grad = aq.tensor(np.array([1, 2]))
    with pytest.raises(DTypeError, match="dense floats"):
        x.grad = aq.tensor([1.0, 2.0], dtype=aq.int8)
    assert x.grad.tolist() == [2.0, 3.0]
    x.grad = None
    assert x.grad is None


def test_a_copied_leaf_has_its_gradient_and_no_hooks():
    x = leaf(1.0)
    x.register_hook(lambda g: g * 3)
    (x * 1).sum().backward()
    y = copy.deepcopy(x)
    (y * 1).sum().backward()
    assert y.grad.tolist() == [4.0]


def test_stop_gradient_makes_constants_of_a_nest():
    def f(x):
        kept = aq.stop_gradient({"a": [x, x.quantize(aq.int8)], "b": 2.0})
        assert kept["a"][1].dtype == aq.int8
        return (x * kept["a"][0] * kept["b"] + kept["a"][1].dequantize()).sum()

    assert aq.grad(f)(aq.tensor([3.0])).tolist() == [6.0]


def test_hooks_of_two_threads_do_not_meet():
    found = {}

    def work(k):
        x = leaf(*[1.0] * 50)
        for _ in range(50):
            y = x * 1
            y.register_hook(lambda g: g * k)
            y.sum().backward()
        found[k] = x.grad.tolist()

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2, 3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert found == {k: [50.0 * k] * 50 for k in (1, 2, 3)}


@pytest.fixture
def once():
    """An op whose rule calls one without a rule, one whose rule leaves the tape, one written in NumPy."""
    from autoq.tape.op import REGISTRY, Op, register

    before = dict(REGISTRY)
    register(Op("flat_sine", lambda x: np.sin(x), "its phase is a constant.", elementwise=True))
    rules = {
        "calls": lambda F, g, x: g * F.flat_sine(x),
        "leaves": lambda F, g, x: (g.numpy() if isinstance(g, aq.Tensor) else g) * 2,
        "numpy": lambda F, g, x: g * np.cos(x),
    }
    for name, rule in rules.items():
        register(Op(f"once_{name}", np.cos, {"x": rule}, operands=("x",), elementwise=True))
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("calls", "flat_sine of a tracked tensor"),
        ("leaves", "returned ndarray"),
        ("numpy", "TypeError|ufunc"),
    ],
)
def test_a_second_gradient_that_does_not_exist_names_the_op_and_what_to_do(once, name, why):
    from autoq.tape.apply import apply

    def f(x):
        return apply(f"once_{name}", x).sum()

    x = aq.tensor([1.0, 2.0])
    assert np.isfinite(aq.grad(f)(x).numpy()).all()
    with pytest.raises(
        GradientError, match=rf"second gradient through once_{name}.*'x'.*(?:{why})"
    ) as caught:
        aq.grad(lambda x: aq.grad(f)(x).sum())(x)
    assert "differentiate once" in str(caught.value)
