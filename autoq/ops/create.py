"""Creating tensors: filled, counted and identity ones, under the array API standard's names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autoq.errors import ArgumentError, IndexingError, ShapeError
from autoq.schemes import QuantScheme
from autoq.tape.apply import plain
from autoq.tape.stored import real_array, stored
from autoq.tape.tensor import Tensor, tensor
from autoq.types import as_dtype, float32

Shape = int | tuple[int, ...]


def zeros(shape: Shape, dtype: Any = np.float32, requires_grad: bool = False) -> Tensor:
    """Zeros.

    Args:
        shape: The lengths of the axes.
        dtype: A NumPy dtype or a QuantScheme.
        requires_grad: Make it a leaf that asks for a gradient.

    Example:
        >>> zeros((2,))
        tensor([0. 0.], float32)
    """
    return full(shape, 0, dtype, requires_grad)


def ones(shape: Shape, dtype: Any = np.float32, requires_grad: bool = False) -> Tensor:
    """Ones.

    Args:
        shape: The lengths of the axes.
        dtype: A NumPy dtype or a QuantScheme.
        requires_grad: Make it a leaf that asks for a gradient.

    Example:
        >>> ones((2,))
        tensor([1. 1.], float32)
    """
    return full(shape, 1, dtype, requires_grad)


def full(shape: Shape, fill_value: float, dtype: Any = np.float32, requires_grad: bool = False) -> Tensor:
    """One number everywhere.

    Args:
        shape: The lengths of the axes.
        fill_value: The number.
        dtype: A NumPy dtype or a QuantScheme.
        requires_grad: Make it a leaf that asks for a gradient.

    Raises:
        ShapeError: A negative length.

    Example:
        >>> full((2,), 0.5)
        tensor([0.5 0.5], float32)
    """
    lengths = _lengths("a tensor", shape)
    dtype = as_dtype(dtype)
    value = stored(real_array(fill_value, "fill_value"), float32 if isinstance(dtype, QuantScheme) else dtype)
    try:
        values = np.broadcast_to(value, lengths)
    except ValueError:
        raise ShapeError(
            f"full: fill_value of shape {value.shape}, shape {lengths}.", "one number", "Pass a number."
        ) from None
    return tensor(values, dtype, requires_grad)


def _lengths(what: str, shape: Any) -> tuple[int, ...]:
    """The shape as a tuple of integers from 0."""
    lengths = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if any(not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 0 for n in lengths):
        raise ShapeError(f"{what} of shape {shape!r}.", "integer lengths of at least 0", "Correct the shape.")
    if math.prod(map(int, lengths)) >= 2**60:
        raise ShapeError(f"{what} of shape {shape!r}.", "less than 2**60 values", "Correct the shape.")
    return tuple(map(int, lengths))


def zeros_like(x: Tensor, dtype: Any = None) -> Tensor:
    """Zeros of a tensor's shape, in its dtype unless another is given.

    Example:
        >>> zeros_like(ones((2,)))
        tensor([0. 0.], float32)
    """
    x = x if isinstance(x, Tensor) else tensor(x)
    return zeros(x.shape, x.dtype if dtype is None else dtype)


def ones_like(x: Tensor, dtype: Any = None) -> Tensor:
    """Ones of a tensor's shape, in its dtype unless another is given.

    Example:
        >>> ones_like(zeros((2,)))
        tensor([1. 1.], float32)
    """
    x = x if isinstance(x, Tensor) else tensor(x)
    return ones(x.shape, x.dtype if dtype is None else dtype)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: Any = None) -> Tensor:
    """Evenly spaced numbers from ``start`` up to, without, ``stop``; from 0 if only one bound is given.

    Args:
        start: The first number, or the end if there is no ``stop``.
        stop: The end, which is left out.
        step: The distance, not 0.
        dtype: float32 where a bound is a float, int64 otherwise, by default.

    Raises:
        ArgumentError: A step of 0.

    Example:
        >>> arange(3), arange(0.0, 1.0, 0.5)
        (tensor([0 1 2], int64), tensor([0.  0.5], float32))
    """
    step = _number("arange", "step", step)
    if step == 0:
        raise ArgumentError("arange with step 0.", "any other step", "Pass a positive or negative step.")
    start = _number("arange", "start", start)
    low, high = (0, start) if stop is None else (start, _number("arange", "stop", stop))
    if not abs(high - low) / abs(step) < 2**60:
        raise ArgumentError(
            f"arange from {low} to {high} by {step}.",
            "finite bounds, less than 2**60 numbers",
            "Correct the bounds or the step.",
        )
    values = np.arange(low, high, step)
    return tensor(values, float32 if dtype is None and values.dtype.kind == "f" else dtype)


def _number(owner: str, name: str, value: Any) -> Any:
    """A real Python number from one, or from a NumPy or tensor scalar."""
    array = real_array(value, f"{owner}: {name}")
    if array.ndim:
        raise ShapeError(f"{owner}: {name} of shape {array.shape}.", "one number", "Pass a number.")
    return array.item()


def linspace(start: float, stop: float, num: int, dtype: Any = np.float32, endpoint: bool = True) -> Tensor:
    """``num`` evenly spaced numbers from ``start`` to ``stop``.

    Args:
        start: The first number.
        stop: The last one, or the end that is left out without ``endpoint``.
        num: How many, at least 0.
        dtype: A NumPy dtype or a QuantScheme.
        endpoint: Whether ``stop`` is the last number.

    Raises:
        ArgumentError: A negative number.

    Example:
        >>> linspace(0, 1, 3)
        tensor([0.  0.5 1. ], float32)
    """
    if not isinstance(num, int | np.integer) or not 0 <= num < 2**60:
        raise ArgumentError(
            f"linspace of {num} numbers.",
            "an integer of at least 0",
            "Pass how many numbers there are to be.",
        )
    start, stop = _number("linspace", "start", start), _number("linspace", "stop", stop)
    return tensor(np.linspace(start, stop, num, endpoint=endpoint), dtype)


def eye(n_rows: int, n_cols: int | None = None, k: int = 0, dtype: Any = np.float32) -> Tensor:
    """A matrix with ones on a diagonal and zeros elsewhere.

    Args:
        n_rows: Rows.
        n_cols: Columns; as many as rows by default.
        k: Which diagonal: 0 is the main one, positive ones lie above it.
        dtype: A NumPy dtype or a QuantScheme.

    Example:
        >>> eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    rows, cols = _lengths("eye", (n_rows, n_rows if n_cols is None else n_cols))
    return tensor(np.eye(rows, cols, int(_number("eye", "k", k)), np.float32), dtype)


def one_hot(indices: Any, num_classes: int, dtype: Any = np.float32) -> Tensor:
    """A 1 at each index, along a new last axis of zeros.

    Args:
        indices: Integers of any shape, from 0 to ``num_classes`` - 1.
        num_classes: The length of the new axis.
        dtype: A NumPy dtype or a QuantScheme.

    Raises:
        IndexingError: An index outside the classes, or not an integer.

    Example:
        >>> one_hot([2, 0], 3).tolist()
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    places = np.asarray(plain(indices))
    if places.size and (places.dtype.kind not in "iu" or places.min() < 0 or places.max() >= num_classes):
        raise IndexingError(
            f"one_hot: indices of dtype {places.dtype}, from {places.min()} to {places.max()}.",
            f"integers from 0 to {num_classes - 1}.",
            "Check the indices, or num_classes.",
        )
    return tensor((places[..., None] == np.arange(num_classes)).astype(np.float32), dtype)


CREATORS: dict[str, Callable[..., Tensor]] = {
    f.__name__: f for f in (zeros, ones, full, zeros_like, ones_like, arange, linspace, eye, one_hot)
}
