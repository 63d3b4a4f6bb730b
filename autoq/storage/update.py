"""Entries of a packed tensor set or added to: only blocks that change are encoded again (S12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..devices import array_namespace, beside, is_array, on_gpu
from ..errors import ArgumentError, IndexingError, ShapeError
from . import device
from .axes import check_index, without_masks
from .layout import Array
from .qtensor import QTensor
from .rewrite import rewritten


def updated(q: QTensor, index: Any, values: Any, add: bool = False) -> QTensor:
    """``q`` with the entries at ``index`` set to ``values``, or with these added.

    Blocks without a changed value keep their bits, and the axis order and a scale of the whole tensor stay.

    Args:
        q: Any layout.
        index: As of NumPy's ``x[index] = values``.
        values: Floats or a number that broadcast to ``x[index]``.
        add: Add instead; entries that the index names twice are added to twice.

    Raises:
        IndexingError: A position outside its axis, or too many indices.
        ShapeError: Values that don't broadcast.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.ones((2, 64), np.float32), scheme("mxfp8"))
        >>> new = updated(q, (0, slice(2)), 3.0)
        >>> new.dequantize()[0, :3].tolist(), new[:, 32:].same_bits(q[:, 32:])
        ([3.0, 3.0, 1.0], True)
    """
    old = q.dequantize()
    new = old.copy()
    write(new, index, values, add)
    return rewritten(q, new, old)


def write(x: Array, index: Any, values: Any, add: bool = False) -> None:
    """The same on an array, in place.

    Example:
        >>> x = np.zeros(3)
        >>> write(x, [0, 0], 1.0, add=True)
        >>> x.tolist()
        [2.0, 0.0, 0.0]
    """
    if on_gpu(x) and _is_filling(x, index, values):
        _fill(x, index, values, add)
        return
    repeats = may_repeat(index)
    entries, index = _entries(x, index)
    try:
        if type(values) is int and on_gpu(x) and x.dtype.kind in "iu":
            values = x.dtype.type(values)  # NumPy's own check of the range
        if type(values) is float and values == 0 and np.signbit(values) and on_gpu(x):
            values = np.asarray(values, x.dtype)  # CuPy would fill with 0.0 for -0.0
        if is_array(values) or np.ndim(values):
            values = beside(values, x)
            values = np.broadcast_to(values, entries.shape)  # np.add.at crashes on values of more axes
        if add and repeats:
            add_at(x, index, values)
        elif add:
            x[index] = entries + values
        elif on_gpu(values) and repeats:
            device.set_at(x, index, values)
        else:
            x[index] = values
    except OverflowError as error:
        raise ArgumentError(
            f"values {values!r} in {x.dtype}: {error}", "values in its range", "Cast the tensor first."
        ) from None
    except ValueError:
        raise ShapeError(
            f"values of shape {np.shape(values)} for entries of shape {entries.shape}",
            "values that broadcast to the entries",
            "Reshape the values, or pick other entries.",
        ) from None


def _is_filling(x: Array, index: Any, values: Any) -> bool:
    """Whether one float goes to wherever a mask of all entries is true."""
    mask = is_array(index) and index.dtype == np.bool_ and index.shape == x.shape
    return bool(mask and x.dtype.kind not in "biu" and np.ndim(values) <= 1 and np.size(values) == 1)


def _fill(x: Array, mask: Any, value: Any, add: bool) -> None:
    """The same on a GPU, which need not count the entries then."""
    xp = array_namespace(x)
    value = beside(value, x).reshape(()) if is_array(value) or np.ndim(value) else value
    x[...] = xp.where(beside(mask, x), x + value if add else value, x)


def add_at(x: Array, index: Any, values: Any) -> None:
    """``numpy.add.at`` on any device: values are added in the order in which they come.

    Example:
        >>> x = np.zeros(3)
        >>> add_at(x, [0, 0], np.ones(2))
        >>> x.tolist()
        [2.0, 0.0, 0.0]
    """
    if on_gpu(x):
        device.add_at(x, index, values)
    else:
        np.add.at(x, index, values)


def _entries(x: Array, index: Any) -> tuple[Any, Any]:
    """``x[index]``, and the index as it is then written to: on a GPU without masks of the host."""
    try:
        if not on_gpu(x):
            return x[index], index
        check_index(index, x.shape)
        placed = without_masks(index, x.shape)
        return x[placed], placed
    except (IndexError, TypeError, ValueError) as error:
        raise IndexingError(
            f"index {index!r} of a tensor of shape {x.shape}: {error}",
            "integers within their axis, slices, None, Ellipsis, arrays of integers or bools",
            "Check the index against x.shape.",
        ) from None


def may_repeat(index: Any) -> bool:
    """Whether an index can reach an entry twice: only integer arrays can.

    Example:
        >>> may_repeat((slice(3), [1, 1])), may_repeat(np.array([True, False]))
        (True, False)
    """
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [np.asarray(part) if isinstance(part, list) else part for part in parts]
    return any(is_array(array) and array.dtype != np.bool_ for array in arrays)
