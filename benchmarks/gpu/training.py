"""Training steps: an MLP whose products fill the card, and the digits network, which is all launches."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

import autoq as aq
from gpu.memory import cupy_peak, torch_peak
from gpu.networks import DIGITS, MLP, Problem, Step, autoq_step, mx_linear, torch_step

CAPTURED_BAR = 1.1
MEMORY_BAR = 0.55
CHECKED = 6  # steps whose losses are compared


def run(report: Any) -> None:
    """Both networks, eager and captured, beside torch; losses compared; peak memory."""
    mlp = MLP._replace(widths=(64, 128, 128, 64), batch=64) if report.quick else MLP
    losses(report, mlp, "MLP")
    losses(report, DIGITS, "digits")
    digits(report)
    mlp_steps(report, mlp)
    memory(report, mlp)


def first_losses(make: Callable[[], Step]) -> list[float]:
    """The losses of the first steps, read after all of them ran."""
    step = make()
    return [float(loss.item()) for loss in [step() for _ in range(CHECKED)]]


def losses(report: Any, problem: Problem, name: str) -> None:
    """Captured steps give the losses of eager ones bit for bit, and float32 those of torch nearly."""
    for kind, signal, weights in (("float32", None, None), ("MXFP8", aq.mxfp8, aq.mxfp8)):
        try:
            eager = first_losses(lambda s=signal, w=weights: autoq_step(problem, s, w))
            captured = first_losses(lambda s=signal, w=weights: autoq_step(problem, s, w, captured=True))
            report.check(
                f"{name} {kind}: captured losses are eager's", eager == captured, f"{eager} {captured}"
            )
        except Exception as error:
            traceback.print_exc()
            report.check(f"{name} {kind}: steps run", False, f"{type(error).__name__}: {error}")
            continue
        if kind == "float32" and has_torch(report):
            theirs = first_losses(lambda: torch_step(problem))
            report.check(f"{name} losses are torch's", np.allclose(eager, theirs, 1e-3), f"{eager} {theirs}")


def has_torch(report: Any) -> bool:
    """Whether torch is there to compare with, on a device."""
    return report.device and find_spec("torch") is not None


def timed(report: Any, name: str, make: Callable[[], Step], **options: Any) -> float | None:
    """Build and time a step, on the device and by the clock on the wall; None where it doesn't run."""
    try:
        step = make()
        report.time(name, step, **options)
        return report.wall_time(name, step, peer=options.get("peer", False))
    except Exception as error:
        traceback.print_exc()
        said = f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        if options.get("peer"):
            report.note(f"{said} (the peer's own failure)")
        else:
            report.check(f"{name} runs", False, said)
        return None
    finally:
        free()


def free() -> None:
    """Drop the last step's memory, captured graphs included."""
    import sys

    gc.collect()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()


def digits(report: Any) -> None:
    """The digits step: captured, it is held against torch's float32 step under ``torch.cuda.graph``."""
    timed(report, "digits float32, eager", lambda: autoq_step(DIGITS))
    timed(report, "digits MXFP8 signal, eager", lambda: autoq_step(DIGITS, aq.mxfp8))
    ours = {
        "float32": timed(report, "digits float32, captured", lambda: autoq_step(DIGITS, captured=True)),
        "MXFP8 signal": timed(
            report, "digits MXFP8 signal, captured", lambda: autoq_step(DIGITS, aq.mxfp8, captured=True)
        ),
    }
    if not has_torch(report):
        return
    timed(report, "torch digits float32, eager", lambda: torch_step(DIGITS), peer=True)
    theirs = timed(
        report, "torch digits float32, captured", lambda: torch_step(DIGITS, "captured"), peer=True
    )
    for kind, seconds in ours.items():
        if seconds and theirs:
            name = f"captured digits step {kind}, of torch's captured float32"
            report.bars(name, seconds / theirs, CAPTURED_BAR, at_most=True)


def mlp_steps(report: Any, mlp: Problem) -> None:
    """The MLP's step in both libraries."""
    flops = mlp.flops()
    kinds = {
        "float32": (None, None),
        "MXFP8 signal": (aq.mxfp8, None),
        "MXFP8 signal and weights": (aq.mxfp8,) * 2,
    }
    for kind, (signal, weights) in kinds.items():
        for how in ("eager", "captured"):
            timed(
                report,
                f"MLP {kind}, {how}",
                lambda s=signal, w=weights, c=how == "captured": autoq_step(mlp, s, w, c),
                flops=flops,
            )
    if not has_torch(report):
        return
    for how in ("eager", "compiled", "captured"):
        timed(report, f"torch MLP float32, {how}", lambda h=how: torch_step(mlp, h), flops=flops, peer=True)
    for how in ("eager", "compiled"):
        name = f"torch + torchao MLP MXFP8 fake-quantized, {how}"
        timed(report, name, lambda h=how: torch_step(mlp, h, mx_linear()), flops=flops, peer=True)


def memory(report: Any, mlp: Problem) -> None:
    """Peak memory of the MLP's eager step: parameters, gradients, batch, tape and what a step works in."""
    if not report.device:
        return
    ours = {}
    for kind, signal in (("float32", None), ("MXFP8 signal", aq.mxfp8)):
        ours[kind] = cupy_peak(lambda s=signal: autoq_step(mlp, s))
        report.figure(f"MLP {kind}, eager: peak memory", ours[kind] / 1e6, "MB")
        captured = cupy_peak(lambda s=signal: autoq_step(mlp, s, captured=True))
        report.figure(f"MLP {kind}, captured, warm-up included: peak memory", captured / 1e6, "MB")
        free()
    if has_torch(report):
        theirs = torch_peak(lambda: torch_step(mlp))
        report.figure("torch MLP float32, eager: peak memory", theirs / 1e6, "MB", peer=True)
        name = "peak memory of the MLP step with an MXFP8 signal, of torch float32's"
        report.bars(name, ours["MXFP8 signal"] / theirs, MEMORY_BAR, at_most=True)
