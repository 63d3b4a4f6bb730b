"""A model that is moved between steps: the state of its optimizer goes along."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.devices import device_of

METHODS = {
    "SGD": lambda model: aq.optim.SGD(model.parameters(), lr=0.1),
    "momentum": lambda model: aq.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda model: aq.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.1),
    "AdamW": lambda model: aq.optim.AdamW(model.parameters(), lr=0.01),
}
DTYPES = [aq.float32, aq.float64, aq.float16, aq.bfloat16]


def trained(method, dtype, devices):
    """A small model after a step on each of the devices, and its optimizer."""
    with aq.default_device("cpu"):
        model = aq.nn.Linear(8, 3, rng=aq.Generator(0), dtype=dtype)
    optimizer = METHODS[method](model)
    for number, device in enumerate(devices):
        model.to(device)
        x = np.random.default_rng(number).standard_normal((5, 8)).astype(np.float32)
        (model(aq.tensor(x, device=device)) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_state_follows_the_model_there_and_back(method, dtype, device):
    moved, optimizer = trained(method, dtype, ["cpu", "cpu", device, device, "cpu", "cpu", device])
    still, other = trained(method, dtype, ["cpu"] * 7)
    assert moved.weight.device == device
    for slot in optimizer._slots[0]:
        assert {device_of(array) for array in slot.state.values()} <= {device}
    close = {aq.float64: 1e-9, aq.float32: 1e-5}.get(dtype, 1e-2)
    for one, two in zip(moved.parameters(), still.parameters(), strict=True):
        np.testing.assert_allclose(
            one.numpy().astype(np.float64), two.numpy().astype(np.float64), rtol=close, atol=close
        )
    states = optimizer.state_dict(), other.state_dict()
    assert states[0].keys() == states[1].keys()
    for key in states[0]:
        np.testing.assert_allclose(states[0][key], states[1][key], rtol=close, atol=close)
