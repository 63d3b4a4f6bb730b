"""checkpoint: the same gradients of any order, for the price of the inputs; draws and settings repeated."""

import threading

import numpy as np
import pytest

import autoq as aq
from autoq.errors import GradientError

RNG = np.random.default_rng(0)
X, Y, W = (RNG.standard_normal(shape) / 2 for shape in ((4, 8), (4, 8), (8, 8)))


def tensors():
    return aq.tensor(X, requires_grad=True), aq.tensor(Y, requires_grad=True), aq.Parameter(W)


def segment(w):
    """Two results, one of them in a dict, of arguments and a parameter in the closure."""

    def f(x, y, scale=1.0):
        h = (x @ w).exp().sin() * scale
        return h * y, {"total": h.sum(), "note": "kept"}

    return f


def gradients(wrap, order):
    x, y, w = tensors()

    def total(x):
        product, rest = wrap(segment(w))(x, y, scale=2.0)
        assert rest["note"] == "kept"
        return (product * product).sum() + rest["total"] ** 2

    f = total
    for _ in range(order - 1):
        f = lambda x, f=f: (aq.grad(f)(x) ** 2).sum()  # noqa: E731
    f(x).backward()
    return [t.grad.numpy() for t in (x, y, w)]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_gradients_by_arguments_and_closures_are_those_without_it(order, times):
    def wrap(f):
        for _ in range(times):
            f = aq.checkpoint(f)
        return f

    for found, expected in zip(gradients(wrap, order), gradients(lambda f: f, order), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_create_graph_backward_goes_through_it():
    x, y, w = tensors()
    aq.checkpoint(segment(w))(x, y)[0].sum().backward(create_graph=True)
    slope, x.grad, w.grad = (x.grad**2).sum(), None, None
    slope.backward()
    x2, y2, w2 = tensors()
    segment(w2)(x2, y2)[0].sum().backward(create_graph=True)
    slope, x2.grad, w2.grad = (x2.grad**2).sum(), None, None
    slope.backward()
    np.testing.assert_allclose(w.grad.numpy(), w2.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), x2.grad.numpy(), rtol=1e-12)


def test_only_the_inputs_are_kept_packed_ones_packed():
    x = aq.tensor(np.ones((8, 64), np.float32), requires_grad=True)
    q = x.quantize(aq.mxfp8)

    def deep(q):
        for _ in range(10):
            q = q.tanh()
        return q.dequantize().sum()

    assert aq.Tape.of(deep(q)).saved_bytes == 10 * q.nbytes
    kept = aq.Tape.of(aq.checkpoint(deep)(q))
    assert kept.saved_bytes == q.nbytes
    assert [entry.op for entry in kept] == ["leaf", "quantize", "checkpoint"]


def test_a_quantized_result_and_a_quantized_argument():
    x = aq.tensor(np.linspace(-2, 2, 64, dtype=np.float32).reshape(2, 32), requires_grad=True)

    def f(q):
        return q.exp(), q.dequantize() * 2

    results = []
    for g in (f, aq.checkpoint(f)):
        x.grad = None
        a, b = g(x.quantize(aq.mxfp4))
        assert a.dtype == aq.mxfp4
        (a.dequantize() * b).sum().backward()
        results.append(x.grad.numpy())
    assert (results[0] == results[1]).all()


def test_draws_are_repeated_whatever_the_generator_did_since():
    rng = aq.Generator(3)
    x = aq.tensor(np.ones(64, np.float32), requires_grad=True)

    def f(x):
        return aq.dropout(aq.dropout(x, 0.5, rng=rng), 0.25, rng=rng)

    out = aq.checkpoint(f)(x)
    after = rng.state_dict()
    rng.draw("dropout")
    moved = rng.state_dict()
    out.sum().backward()
    assert (x.grad.numpy() == out.numpy()).all()
    assert rng.state_dict() == moved != after  # backward draws nothing

    twice = aq.checkpoint(lambda x: aq.checkpoint(f)(x) * aq.dropout(x, 0.5, rng=rng))
    x.grad = None
    out = twice(x)
    out.sum().backward()
    assert (x.grad.numpy() == 2 * out.numpy()).all()


def test_stochastic_rounding_gives_the_same_codes_again():
    rng = aq.Generator(0)
    x = aq.tensor(RNG.uniform(-1, 1, 128).astype(np.float32), requires_grad=True)

    def f(x):
        return x.quantize(aq.mxfp4, rounding="stochastic", rng=rng).dequantize() * x

    out = aq.checkpoint(f)(x)
    out.sum().backward()
    decoded = out.numpy() / x.numpy()
    np.testing.assert_allclose(x.grad.numpy(), decoded + x.numpy(), rtol=1e-5)


def test_settings_of_forward_hold_in_backward():
    seen = []

    def f(x):
        from autoq.context import current

        seen.append((current().resolution, current().exact))
        return x * 2

    x = aq.tensor([1.0], requires_grad=True)
    with aq.dtype_resolution("strict"), aq.precision("exact"):
        y = aq.checkpoint(f)(x)
    with aq.no_grad():
        y.backward()
    assert seen == [("strict", True)] * 2
    assert x.grad.tolist() == [2.0]


