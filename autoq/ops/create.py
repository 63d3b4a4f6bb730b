"""Creating tensors: filled, counted and identity ones, under the array API standard's names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autoq.devices import beside, device_of, on_gpu, to_host, using_device
from autoq.errors import ArgumentError, IndexingError, ShapeError
from autoq.schemes import QuantScheme
from autoq.tape.apply import as_tensor, plain
from autoq.tape.stored import real_array
from autoq.tape.tensor import Tensor, tensor
from autoq.types import as_dtype

Shape = int | tuple[int, ...]


def zeros(
    shape: Shape, dtype: Any = np.float32, requires_grad: bool = False, *, device: str | None = None
) -> Tensor:
    """Zeros.

    Args:
        shape: The lengths of the axes.
        dtype: A NumPy dtype or a QuantScheme.
        requires_grad: Make it a leaf that asks for a gradient.
        device: Where to make it; the default device if None.

    Example:
        >>> zeros((2,))
        tensor([0. 0.], float32)
    """
    return full(shape, 0, np.float32 if dtype is None else dtype, requires_grad, device=device)


def ones(
    shape: Shape, dtype: Any = np.float32, requires_grad: bool = False, *, device: str | None = None
) -> Tensor:
    """Ones.

    Args:
        shape: The lengths of the axes.
        dtype: A NumPy dtype or a QuantScheme.
        requires_grad: Make it a leaf that asks for a gradient.
        device: Where to make it; the default device if None.

    Example:
        >>> ones((2,))
        tensor([1. 1.], float32)
    """
    return full(shape, 1, np.float32 if dtype is None else dtype, requires_grad, device=device)


def empty(shape: Shape, dtype: Any = np.float32, *, device: str | None = None) -> Tensor:
    """A tensor to be written to; what it holds before is nothing to rely on.

    Args:
        shape: The lengths of the axes.
        dtype: A NumPy dtype or a QuantScheme.
        device: Where to make it; the default device if None.

    Example:
        >>> empty((2, 3)).shape
        (2, 3)
    """
    return zeros(shape, dtype, device=device)


def full(
    shape: Shape,
    fill_value: float,
    dtype: Any = None,
    requires_grad: bool = False,
    *,
    device: str | None = None,
) -> Tensor:
    """One number everywhere.

    Args:
        shape: The lengths of the axes.
        fill_value: The number.
        dtype: A NumPy dtype or a QuantScheme; by default float32, int64 or bool as the number is.
        requires_grad: Make it a leaf that asks for a gradient.
        device: Where to make it; the default device if None.

    Raises:
        ShapeError: A negative length.
        ArgumentError: A number that the dtype doesn't hold.

    Example:
        >>> full((2,), 0.5), full((2,), 3)
        (tensor([0.5 0.5], float32), tensor([3 3], int64))
    """
    lengths = _lengths("a tensor", shape)
    dtype = tensor(fill_value).dtype if dtype is None else as_dtype(dtype)
    given = to_host(real_array(fill_value, "fill_value"))
    try:
        number = given if given.ndim else given.item()
        values = np.full(lengths, number, np.float32 if isinstance(dtype, QuantScheme) else dtype)
    except OverflowError:
        raise ArgumentError(
            f"full of {fill_value} as {dtype.name}.", "a number that the dtype holds.", "Pass a wider dtype."
        ) from None
    except ValueError:
        raise ShapeError(
            f"full: fill_value of shape {given.shape}, shape {lengths}.", "one number", "Pass a number."
        ) from None
    return tensor(values, dtype, requires_grad, device)


def _lengths(what: str, shape: Any) -> tuple[int, ...]:
    """The shape as a tuple of integers from 0."""
    lengths = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if any(not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 0 for n in lengths):
        raise ShapeError(f"{what} of shape {shape!r}.", "integer lengths of at least 0", "Correct the shape.")
    if math.prod(map(int, lengths)) >= 2**60:
        raise ShapeError(f"{what} of shape {shape!r}.", "less than 2**60 values", "Correct the shape.")
    return tuple(map(int, lengths))


def zeros_like(x: Any, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """Zeros of a tensor's shape, in its dtype unless another is given.

    Example:
        >>> zeros_like(ones((2,)))
        tensor([0. 0.], float32)
    """
    return full_like(x, 0, dtype, device=device)


def ones_like(x: Any, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """Ones of a tensor's shape, in its dtype unless another is given.

    Example:
        >>> ones_like(zeros((2,)))
        tensor([1. 1.], float32)
    """
    return full_like(x, 1, dtype, device=device)


def empty_like(x: Any, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """A tensor of another's shape, to be written to, in its dtype unless another is given.

    Example:
        >>> empty_like(zeros((2, 3))).shape
        (2, 3)
    """
    return full_like(x, 0, dtype, device=device)


def full_like(x: Any, fill_value: float, dtype: Any = None, *, device: str | None = None) -> Tensor:
    """One number everywhere, in a tensor's shape, and in its dtype unless another is given.

    Example:
        >>> full_like(zeros((2,)), 7)
        tensor([7. 7.], float32)
    """
    x = as_tensor(x)
    place = x.device if device is None else device
    return full(x.shape, fill_value, x.dtype if dtype is None else dtype, device=place)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    dtype: Any = None,
    *,
    device: str | None = None,
) -> Tensor:
    """Evenly spaced numbers from ``start`` up to, without, ``stop``; from 0 if only one bound is given.

    Args:
        start: The first number, or the end if there is no ``stop``.
        stop: The end, which is left out.
        step: The distance, not 0.
        dtype: float32 where a number is a float, int64 otherwise, by default.
        device: Where to make it; the default device if None.

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
    by_default = np.float32 if values.dtype.kind == "f" else None
    return tensor(values, by_default if dtype is None else dtype, device=device)


