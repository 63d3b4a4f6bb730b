"""Optimizers of parameters on a GPU, with the stand-in's kernels: one launch, no reads, the CPU's bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STARTED = "AUTOQ_TEST_OPTIMIZERS"

if os.environ.get(STARTED) != "1":

    def test_optimizers_on_the_stand_in() -> None:
        """The tests below, in a process of their own: the stand-in must come before CuPy."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(Path(__file__))],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=500,
            env=os.environ | {STARTED: "1", "AUTOQ_TEST_DEVICE": "standin"},
        )
        assert done.returncode == 0, done.stdout + done.stderr

else:
    import numpy as np

    import autoq as aq
    from autoq.optim import SGD, Adam, AdamW, GradScaler, clip_grad_norm

    from .standin_device import no_reads
    from .standin_update import LAUNCHES

    SHAPES = [(3, 4), (5,), (), (2, 0)]
    METHODS = [
        (SGD, {"lr": 0.1}),
        (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        (Adam, {"lr": 0.1}),
        (Adam, {"lr": 0.1, "weight_decay": 0.01}),
        (AdamW, {"lr": 0.1}),
    ]

    def arrays(seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [np.asarray(rng.standard_normal(shape), np.float32) for shape in SHAPES]

    def trained(method, options, device, dtype=aq.float32, steps=3, optimizer=None):
        """An optimizer after some steps on a device."""
        if optimizer is None:
            given = [aq.Parameter(aq.tensor(a, dtype=dtype, device=device)) for a in arrays(0)]
            optimizer = method(given, **options)
        for step in range(steps):
            for p, g in zip(optimizer.groups[0]["params"], arrays(step + 1), strict=True):
                p.grad = aq.tensor(g, device=device)
            del LAUNCHES[:]
            if device == "cuda":
                with no_reads():
                    optimizer.step()
                continue
            optimizer.step()
        return optimizer

    def values(optimizer):
        return b"".join(p.numpy().tobytes() for p in optimizer.groups[0]["params"])

    @pytest.mark.parametrize("dtype", [aq.float32, aq.float16, aq.bfloat16])
    @pytest.mark.parametrize(("method", "options"), METHODS)
    def test_a_step_is_one_launch_with_the_bits_of_the_cpu(method, options, dtype):
        found, wanted = trained(method, options, "cuda", dtype), trained(method, options, "cpu", dtype)
        assert len(LAUNCHES) == 0  # of the CPU's last step
        assert values(found) == values(wanted)
        trained(method, options, "cuda", dtype, 1, found)
        assert len(LAUNCHES) == 1

    def test_parameters_of_other_counts_of_steps_are_launches_of_their_own():
        optimizer = trained(Adam, {"lr": 0.1}, "cuda")
        first = optimizer.groups[0]["params"][0]
        first.grad = None
        optimizer.step()
        first.grad = aq.tensor(arrays(9)[0], device="cuda")
        del LAUNCHES[:]
        optimizer.step()
        assert LAUNCHES == ["adam", "adam"]

    @pytest.mark.parametrize(("method", "options"), METHODS)
    def test_state_goes_from_device_to_device(method, options):
        found = trained(method, options, "cuda")
        state = found.state_dict()
        assert all(type(x) is np.ndarray for x in state.values())
        there = trained(method, options, "cuda", steps=1)
        there.load_state_dict(state)
        here = trained(method, options, "cpu", steps=1)
        here.load_state_dict(state)
        for new in (there, here):
            device = new.groups[0]["params"][0].device
            for p, old in zip(new.groups[0]["params"], found.groups[0]["params"], strict=True):
                with aq.no_grad():
                    p.assign(aq.tensor(old.numpy(), device=device))
            trained(method, options, device, optimizer=new)
        assert values(there) == values(here)

    def test_float64_parameters_and_methods_of_others_work_without_kernels():
        class Signed(SGD):
            def _update(self, value, gradient, slot, options):
                value -= np.sign(gradient) * options["lr"]

        for method, dtype in ((AdamW, aq.float64), (Signed, aq.float32)):
            found, wanted = (trained(method, {"lr": 0.1}, device, dtype) for device in ("cuda", "cpu"))
            assert values(found) == values(wanted)

    def test_a_gradient_elsewhere_is_an_error_that_names_both_devices():
        optimizer = trained(SGD, {"lr": 0.1}, "cuda", steps=0)
        parameter = optimizer.groups[0]["params"][0]
        with pytest.raises(aq.errors.DeviceError, match="cuda and cpu"):
            parameter.grad = aq.tensor(arrays(0)[0], device="cpu")
        parameter._grad = aq.tensor(arrays(0)[0], device="cpu")
        with pytest.raises(aq.errors.DeviceError, match="cuda and cpu"):
            optimizer.step()

    def test_parameters_that_move_take_their_state_along():
        class Model(aq.nn.Module):
            def __init__(self):
                self.weight = aq.Parameter(aq.tensor(arrays(0)[0], device="cpu"))

        models = [Model(), Model()]
        made = [AdamW(model, lr=0.1) for model in models]
        for step in range(4):
            if step == 2:
                models[0].to("cuda")
            for model, optimizer in zip(models, made, strict=True):
                model.weight.grad = aq.tensor(arrays(step)[0], device=model.weight.device)
                optimizer.step()
        assert models[0].weight.device == "cuda"
        assert models[0].weight.numpy().tobytes() == models[1].weight.numpy().tobytes()

    @pytest.mark.parametrize("most", [0.5, 1e6])
    def test_gradients_are_clipped_before_the_norm_is_read(most):
        found, wanted = (trained(SGD, {"lr": 0.1}, device) for device in ("cuda", "cpu"))
        del LAUNCHES[:]
        norms = [clip_grad_norm(each.groups[0]["params"], most) for each in (found, wanted)]
        assert LAUNCHES == ["norm", "scale"]
        assert norms[0] == pytest.approx(norms[1], rel=1e-6)
        for a, b in zip(found.groups[0]["params"], wanted.groups[0]["params"], strict=True):
            assert a.grad.device == "cuda"
            assert np.allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-6, atol=0)

    @pytest.mark.parametrize("odd", [1.0, np.inf])
    def test_a_scaler_reads_one_number(odd):
        optimizer, scaler = trained(SGD, {"lr": 0.1}, "cuda"), GradScaler(4.0)
        for p in optimizer.groups[0]["params"]:
            p.grad = aq.tensor(np.full(p.shape, odd, np.float32), device="cuda")
        del LAUNCHES[:]
        assert scaler.unscale_(optimizer) == np.isfinite(odd)
        assert LAUNCHES == ["scale", "norm"]
        assert optimizer.groups[0]["params"][0].grad.numpy()[0, 0] == odd / 4

    def test_zero_grad_forgets():
        optimizer = trained(SGD, {"lr": 0.1}, "cuda")
        with no_reads():
            optimizer.zero_grad()
        assert optimizer.groups[0]["params"][0].grad is None
