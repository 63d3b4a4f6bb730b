"""From what users pass to stored values: arrays and QTensors in the dtypes that tensors have."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.context import current
from autoq.devices import array_namespace, device_of, on_gpu, to_device, to_host, using_device
from autoq.errors import ArgumentError, DTypeError
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.storage.inputs import converted
from autoq.types import FLOATS, as_dtype, float32


def real_array(data: Any, what: str) -> Any:
    """An array of real numbers from an array, tensor, number or nested list, for use inside an op.

    What is on a GPU stays there.

    Raises:
        DTypeError: Complex, object or string data.
        ArgumentError: Nested lists of unequal lengths.
    """
    if hasattr(data, "_value"):
        value = data._value.dequantize() if type(data._value) is QTensor else data._value
        return value if on_gpu(value) else data.numpy()
    if data is None:
        raise DTypeError(f"{what} is None.", "numbers, arrays and tensors", "Pass the numbers.")
    return array_of(data)


def copied(data: Any, dtype: Any, device: str | None = None) -> Any:
    """A fresh stored value: an array or, for a scheme, a QTensor.

    Args:
        data: What ``aq.tensor`` takes.
        dtype: A dtype that tensors have; None keeps the data's, or takes the default.
        device: Where to; None leaves what has a device there and puts the rest on the default device.
    """
    if hasattr(data, "_value"):
        data, device = data._value, device or data.device
    if type(data) is QTensor:
        device = device or data.device
        return _moved_copy(data, device) if dtype in (None, data.scheme) else _cast(data.to(device), dtype)
    array = array_of(data)
    if array.__class__ is np.ndarray:
        made = np.array(array, _default_dtype(data, array) if dtype is None else None, order="C")
        device = device or current().device
        made = made if device == "cpu" else to_device(made, device)
    else:
        made = _moved_copy(array, device or device_of(array))
    return made if dtype is None else _cast(made, dtype)


def _moved_copy(value: Any, device: str) -> Any:
    """A copy of an array or QTensor, on a device."""
    made = value.to(device) if type(value) is QTensor else to_device(value, device)
    if made is not value:
        return made
    if type(value) is QTensor:
        return value.copy()
    with using_device(device):
        return array_namespace(value).array(value, order="C")


def _cast(value: Any, dtype: Any) -> Any:
    array = value.words if type(value) is QTensor else value
    with using_device(device_of(array)):
        return stored(value, dtype)


def on_host(value: Any) -> Any:
    """A stored value on the CPU, as pickles hold it."""
    return value.to("cpu") if type(value) is QTensor else to_host(value)


def check_on_host(what: str, *tensors: Any) -> None:
    """Raise DTypeError for a tensor on a GPU where NumPy would read it, naming ``.numpy()``."""
    for x in tensors:
        if x.device != "cpu":
            raise DTypeError(
                f"{what} of a tensor on {x.device!r}.",
                "tensors on the CPU",
                "Use a function of autoq, copy it to the host with .numpy(), or move it with .to('cpu').",
            )


def array_of(data: Any) -> Any:
    """An array of data in a dtype that tensors have, Python floats in float64; of CuPy if the data are."""
    if on_gpu(data):
        as_dtype(data.dtype)
        return data
    if isinstance(data, list | tuple) and any(hasattr(x, "_value") or on_gpu(x) for x in data):
        data = [_listed(x) for x in data]
    try:
        array = np.asarray(data)
    except TypeError:
        _refuse_entries_on_gpu(data)
        raise
    except ValueError:
        raise ArgumentError(
            "nested sequences of unequal lengths.",
            "rectangular data",
            "Pad the rows, or make one tensor a row.",
        ) from None
    as_dtype(array.dtype)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _listed(x: Any) -> Any:
    """An entry of a list as NumPy takes it; one on a GPU isn't read unasked."""
    _refuse_entries_on_gpu(x)
    return x.numpy() if hasattr(x, "_value") else x


def _refuse_entries_on_gpu(x: Any) -> None:
    """Raise DTypeError if an entry of a list, or of lists in it, is on a GPU."""
    if isinstance(x, list | tuple):
        for entry in x:
            _refuse_entries_on_gpu(entry)
    elif on_gpu(x) or (hasattr(x, "_value") and x.device != "cpu"):
        raise DTypeError(
            "a list with entries on a GPU.",
            "lists of numbers, and of tensors and arrays on the CPU",
            "Join them there with aq.stack, or copy each to the host with .numpy() or .item().",
        )


def _default_dtype(data: Any, array: np.ndarray) -> np.dtype[Any]:
    """The dtype of data for which none is asked: float32 for Python floats, an array's own."""
    if array.dtype != np.float64 or isinstance(data, np.ndarray | np.generic) or _holds_arrays(data):
        return array.dtype
    return float32


def _holds_arrays(data: Any) -> bool:
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return isinstance(data, np.ndarray | np.generic) or hasattr(data, "_value")


def stored(data: Any, dtype: Any) -> Any:
    """Data as a stored value of that dtype."""
    if hasattr(data, "_value"):
        data = data._value
    if type(data) is QTensor:
        if data.scheme == dtype:
            return data
        data = data.dequantize()
    array = array_of(data)
    if isinstance(dtype, QuantScheme):
        return QTensor.quantize(array if array.dtype in FLOATS else array.astype(float32), dtype)
    return converted(array, dtype, copy=True)
