"""Gradients that are written over cotangents: only where nothing else reads these, whatever the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.captured_state import Watch
from autoq.context import Observer, observing
from autoq.tape import accelerated
from autoq.tape.beside import apart

N = 32


def floats(x: Any) -> Any:
    return x.dequantize() if isinstance(x, aq.QTensor) else x


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every gradient of a linear layer's signal that may be is written over its cotangent; counted."""
    count: list[int] = []

    def linear_x(g: Any, weight: Any, over: bool = False) -> Any:
        found = g @ floats(weight)
        if not over:
            return found
        count.append(1)
        g[...] = found
        return g

    aq.ones(2, device="cuda") + 1.0  # the kernels' own rules are there now
    rules = {
        ("linear", "x"): linear_x,
        ("relu", "x"): lambda g, x: g * (floats(x) > 0),
        ("tanh", "x"): lambda g, x: g * (1 - np.tanh(floats(x)) ** 2),
    }
    for key, rule in rules.items():
        monkeypatch.setitem(accelerated._rules, key, rule)
    monkeypatch.setattr("autoq.tape.gradient.WRITES_OVER", {linear_x})
    return count


def parameters(device: str, count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((count, N, N), dtype=np.float32) / 4
    return [aq.tensor(a, device=device, requires_grad=True) for a in arrays]


def chain(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = aq.relu(aq.linear(x, w))
    return (x * x).sum()


def residual(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = x + aq.linear(aq.tanh(x), w)
    return (x * x).sum()


def twice(x: Any, v: Any, w: Any) -> Any:
    y = aq.tanh(aq.linear(x, v))
    return (aq.linear(y, w) * aq.linear(y, v)).sum() + y.sum()


def same(x: Any, w: Any, v: Any) -> Any:
    y = aq.linear(aq.linear(x, w), w)
    return ((y + y) @ v).sum() + (y - y.T).sum()


def views(x: Any, w: Any, v: Any) -> Any:
    y = aq.tanh(aq.linear(x, w))
    return (aq.concat([y[:16], aq.flip(y[16:], axis=0)], axis=0) @ v).reshape(4, 8, N).sum()


def signal(x: Any, w: Any, v: Any) -> Any:
    y = aq.relu(aq.linear(x.quantize("mxfp8"), w))
    return aq.linear(y, v, out_dtype=aq.float32).sum()


GRAPHS = [chain, residual, twice, same, views, signal]


@pytest.mark.parametrize("graph", GRAPHS)
def test_gradients_are_those_without_it(graph: Any, written: list[int]) -> None:
    on_cpu, on_gpu = parameters("cpu", 3), parameters("cuda", 3)
    graph(*on_cpu).backward()
    graph(*on_gpu).backward()
    assert bool(written) == (graph is not residual)  # there the cotangent goes on beside the layer
    for a, b in zip(on_cpu, on_gpu, strict=True):
        assert np.allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_a_gradient_that_the_caller_gave_stays(written: list[int]) -> None:
    x, w, _ = parameters("cuda", 3)
    g = aq.ones((N, N), device="cuda")
    y = aq.linear(x, w)
    y.backward(g)
    assert (g.numpy() == 1).all()
    assert not written


@pytest.mark.parametrize("graph", [chain, residual, twice])
def test_what_hooks_and_kept_gradients_hold_stays(graph: Any, written: list[int]) -> None:
    seen: dict[str, list[Any]] = {}
    for device in ("cpu", "cuda"):
        x, *weights = parameters(device, 3)
        first = aq.tanh(aq.linear(x, weights[0]))
        first.retain_grad()
        second = aq.linear(first, weights[1])
        found = seen.setdefault(device, [])
        second.register_hook(found.append)
        graph(second, *weights).backward()
        found += [first.grad, x.grad]
    for a, b in zip(seen["cpu"], seen["cuda"], strict=True):
        assert np.allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-4)


def test_gradients_of_the_middle_and_a_second_backward(written: list[int]) -> None:
    found: dict[str, list[Any]] = {}
    for device in ("cpu", "cuda"):
        x, w, v = parameters(device, 3)
        loss = chain(x, w, v)
        loss.backward(retain_graph=True)
        loss.backward()
        found[device] = [x.grad, w.grad, v.grad]
        found[device] += list(aq.grad(lambda x, w, v=v: chain(x, w, v), (0, 1))(x.detach(), w.detach()))
    for a, b in zip(found["cpu"], found["cuda"], strict=True):
        assert np.allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-4)


def test_arrays_are_apart_where_no_byte_is_in_both() -> None:
    import cupy

    x = cupy.zeros((8, 8), np.float32)
    assert not apart(x, x)
    assert not apart(x, x.T)
    assert not apart(x[::-1], x[2:3])
    assert apart(x[:4], x[4:])
    assert apart(x[:4][::-1], x[4:][::-1, ::-1])
    assert apart(x, cupy.zeros((8, 8), np.float32))


def test_an_observer_that_may_keep_cotangents_finds_them_unchanged(written: list[int]) -> None:
    class Keeps(Observer):
        def __init__(self) -> None:
            self.found: list[tuple[Any, Any]] = []

        def step(self, proceed: Any, node: Any, g: Any, grads: Any, owned: Any) -> None:
            self.found.append((g, g.copy()))
            proceed(node, g, grads, owned)

    with observing(Keeps()) as keeps:
        chain(*parameters("cuda", 3)).backward()
    assert all((a == b).all() for a, b in keeps.found)
    assert not written
    with observing(Watch(lambda x: False)):  # a captured step's
        chain(*parameters("cuda", 3)).backward()
    assert written