def test_two_backward_passes_and_the_error_of_a_freed_one():
    x = aq.tensor([2.0], requires_grad=True)
    y = aq.checkpoint(lambda x: x**3)(x)
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [24.0]
    with pytest.raises(GradientError, match="second backward through checkpoint"):
        y.backward()


def test_what_is_untracked_or_handed_through_stays_what_it_is():
    x = aq.tensor([1.0], requires_grad=True)
    same, other = aq.checkpoint(lambda x: (x, aq.tensor([3.0])))(x)
    assert same is x
    assert not other.requires_grad
    with aq.no_grad():
        assert not aq.checkpoint(lambda x: x * 2)(x).requires_grad
    assert aq.checkpoint(lambda n: n + 1)(3) == 4


def test_an_argument_that_the_result_does_not_depend_on():
    x, y = (aq.tensor([v], requires_grad=True) for v in (1.0, 2.0))
    aq.checkpoint(lambda a, b: a * 3)(x, y).sum().backward()
    assert x.grad.tolist() == [3.0]
    assert y.grad is None or y.grad.tolist() == [0.0]


def test_a_tracked_result_in_the_closure_is_reached_once():
    x = aq.tensor([2.0], requires_grad=True)
    h = x * 5
    calls = []
    h.register_hook(lambda g: calls.append(g.tolist()))
    out = aq.checkpoint(lambda x: x * h * h)(x)
    (out + h).sum().backward()
    assert calls == [[2 * 2.0 * 10.0 + 1]]
    assert x.grad.tolist() == [100.0 + 41.0 * 5]


def test_modules_train_through_it():
    from autoq import nn

    x = aq.tensor(X.astype(np.float32))
    plain = nn.Sequential(nn.Linear(8, 8, rng=aq.Generator(0)), nn.Linear(8, 2, rng=aq.Generator(1)))
    plain(x).sum().backward()
    expected = {name: p.grad.numpy() for name, p in plain.named_parameters()}
    for p in plain.parameters():
        p.grad = None
    aq.checkpoint(plain)(x).sum().backward()
    for name, p in plain.named_parameters():
        assert (p.grad.numpy() == expected[name]).all()


def test_a_function_that_changes_its_mind_is_an_error():
    x = aq.tensor([1.0, 2.0], requires_grad=True)
    state = {"calls": 0}
    w = [aq.Parameter([1.0]), aq.Parameter([2.0])]

    def shapes(x):
        state["calls"] += 1
        return x * 2 if state["calls"] % 2 else x[:1] * 2

    def reaches(x):
        state["calls"] += 1
        return x * w[0] * w[1] if state["calls"] % 2 == 0 else x * w[0]

    for f, message in ((shapes, "returned"), (reaches, "reached a tracked tensor")):
        state["calls"] = 0
        out = aq.checkpoint(f)(x)
        with pytest.raises(GradientError, match=rf"checkpoint\({f.__name__}\), computed again.*{message}"):
            out.sum().backward()

    rng = aq.Generator(0)

    def draws(x):
        state["calls"] += 1
        rng.draw("a" if state["calls"] % 2 else "b")
        return x * 2

    state["calls"] = 0
    out = aq.checkpoint(draws)(x)
    with pytest.raises(GradientError, match="draws for 'b' where it drew for 'a'"):
        out.sum().backward()


def test_changes_in_place_since_are_an_error():
    x = aq.tensor([1.0], requires_grad=True)
    w = aq.Parameter([2.0])
    for changed, message in ((x, "operand 0 of checkpoint was changed"), (w, "uses was changed in place")):
        out = aq.checkpoint(lambda x: (x * w).exp())(x)
        with aq.no_grad():
            changed *= 2
        with pytest.raises(GradientError, match=message):
            out.backward()


def test_threads_draw_from_their_own_generators_meanwhile():
    found = {}

    def work(k):
        rng = aq.Generator(k)
        x = aq.tensor(np.ones(256, np.float32), requires_grad=True)
        ok = True
        for _ in range(20):
            x.grad = None
            out = aq.checkpoint(lambda x: aq.dropout(x, 0.5, rng=rng))(x)
            out.sum().backward()
            ok &= bool((x.grad.numpy() == out.numpy()).all())
        found[k] = ok

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert found == dict.fromkeys(range(3), True)


def test_a_long_chain_of_checkpoints_needs_no_recursion():
    x = aq.tensor([1.0], requires_grad=True)
    y = x
    step = aq.checkpoint(lambda y: y * 1.0)
    for _ in range(2000):
        y = step(y)
    y.backward()
    assert x.grad.tolist() == [1.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_frozen_rounding_check_holds_through_it(dtype):
    rng = aq.Generator(0)

    def f(x, w):
        q = aq.quantize(x, aq.mxfp4, rounding="stochastic", rng=rng)
        return aq.dropout(q @ w, 0.5, rng=rng).dequantize().tanh(), q.dequantize() * 2

    def total(x, w):
        a, b = aq.checkpoint(f)(x, w)
        return (a * a).sum() + b.sum()

    aq.testing.check_grads(total, X.astype(dtype), W.astype(dtype), through_rounding=True)
