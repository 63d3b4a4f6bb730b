"""State dicts: a snapshot of stored values, and the check of a whole dict before any of it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autoq.context import using
from autoq.devices import is_array, on_gpu, to_host
from autoq.errors import StateError
from autoq.storage.qtensor import QTensor
from autoq.tape.tensor import Tensor
from autoq.types import dtype_name


def snapshot(value: Any) -> Any:
    """A copy of a stored value on the CPU that no in-place update reaches; packed ones never change."""
    if isinstance(value, QTensor):
        return value.to("cpu")
    return to_host(value) if on_gpu(value) else np.array(value)


def put(tensor: Tensor, value: Any) -> None:
    """Replace the value of ``tensor`` by a copy of a checked value of its shape and dtype."""
    with using(grad=False):
        tensor.assign(value)


def move(tensor: Tensor, device: str) -> None:
    """Move the value and the gradient of ``tensor`` to a device; it stays the same object."""
    if tensor.device != device:
        tensor._value = tensor.detach().to(device)._value
        tensor._version[0] += 1
    if tensor.grad is not None:
        tensor.grad = tensor.grad.to(device)


def check_state(owner: str, expected: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """The stored values of ``state``, if each entry of ``expected`` has one of its shape and dtype.

    Raises:
        StateError: Listing every entry that is missing, unknown, misshapen or of another dtype.
    """
    if not isinstance(state, Mapping):
        raise StateError(
            f"{owner}.load_state_dict of a {type(state).__name__}.",
            "a dict of values by name",
            "Pass what state_dict() or aq.io.load returned; the model is unchanged.",
        )
    values = {name: _stored(value) for name, value in state.items()}
    faults = [f"missing {name!r} {spelled(value)}" for name, value in expected.items() if name not in values]
    faults += [f"unknown {name!r}" for name in values if name not in expected]
    for name, value in expected.items():
        if name in values:
            faults += _faults(name, value, values[name])
    if faults:
        raise StateError(
            f"{owner}.load_state_dict: {'; '.join(faults)}.",
            "one entry for each parameter and buffer, of its shape and dtype",
            "Build the model as it was saved, or start from model.state_dict(); the model is unchanged.",
        )
    return values


def spelled(value: Any) -> str:
    """Dtype and shape of a stored value, as errors name them: ``float32 (2, 3)``."""
    return f"{dtype_name(value.dtype)} {tuple(value.shape)}"


def _stored(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.value
    return value if isinstance(value, QTensor) or is_array(value) else np.asarray(value)


def _faults(name: str, expected: Any, given: Any) -> list[str]:
    if tuple(expected.shape) != tuple(given.shape) or expected.dtype != given.dtype:
        return [f"{name!r} is {spelled(given)}, the model's is {spelled(expected)}"]
    return []
