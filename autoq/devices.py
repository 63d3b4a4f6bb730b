"""Devices: the only file that knows which array library a device stands for."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import DeviceError, DTypeError

DEVICES = ("cpu",)


def resolve(device: str | None, default: str = "cpu") -> str:
    """The device's name, or the default for None.

    Raises:
        DeviceError: The device is not offered.

    Example:
        >>> resolve(None)
        'cpu'
    """
    name = default if device is None else device
    if name not in DEVICES:
        raise DeviceError(
            f"device {name!r} is not offered.",
            ", ".join(map(repr, DEVICES)),
            'Leave device out, or pass "cpu"; for a dtype use astype.',
        )
    return name


def array_namespace(array: Any) -> Any:
    """The array library of ``array``: NumPy on the CPU."""
    if isinstance(array, np.ndarray):
        return np
    raise DTypeError(
        f"an array of type {type(array).__name__}.", "numpy.ndarray", "Convert it with numpy.asarray first."
    )


def device_of(array: Any) -> str:
    """The device that holds ``array``.

    Example:
        >>> device_of(np.zeros(3))
        'cpu'
    """
    array_namespace(array)
    return "cpu"
