"""From what users pass to stored values: NumPy arrays and QTensors in the dtypes that tensors have."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ArgumentError
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.types import FLOATS, as_dtype, float32


def copied(data: Any, dtype: Any) -> Any:
    """A fresh stored value: an array or, for a scheme, a QTensor."""
    if hasattr(data, "_value"):
        data = data._value
    if type(data) is QTensor:
        return data.copy() if dtype in (None, data.scheme) else stored(data.dequantize(), dtype)
    array = _array_of(data)
    if dtype is None:
        return np.array(array, order="C")
    return stored(np.array(array, order="C"), dtype)


def _array_of(data: Any) -> np.ndarray:
    """A NumPy array of data in a dtype that tensors have."""
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
    if (
        array.dtype == np.float64
        and not isinstance(data, np.ndarray | np.generic)
        and not _holds_arrays(data)
    ):
        array = array.astype(np.float32)  # Python numbers
    as_dtype(array.dtype)
    return array


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
    array = _array_of(data)
    if isinstance(dtype, QuantScheme):
        return QTensor.quantize(array if array.dtype in FLOATS else array.astype(float32), dtype)
    return array.astype(dtype)
