"""Captured steps on a real device: addresses, streams, memory and launches, which no stand-in has."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.errors import CaptureError
from autoq.kernels.cuda import launch

SANITIZER = os.environ.get("AUTOQ_TEST_SANITIZER") == "1"
WIDTH, ROWS = 64, 48


def batch(number: int) -> tuple[aq.Tensor, aq.Tensor]:
    rng = np.random.default_rng(number)
    x = rng.standard_normal((ROWS, WIDTH), dtype=np.float32)
    return aq.tensor(x, device="cuda"), aq.tensor(rng.integers(0, 10, ROWS), device="cuda")


def training(signal: Any, method: str = "AdamW", dropout: bool = False) -> Callable[..., aq.Tensor]:
    """A step of a small network."""
    with aq.default_device("cuda"):
        rng = aq.Generator(0)
        layers: list[aq.nn.Module] = [aq.nn.Linear(WIDTH, 96, rng=rng), aq.nn.ReLU()]
        if dropout:
            layers.append(aq.nn.Dropout(0.25, aq.Generator(1)))
        model = aq.nn.Sequential(*layers, aq.nn.Linear(96, 10, rng=rng, out_dtype=aq.float32))
    optimizer = getattr(aq.optim, method)(model.parameters(), lr=0.01)
    schedule = aq.optim.LinearWarmup(optimizer, 8)
    draws = aq.Generator(2)

    def step(x: aq.Tensor, labels: aq.Tensor) -> aq.Tensor:
        if signal is not None:
            x = x.quantize(signal, rounding="stochastic", rng=draws)
        loss = aq.nn.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step.schedule = schedule  # type: ignore[attr-defined]
    return step


def losses(step: Callable[..., aq.Tensor], between: Callable[[], object] = lambda: None) -> list[float]:
    """The losses of ten steps, read at the end; the schedule goes on between them."""
    found = []
    for number in range(10):
        found.append(step(*batch(number)))
        step.schedule.step()  # type: ignore[attr-defined]
        between()
    return [loss.item() for loss in found]


@pytest.mark.parametrize("signal", [None, aq.mxfp8, aq.nvfp4, aq.int8])
@pytest.mark.parametrize("method", ["SGD", "AdamW"])
@pytest.mark.parametrize("dropout", [False, True])
def test_captured_losses_are_the_eager_ones(signal: Any, method: str, dropout: bool) -> None:
    eager = losses(training(signal, method, dropout))
    assert losses(aq.capture(training(signal, method, dropout))) == eager
    assert eager[-1] < eager[0]


def test_replays_keep_to_their_own_memory(cupy: Any) -> None:
    eager = losses(training(aq.mxfp8))
    held: list[Any] = []

    def churn() -> None:
        held.append(cupy.full(1 << 20, 7.0, cupy.float32))
        for size in (16, 512, 4096, 1 << 16):
            cupy.full(size, -1.0, cupy.float32)
        if len(held) > 3:
            held.pop(0)
            cupy.get_default_memory_pool().free_all_blocks()

    assert losses(aq.capture(training(aq.mxfp8)), churn) == eager


def test_a_replay_launches_nothing_by_itself() -> None:
    step = aq.capture(training(aq.mxfp8))
    losses(step)
    x = batch(3)
    before = launch.launches
    step(*x)
    assert launch.launches == before


def test_replays_on_other_streams_wait_for_each_other(cupy: Any) -> None:
    eager = losses(training(aq.mxfp8))
    step, found = aq.capture(training(aq.mxfp8)), []
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    for number in range(10):
        inputs = batch(number)
        cupy.cuda.get_current_stream().synchronize()
        with streams[number % 3]:
            found.append(step(*inputs))
            step.schedule.step()  # type: ignore[attr-defined]
    for stream in streams:
        stream.synchronize()
    assert [loss.item() for loss in found] == eager


def test_the_host_may_run_ahead() -> None:
    eager = training(aq.mxfp8, dropout=True)
    captured = aq.capture(training(aq.mxfp8, dropout=True))
    inputs = batch(0)
    expected = [eager(*inputs) for _ in range(60)]
    found = [captured(*inputs) for _ in range(60)]
    assert [loss.item() for loss in found] == [loss.item() for loss in expected]


@pytest.mark.skipif(
    SANITIZER, reason="the sanitizer keeps Python's frames of allocations, for its backtraces"
)
def test_reset_gives_the_memory_back() -> None:
    step = aq.capture(lambda x: (x * 2 + 1).sum())
    x = aq.tensor(np.ones((1 << 24,), np.float32), device="cuda")
    step(x)
    step(x)
    pool, graph = step._graph.pool, weakref.ref(step._graph)
    assert pool.total_bytes() >= x.value.nbytes
    assert pool.used_bytes() > 0
    step.reset()
    assert graph() is None, gc.get_referrers(graph())
    assert pool.used_bytes() == 0  # and the rest goes with the pool, which the test alone holds


def test_a_failed_capture_leaves_the_device_usable(cupy: Any) -> None:
    calls: list[int] = []

    def step(x: aq.Tensor) -> aq.Tensor:
        calls.append(1)
        y = x + 1
        if len(calls) == 2:
            y.value.get()  # past autoq's own refusal
        return y

    captured, x = aq.capture(step), aq.tensor([1.0, 2.0], device="cuda")
    captured(x)
    with pytest.raises(CaptureError):
        captured(x)
    assert (x * 3).numpy().tolist() == [3.0, 6.0]
    assert captured(x).numpy().tolist() == [2.0, 3.0]
    assert captured.replays == 1


def test_products_of_all_kinds_in_a_graph() -> None:
    with aq.default_device("cuda"):
        rng = np.random.default_rng(0)
        a, b = (aq.tensor(rng.standard_normal((64, 64), dtype=np.float32)) for _ in range(2))
    pairs = [(a, b), (a.quantize(aq.mxfp8), b.quantize(aq.mxfp8)), (a, b.quantize(aq.int8).T)]

    def step(scale: aq.Tensor) -> list[aq.Tensor]:
        return [(x @ y) * scale for x, y in pairs]

    captured = aq.capture(step)
    for number in range(1, 5):
        scale = aq.tensor(float(number), device="cuda")
        for found, expected in zip(captured(scale), step(scale), strict=True):
            assert np.array_equal(found.numpy(), expected.numpy())
