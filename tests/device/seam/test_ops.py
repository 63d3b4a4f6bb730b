"""Operations on a device: none waits for a value, forward or backward, however its operands are stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.tape.op import REGISTRY
from tests.device.seam.test_training import no_reads
from tests.ops import registry

# How long these results are depends on values.
LENGTHS = {"nonzero", "unique_values", "unique_counts", "unique_inverse", "unique_all"}
# What these look at is on the CPU: signs that are checked, positions that decide whether blocks stay whole,
# masks that say how many values there are.
LOOKS = {"hadamard", "hadamard_transposed", "take", "update"}
NAMES = sorted(name for name, op in REGISTRY.items() if op.kind != "cast" and name not in LENGTHS)


def operands_of(op: Any, given: tuple[Any, ...], scheme: str | None, device: str) -> list[Any]:
    """A sample's operands on the device, packed where a scheme says so and tracked where there is a rule."""
    found = []
    for i, x in enumerate(given):
        if not isinstance(x, np.ndarray | np.generic):
            found.append(x)
            continue
        floats = np.asarray(x).dtype.kind == "f"
        t = aq.tensor(np.asarray(x, np.float32) if floats else x, device=device)
        t = t.quantize(scheme) if floats and scheme is not None and t.ndim else t
        t.requires_grad = registry.is_differentiable(x, op, i)
        found.append(t)
    return found


def static_of(static: dict[str, Any], device: str) -> dict[str, Any]:
    """Static arguments with arrays, as indices and labels, as tensors on the device."""
    return {k: aq.tensor(v, device=device) if isinstance(v, np.ndarray) else v for k, v in static.items()}


@pytest.mark.parametrize("scheme", [None, "mxfp8", "nvfp4"])
@pytest.mark.parametrize("name", NAMES)
def test_an_op_and_its_gradient_wait_for_no_value(name: str, scheme: str | None, device: str) -> None:
    op = REGISTRY[name]
    for given, static in registry.samples(name):
        operands = operands_of(op, given, scheme, device)
        arguments = static if name in LOOKS else static_of(static, device)
        with no_reads():
            out = registry.run(op, operands, arguments)
            if out.requires_grad:
                out.backward(aq.ones(out.shape, device=device))
        assert out.device == device
        for x in operands:
            if isinstance(x, aq.Tensor) and x.requires_grad and out.requires_grad:
                assert x.grad is None or x.grad.device == device