def _number(owner: str, name: str, value: Any) -> Any:
    """A real Python number from one, or from a NumPy or tensor scalar."""
    array = to_host(real_array(value, f"{owner}: {name}"))
    if array.ndim:
        raise ShapeError(f"{owner}: {name} of shape {array.shape}.", "one number", "Pass a number.")
    return array.item()


def linspace(
    start: float,
    stop: float,
    num: int,
    dtype: Any = np.float32,
    endpoint: bool = True,
    *,
    device: str | None = None,
) -> Tensor:
    """``num`` evenly spaced numbers from ``start`` to ``stop``.

    Args:
        start: The first number.
        stop: The last one, or the end that is left out without ``endpoint``.
        num: How many, at least 0.
        dtype: A NumPy dtype or a QuantScheme.
        endpoint: Whether ``stop`` is the last number.
        device: Where to make it; the default device if None.

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
    values = np.linspace(start, stop, num, endpoint=endpoint)
    return tensor(values, np.float32 if dtype is None else dtype, device=device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    k: int = 0,
    dtype: Any = np.float32,
    *,
    device: str | None = None,
) -> Tensor:
    """A matrix with ones on a diagonal and zeros elsewhere.

    Args:
        n_rows: Rows.
        n_cols: Columns; as many as rows by default.
        k: Which diagonal: 0 is the main one, positive ones lie above it.
        dtype: A NumPy dtype or a QuantScheme.
        device: Where to make it; the default device if None.

    Example:
        >>> eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    rows, cols = _lengths("eye", (n_rows, n_rows if n_cols is None else n_cols))
    values = np.eye(rows, cols, int(_number("eye", "k", k)), np.float32)
    return tensor(values, np.float32 if dtype is None else dtype, device=device)


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
    places = plain(indices)
    places = places if on_gpu(places) else np.asarray(places)
    if on_gpu(places) and places.dtype.kind in "iu":
        with using_device(device_of(places)):
            classes = beside(np.arange(num_classes), places)
            return tensor((places[..., None] == classes).astype(np.float32), dtype)
    if places.size and (places.dtype.kind not in "iu" or places.min() < 0 or places.max() >= num_classes):
        raise IndexingError(
            f"one_hot: indices of dtype {places.dtype}, from {places.min()} to {places.max()}.",
            f"integers from 0 to {num_classes - 1}.",
            "Check the indices, or num_classes.",
        )
    return tensor((places[..., None] == np.arange(num_classes)).astype(np.float32), dtype)


CREATORS: dict[str, Callable[..., Tensor]] = {
    f.__name__: f
    for f in (
        *(zeros, ones, empty, full, zeros_like, ones_like, empty_like, full_like),
        *(arange, linspace, eye, one_hot),
    )
}
