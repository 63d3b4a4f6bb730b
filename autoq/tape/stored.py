"""From what users pass to stored values: NumPy arrays and QTensors in the dtypes that tensors have."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ArgumentError, DTypeError
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.types import FLOATS, as_dtype, float32


def real_array(data: Any, what: str) -> np.ndarray:
    """A NumPy array of real numbers from an array, tensor, number or nested list, for use inside an op.

    Raises:
        DTypeError: Complex, object or string data.
        ArgumentError: Nested lists of unequal lengths.
    """
    if hasattr(data, "_value"):
        return data.numpy()
    if data is None:
        raise DTypeError(f"{what} is None.", "numbers, arrays and tensors", "Pass the numbers.")
    return array_of(data)


def copied(data: Any, dtype: Any) -> Any:
    """A fresh stored value: an array or, for a scheme, a QTensor."""
    if hasattr(data, "_value"):
        data = data._value
    if type(data) is QTensor:
        return data.copy() if dtype in (None, data.scheme) else stored(data.dequantize(), dtype)
    array = array_of(data)
    if dtype is None:
        return np.array(array, _default_dtype(data, array), order="C")
    return stored(np.array(array, order="C"), dtype)


def array_of(data: Any) -> np.ndarray:
    """A NumPy array of data in a dtype that tensors have, Python floats in float64."""
    if isinstance(data, list | tuple) and any(hasattr(x, "_value") for x in data):
        data = [x.numpy() if hasattr(x, "_value") else x for x in data]
    try:
        array = np.asarray(data)
    except ValueError:
        raise ArgumentError(
            "nested sequences of unequal lengths.",
            "rectangular data",
            "Pad the rows, or make one tensor a row.",
        ) from None
    as_dtype(array.dtype)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _default_dtype(data: Any, array: np.ndarray) -> np.dtype[Any]:
    """The dtype of data for which none is asked: float32 for Python floats, an array's own."""
    if array.dtype != np.float64 or isinstance(data, np.ndarray | np.generic) or _holds_arrays(data):
        return array.dtype
    return float32


def _holds_arrays(data: Any) -> bool:
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return isinstance(data, np.ndarray | np.generic)


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
    return array.astype(dtype)
