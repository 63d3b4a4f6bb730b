"""Random graphs whose gradients on a GPU are written over cotangents wherever rules may: those of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.tape import accelerated
from autoq.tape.namespace import RAW_ON_DEVICE
from autoq.tape.op import REGISTRY, Rule

N = 16
SEEDS = range(60)


def floats(x: Any) -> Any:
    return x.dequantize() if isinstance(x, aq.QTensor) else x


def overwriting(rule: Rule, count: list[int]) -> Callable[..., Any]:
    """A rule that leaves nothing of the cotangent where it may write there."""

    def function(g: Any, *read: Any, over: bool = False) -> Any:
        found = rule.function(RAW_ON_DEVICE, g, *[floats(x) for x in read])
        if found is g or not over:
            return found
        count.append(1)
        if found.shape == g.shape and found.dtype == g.dtype:
            g[...] = found
            return g
        g[...] = np.nan
        return found

    return function


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Element-wise ops and products write over every cotangent that they may; counted."""
    count: list[int] = []
    made = set()
    aq.ones(2, device="cuda") + 1.0  # the kernels' own rules are there now
    for op in REGISTRY.values():
        if op.differentiable and (op.elementwise or op.name in ("linear", "matmul")):
            for name, rule in zip(op.operands, op.rules, strict=True):
                if rule is not None:
                    function = overwriting(rule, count)
                    made.add(function)
                    monkeypatch.setitem(accelerated._rules, (op.name, name), function)
    monkeypatch.setattr("autoq.tape.gradient.WRITES_OVER", made)
    return count


def half(x: Any) -> Any:
    return x.dequantize(aq.float16) if x.tensor_type.is_quantized else x.astype(aq.float16).astype(aq.float32)


ONE: list[Callable[[Any], Any]] = [
    aq.relu,
    aq.tanh,
    aq.silu,
    half,
    lambda x: -x,
    lambda x: 3.0 - x,
    lambda x: x * x,
    lambda x: x + x,
    lambda x: x.T,
    lambda x: aq.flip(x.reshape(4, 4 * N).reshape(N, N), axis=0),
    lambda x: aq.concat([x[:8], x[8:]], axis=0),
    lambda x: x + aq.sum(x, axis=0, keepdims=True) * 0.1,
    lambda x: x[0] + x,
    lambda x: x[:, :1] * x,
    lambda x: aq.broadcast_to(x[3], (N, N)),
    lambda x: x.quantize("mxfp8"),
    lambda x: aq.stop_gradient(x) * x,
    lambda x: x.inhibit().propagate(),
    aq.checkpoint(lambda x: aq.tanh(x) * x + x),
]
TWO: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    aq.maximum,
    lambda a, b: a + b.T,
    lambda a, b: a + b[0],
    lambda a, b: aq.linear(a, b, b[0]) * 0.3,
    lambda a, b: aq.matmul(a, b) * 0.3,
    lambda a, b: sum(aq.checkpoint(lambda x, y: (x * y, x - y))(a, b)),
]


def graph(seed: int, leaves: tuple[Any, ...], look: Callable[[int, Any], None]) -> Any:
    """The result of random ops, most of them on the latest results."""
    rng, pool = np.random.default_rng(seed), list(leaves)
    for _ in range(rng.integers(3, 12)):
        a, b = pool[-1 - rng.integers(min(len(pool), 4))], pool[rng.integers(len(pool))]
        pick = int(rng.integers(len(ONE) + len(TWO)))
        y = ONE[pick](a) if pick < len(ONE) else TWO[pick - len(ONE)](a, b)
        look(int(rng.integers(8)), y)
        pool.append(y)
    return pool[-1] + pool[-2] * 0.5


def inputs(seed: int, device: str) -> list[Any]:
    arrays = np.random.default_rng(seed).standard_normal((4, N, N), dtype=np.float32) / 2
    return [aq.tensor(a, device=device) for a in arrays]


def backward(seed: int, device: str) -> list[Any]:
    """Gradients of leaves and of what keeps them, after two passes, and what hooks saw."""
    *leaves, cotangent = inputs(seed, device)
    seen: list[Any] = []
    keepers: list[Any] = []

    def look(choice: int, y: Any) -> None:
        if choice == 0:
            y.register_hook(seen.append)
        elif choice == 1:
            y.register_hook(lambda g: g * 1.5)
        elif choice == 2:
            y.retain_grad()
            keepers.append(y)

    for x in leaves:
        x.requires_grad = True
    out, given = graph(seed, tuple(leaves), look), cotangent.numpy().copy()
    out.backward(cotangent, retain_graph=True)
    out.backward(cotangent)
    assert np.array_equal(cotangent.numpy(), given)
    return seen + [x.grad for x in leaves + keepers if x.grad is not None]


def pullback(seed: int, device: str) -> list[Any]:
    """Gradients twice of one recording."""
    *leaves, cotangent = inputs(seed, device)
    _, pull = aq.vjp(lambda *xs: graph(seed, xs, lambda choice, y: None), *leaves)
    return [*pull(cotangent), *pull(cotangent)]


def second(seed: int, device: str) -> list[Any]:
    """A gradient along a gradient."""
    x, *rest, v = inputs(seed, device)
    return [aq.hvp(lambda x: graph(seed, (x, *rest), lambda choice, y: None).sum(), x, v)]


@pytest.mark.parametrize("derivative", [backward, pullback, second])
def test_gradients_of_random_graphs_are_those_of_the_cpu(derivative: Any, written: list[int]) -> None:
    for seed in SEEDS:
        on_cpu, on_gpu = derivative(seed, "cpu"), derivative(seed, "cuda")
        assert len(on_cpu) == len(on_gpu)
        for a, b in zip(on_cpu, on_gpu, strict=True):
            a, b = a.numpy(), b.numpy()
            np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4 * (1 + abs(a).max()), err_msg=str(seed))
    assert len(written) > len(SEEDS)


@pytest.mark.parametrize("keeper", [0, 1])
def test_a_rule_of_a_custom_op_may_keep_its_cotangent(keeper: int, written: list[int]) -> None:
    kept: list[Any] = []

    def keeping(F: Any, g: Any) -> Any:  # noqa: N803
        kept.append(g)
        return g

    passing: Any = lambda F, g: g  # noqa: E731
    rules = {"a": passing, "b": passing, "ab"[keeper]: keeping}
    both = aq.custom_op(lambda a, b: a + b, vjp=rules, name="both")
    x = inputs(0, "cuda")[0]
    x.requires_grad = True
    operands = [aq.ones((N, N), device="cuda"), aq.ones((N, N), device="cuda")]
    operands[keeper] = x * x
    y = both(*operands)
    (y * y * 2.0).sum().backward()
    assert written
    np.testing.assert_allclose(aq.tensor(kept[0]).numpy(), 4 * (x.numpy() ** 2 + 1), rtol=1e-5)


def test_a_custom_op_called_like_another_one_keeps_its_own_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    aq.ones(2, device="cuda") + 1.0

    def refused(*given: Any) -> Any:
        raise AssertionError("the other op's kernel")

    monkeypatch.setitem(accelerated._forwards, "softmax", refused)
    monkeypatch.setitem(accelerated._rules, ("softmax", "x"), refused)
    softmax = aq.custom_op(lambda x: x * 2.0, vjp=lambda F, g: g * 7.0, name="softmax")
    x = aq.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    y = softmax(x)
    y.sum().backward()
    np.testing.assert_array_equal(y.numpy(), [2.0, 4.0])
    np.testing.assert_array_equal(x.grad.numpy(), [7.0, 7.0])
