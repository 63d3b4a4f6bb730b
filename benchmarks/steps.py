"""Training steps of two small networks: autoq in float32 and in MXFP8, raw NumPy, torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np
from report import markdown_table
from timing import Timing, kernel_threads, side_by_side

import autoq as aq

NETWORKS = {"S: 64-128-10": (64, 128, 10), "L: 784-256-256-10": (784, 256, 256, 10)}
BARS = {
    ("S: 64-128-10", "autoq float32"): 200,
    ("S: 64-128-10", "autoq MXFP8"): 350,
    ("L: 784-256-256-10", "autoq float32"): 1200,
    ("L: 784-256-256-10", "autoq MXFP8"): 1800,
}
BATCH, RATE = 128, 0.01


def section(rounds: int) -> str:
    """The table of training steps, on one thread and on all."""
    everything = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rows = []
    for network, widths in NETWORKS.items():
        steps = candidates(widths)
        single, several = (_timings(steps, threads, rounds) for threads in (1, everything))
        for name in steps:
            ratio = single[name].median / single["NumPy float32"].median
            bar = BARS.get((network, name), "")
            cells = [single[name].microseconds(), f"{ratio:.2f}", several[name].microseconds(), f"{bar}"]
            rows.append([network, name, *cells])
    columns = ("1 thread, µs (quartiles)", "of NumPy's", f"{everything} threads, µs (quartiles)", "bar, µs")
    title = f"### Training step, batch {BATCH}, cross-entropy, SGD"
    table = markdown_table(("network", "step", *columns), rows)
    return f"{title}\n\nThreads are those of BLAS, of torch and of the kernels.\n\n{table}"


def _timings(steps: dict[str, Callable[[], object]], threads: int, rounds: int) -> dict[str, Timing]:
    """Time the steps with so many threads; torch apart, whose waiting threads keep the cores busy."""
    from threadpoolctl import threadpool_limits

    theirs = {name: step for name, step in steps.items() if name.startswith("torch")}
    ours = {name: step for name, step in steps.items() if name not in theirs}
    with threadpool_limits(threads), kernel_threads(threads):
        timings = side_by_side(ours, rounds, least=1e-2)
        if theirs:
            import torch

            torch.set_num_threads(threads)
            timings |= side_by_side(theirs, rounds, least=1e-2)
    return timings


def candidates(widths: Sequence[int]) -> dict[str, Callable[[], object]]:
    """One step of each implementation, on the same data and starting weights, checked against each other."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, widths[0]), dtype=np.float32)
    labels = rng.integers(0, widths[-1], BATCH)
    model = build(widths, None)
    start = [parameter.numpy().copy() for parameter in model.parameters()]
    steps: dict[str, Callable[[], object]] = {
        "NumPy float32": numpy_step(start, x, labels),
        "autoq float32": autoq_step(model, aq.tensor(x), labels),
        "autoq MXFP8": autoq_step(build(widths, aq.mxfp8), aq.tensor(x).quantize(aq.mxfp8), labels),
    }
    if find_spec("torch") is not None:
        steps["torch float32"] = torch_step(start, x, labels)
    losses = {name: float(step()) for name, step in steps.items()}
    assert np.ptp([loss for name, loss in losses.items() if "float32" in name]) < 1e-5, losses
    assert abs(losses["autoq MXFP8"] - losses["autoq float32"]) < 0.05, losses
    return steps


def build(widths: Sequence[int], weights: aq.QuantScheme | None) -> aq.nn.Sequential:
    """A stack of Linear and ReLU with float32 logits."""
    rng = aq.Generator(0)
    layers: list[aq.nn.Module] = []
    for inputs, outputs in zip(widths[:-2], widths[1:-1], strict=True):
        layers += [aq.nn.Linear(inputs, outputs, weight_scheme=weights, rng=rng), aq.nn.ReLU()]
    head = aq.nn.Linear(*widths[-2:], weight_scheme=weights, rng=rng, out_dtype=aq.float32)
    return aq.nn.Sequential(*layers, head)


def autoq_step(model: aq.nn.Module, x: aq.Tensor, labels: np.ndarray) -> Callable[[], object]:
    """A step as a user writes it."""
    optimizer = aq.optim.SGD(model.parameters(), lr=RATE)

    def step() -> float:
        loss = aq.nn.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def numpy_step(start: Sequence[np.ndarray], x: np.ndarray, labels: np.ndarray) -> Callable[[], object]:
    """The same arithmetic by hand, gradients and all."""
    weights, biases = [w.copy() for w in start[::2]], [b.copy() for b in start[1::2]]
    rows = np.arange(len(x))

    def step() -> float:
        signals = [x]
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            signals.append(np.maximum(signals[-1] @ weight.T + bias, 0))
        logits = signals[-1] @ weights[-1].T + biases[-1]
        logits -= logits.max(1, keepdims=True)
        exponentials = np.exp(logits)
        totals = exponentials.sum(1, keepdims=True)
        loss = float(np.mean(np.log(totals[:, 0]) - logits[rows, labels]))
        gradient = exponentials / totals
        gradient[rows, labels] -= 1
        gradient /= len(x)
        for layer in reversed(range(len(weights))):
            weight_gradient, bias_gradient = gradient.T @ signals[layer], gradient.sum(0)
            if layer:
                gradient = (gradient @ weights[layer]) * (signals[layer] > 0)
            weights[layer] -= RATE * weight_gradient
            biases[layer] -= RATE * bias_gradient
        return loss

    return step


def torch_step(start: Sequence[np.ndarray], x: np.ndarray, labels: np.ndarray) -> Callable[[], object]:
    """torch, eager, float32."""
    import torch

    layers: list[torch.nn.Module] = []
    for weight, bias in zip(start[::2], start[1::2], strict=True):
        linear = torch.nn.Linear(*weight.shape[::-1])
        linear.load_state_dict(
            {"weight": torch.from_numpy(weight.copy()), "bias": torch.from_numpy(bias.copy())}
        )
        layers += [linear, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    images, targets = torch.from_numpy(x), torch.from_numpy(labels)

    def step() -> float:
        loss = torch.nn.functional.cross_entropy(model(images), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step
