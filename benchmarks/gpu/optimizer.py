"""Optimizer steps, clipping and random numbers: fractions of a copy, host time, torch's fused ones beside."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

import autoq as aq
from autoq.optim import SGD, Adam, AdamW, clip_grad_norm
from gpu.dequantize import peer

# Shapes of a transformer of about 125 M parameters: 12 blocks of width 768.
BLOCK = [
    (768,),
    (768,),
    (2304, 768),
    (2304,),
    (768, 768),
    (768,),
    (768,),
    (768,),
    (3072, 768),
    (3072,),
    (768, 3072),
    (768,),
]
METHODS = [
    ("SGD", SGD, {"lr": 0.1}, 12),
    ("SGD with momentum", SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}, 20),
    ("Adam", Adam, {"lr": 1e-3}, 28),
    ("AdamW", AdamW, {"lr": 1e-3}, 28),
]


def run(report: Any) -> None:
    """Steps of one large parameter, of a transformer's, and of a small network's."""
    models = {
        "one of 128 Mi values": [(report.size(1 << 27, 1 << 12),)],
        "a transformer's 148": [(report.size(50304, 64), 768), *BLOCK * 12, (768,), (768,), (1024, 768)],
        "a small network's 6": [(64, 64), (64,), (64, 64), (64,), (64, 10), (10,)],
    }
    for title, shapes in models.items():
        for name, method, options, each in METHODS:
            steps(report, title, shapes if not report.quick else shapes[-6:], name, method, options, each)
    clipping(report, models["a transformer's 148"][-6:] if report.quick else models["a transformer's 148"])
    if report.device:
        draws(report)
        if find_spec("torch") is not None:
            for title, shapes in models.items():
                peers(report, title, shapes)


def parameters(shapes: list[tuple[int, ...]]) -> list[Any]:
    """Parameters on the device, with gradients."""
    rng = np.random.default_rng(0)
    made = []
    for shape in shapes:
        start = rng.standard_normal(min(int(np.prod(shape)), 1 << 16)).astype(np.float32)
        array = np.resize(start, shape)
        made.append(aq.Parameter(aq.tensor(array, device="cuda")))
        made[-1].grad = aq.tensor(array[..., ::-1].copy(), device="cuda")
    return made


def steps(
    report: Any, title: str, shapes: list[tuple[int, ...]], name: str, method: Any, options: Any, each: int
) -> None:
    """The bits of the CPU on small parameters of the same kind, then the time of the large ones."""
    report.check(f"{name} as on the CPU", partial(same_bits, method, options))
    given = parameters(shapes)
    optimizer = method(given, **options)
    optimizer.step()
    moved = each * sum(p.size for p in given)
    report.time(f"{name}, {title}", optimizer.step, moved=moved)
    report.host_time(f"{name}, {title}, host", optimizer.step)


def same_bits(method: Any, options: Any) -> bool:
    """Whether two steps on both devices give the same parameters."""
    found = []
    for device in ("cpu", "cuda"):
        rng = np.random.default_rng(1)
        given = [
            aq.Parameter(aq.tensor(rng.standard_normal(n).astype(np.float32), device=device))
            for n in (5, 4099)
        ]
        optimizer = method(given, **options)
        for _ in range(2):
            for p in given:
                p.grad = aq.tensor(rng.standard_normal(p.size).astype(np.float32), device=device)
            optimizer.step()
        found.append(b"".join(p.numpy().tobytes() for p in given))
    return found[0] == found[1]


def clipping(report: Any, shapes: list[tuple[int, ...]]) -> None:
    """The norm of all gradients, and their scaling; the norm is read."""
    given = parameters(shapes)
    gradients = [p.grad for p in given]
    exact = sum(float((g.numpy().astype(np.float64) ** 2).sum()) for g in gradients) ** 0.5

    def clip() -> float:
        for p, g in zip(given, gradients, strict=True):
            p.grad = g
        return float(clip_grad_norm(given, 1.0))

    report.check("clip_grad_norm", lambda: abs(clip() / exact - 1) < 1e-9, f"norm {exact:.3f}")
    moved = 12 * sum(p.size for p in given)
    report.time("clip_grad_norm, a transformer's 148", clip, moved=moved)


def draws(report: Any) -> None:
    """Random numbers by counters, beside CuPy's."""
    import cupy

    from autoq.kernels.cuda import random
    from autoq.random import Draw, random_words, uniform01

    size, draw = report.size(1 << 28), Draw(3, 4)
    out, words = cupy.empty(size, np.float32), cupy.empty(size, np.uint32)
    random.uniform(draw, out)
    report.check("uniform", lambda: np.array_equal(out[:10000].get(), uniform01(draw, 10000)))
    report.time("uniform float32", partial(random.uniform, draw, out), moved=out.nbytes)
    random.random_words(draw, words)
    report.check("words", lambda: np.array_equal(words[:10000].get(), random_words(draw, 10000)))
    report.time("words", partial(random.random_words, draw, words), moved=words.nbytes)
    random.normal(draw, out)
    report.check("normal", lambda: abs(float(out.mean())) < 1e-3 and abs(float(out.std()) - 1) < 1e-3)
    report.time("normal float32", partial(random.normal, draw, out), moved=out.nbytes)
    rng = cupy.random.default_rng(0)
    peer(report, "cupy random", lambda: rng.random(size, dtype=np.float32), out.nbytes)
    peer(report, "cupy standard_normal", lambda: rng.standard_normal(size, dtype=np.float32), out.nbytes)


def peers(report: Any, title: str, shapes: list[tuple[int, ...]]) -> None:
    """torch's fused and foreach optimizers on as many values."""
    import torch

    given = [torch.nn.Parameter(torch.randn(shape, device="cuda")) for shape in shapes]
    for p in given:
        p.grad = torch.randn_like(p)
    values = sum(p.numel() for p in given)
    made = {
        "fused AdamW": (torch.optim.AdamW(given, lr=1e-3, fused=True), 28),
        "foreach AdamW": (torch.optim.AdamW(given, lr=1e-3, foreach=True), 28),
        "fused SGD with momentum": (torch.optim.SGD(given, lr=0.1, momentum=0.9, fused=True), 20),
    }
    for name, (optimizer, each) in made.items():
        peer(report, f"torch {name}, {title}", optimizer.step, each * values)
        report.host_time(f"torch {name}, {title}, host", optimizer.step, peer=True)
    clip = partial(torch.nn.utils.clip_grad_norm_, given, 1.0, foreach=True)
    peer(report, f"torch clip_grad_norm_, {title}", clip, 12 * values)
