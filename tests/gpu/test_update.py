"""Optimizer steps, norms and scaling on the device: the bits of the CPU, one launch for all parameters."""

from __future__ import annotations

import math
import os

import ml_dtypes
import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda import gradients, launch, update
from autoq.optim import SGD, Adam, AdamW, GradScaler, clip_grad_norm

SMALL = os.environ.get("AUTOQ_TEST_SANITIZER") == "1"
SIZES = (5, 1030, 0, 1, 2048, 2049) if SMALL else (5, 1030, 0, 1, 2048, 2049, 70_001, 1 << 20)
METHODS = [
    (SGD, {"lr": 0.1}),
    (SGD, {"lr": 0.1, "weight_decay": 0.01}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (Adam, {"lr": 0.1}),
    (Adam, {"lr": 0.1, "weight_decay": 0.01}),
    (AdamW, {"lr": 0.1}),
]


def arrays(seed: int, sizes=SIZES) -> list[np.ndarray]:
    """Values of all sizes, and subnormal ones: nothing may be flushed to 0."""
    rng = np.random.default_rng(seed)
    found = [rng.standard_normal(n) * np.ldexp(1.0, rng.integers(-40, 10, n)) for n in sizes]
    for x in found:
        x[::13] = 1e-41
    return [x.astype(np.float32) for x in found]


def trained(method, options, device, dtype, steps=3):
    given = [aq.Parameter(aq.tensor(a, dtype=dtype, device=device)) for a in arrays(0)]
    optimizer = method(given, **options)
    for step in range(steps):
        for p, g in zip(given, arrays(step + 1), strict=True):
            p.grad = aq.tensor(g, device=device)
        before = launch.launches
        optimizer.step()
        assert launch.launches - before == (device == "cuda")
    return optimizer


def bits(optimizer):
    parts = [p.numpy().tobytes() for p in optimizer.groups[0]["params"]]
    return parts + [x.tobytes() for key, x in optimizer.state_dict().items() if key.startswith("state")]


@pytest.mark.parametrize("dtype", [aq.float32, aq.float16, aq.bfloat16], ids=str)
@pytest.mark.parametrize(("method", "options"), METHODS)
def test_a_step_has_the_bits_of_the_cpu(method, options, dtype):
    with np.errstate(over="ignore", under="ignore"):
        expected = bits(trained(method, options, "cpu", dtype))
    assert bits(trained(method, options, "cuda", dtype)) == expected


@pytest.mark.parametrize("offset", [1, 2, 4])
def test_odd_addresses_and_options_on_the_device(cupy, offset):
    sizes = (17, 5000)
    values = [cupy.asarray(np.pad(a, (offset, 0)))[offset:] for a in arrays(0, sizes)]
    given = [cupy.asarray(a) for a in arrays(1, sizes)]
    state = [[cupy.zeros(n, np.float32) for n in sizes] for _ in range(2)]
    table = update.Table(sizes)
    rows = {update.VALUE: values, update.GRADIENT: given, update.FIRST: state[0], update.SECOND: state[1]}
    table.point(rows)
    root, rate = 1.0 / math.sqrt(1.0 - 0.999), 0.1 / (1.0 - 0.9)
    numbers = np.array([0.999, 0.9, 1.0 - 0.9, 0.999, 1.0 - 0.999, root, 1e-8, rate], np.float32)
    update.adam(table, ("float32", "float32"), cupy.asarray(numbers), "decoupled")
    parameters = [aq.Parameter(aq.tensor(a, device="cpu")) for a in arrays(0, sizes)]
    for p, g in zip(parameters, arrays(1, sizes), strict=True):
        p.grad = aq.tensor(g, device="cpu")
    AdamW(parameters, lr=0.1, weight_decay=0.01).step()
    for a, p in zip(values, parameters, strict=True):
        assert a.get().tobytes() == p.numpy().tobytes()


def test_a_transposed_gradient(cupy):
    p = aq.Parameter(aq.tensor(np.ones((3, 4), np.float32), device="cuda"))
    g = np.arange(12, dtype=np.float32).reshape(4, 3)
    p.grad = aq.tensor(g, device="cuda").T
    SGD([p], lr=1.0).step()
    assert np.array_equal(p.numpy(), 1 - g.T)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_common_norm_is_the_same_every_time(cupy, dtype):
    host = [np.clip(a, -100, 100).astype(dtype) for a in arrays(3)]
    given = [cupy.asarray(a) for a in host]
    exact = math.sqrt(sum(float(np.sum(a.astype(np.float64) ** 2)) for a in host))
    table, kind = update.Table(SIZES), np.dtype(dtype).name
    table.point({update.GRADIENT: given})
    found = [gradients.norm(table, kind, 1.0) for _ in range(3)]
    assert len({norm.get().tobytes() for norm, _ in found}) == 1
    assert float(found[0][0]) == pytest.approx(exact, rel=1e-13)
    assert found[0][1].get() == np.float32(1.0 / float(found[0][0]))


def test_clipping_and_loss_scaling():
    given = [aq.Parameter(aq.tensor(a, device="cuda")) for a in arrays(0)]
    for p, g in zip(given, arrays(1), strict=True):
        p.grad = aq.tensor(g, device="cuda")
    exact = math.sqrt(sum(float(np.sum(a.astype(np.float64) ** 2)) for a in arrays(1)))
    before = launch.launches
    assert clip_grad_norm(given, 0.5) == pytest.approx(exact, rel=1e-13)
    assert launch.launches - before == 3
    factor = np.float32(0.5 / exact)
    for p, g in zip(given, arrays(1), strict=True):
        assert np.allclose(p.grad.numpy(), g * factor, rtol=1e-6, atol=0)
    optimizer, scaler = SGD(given, lr=0.1), GradScaler(8.0)
    assert scaler.unscale_(optimizer)
    given[1].grad = aq.tensor(np.full(SIZES[1], np.inf, np.float32), device="cuda")
    scaler.update()
    assert not scaler.step(optimizer)
