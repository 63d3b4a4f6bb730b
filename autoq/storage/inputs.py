"""What is encoded: float arrays, given scales, and what is refused of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from ..context import OBSERVERS, launched
from ..devices import array_namespace, on_gpu, to_host, two_devices
from ..errors import ArgumentError, DTypeError, NonFiniteError, ShapeError
from ..schemes import QuantScheme
from .layout import Array, Shape
from .plan import kernels

FLOAT32 = np.dtype(np.float32)
# Values converted to float32 at a time: 4 MiB, large enough for the kernels to use their threads.
CHUNK = 1 << 20
FLOATS = ("float16", "bfloat16", "float32", "float64")


@lru_cache(maxsize=256)
def is_float(dtype: np.dtype[Any], names: tuple[str, ...] = FLOATS) -> bool:
    """Whether a dtype is one of these; remembered, since NumPy works out the name of a dtype anew each time.

    Example:
        >>> is_float(np.dtype(np.float16)), is_float(np.dtype(np.int8))
        (True, False)
    """
    return dtype.name in names


def float_array(array: Any) -> Array:
    """What is to be encoded as an array; DTypeError unless it holds floats of a dtype that tensors have."""
    x: Array = array if on_gpu(array) else np.asarray(array)
    if not is_float(x.dtype):
        raise DTypeError(
            f"quantize: an array of {x.dtype}",
            ", ".join(FLOATS),
            "Take the real or imaginary part."
            if x.dtype.kind == "c"
            else "Convert it with .astype(numpy.float32).",
        )
    return x


def float32_rows(x: Array, rows: int) -> Iterator[tuple[int, Array]]:
    """The rows of ``x`` as contiguous float32: at once where they already are, else ``rows`` at a time."""
    if x.dtype == FLOAT32 and x.flags.c_contiguous:
        yield 0, x
        return
    for start in range(0, len(x), rows):
        yield start, as_float32(x[start : start + rows])


def as_float32(x: Array) -> Array:
    """``x`` as contiguous float32; magnitudes beyond it become infinite."""
    if on_gpu(x):
        return contiguous(converted(x, FLOAT32))
    with np.errstate(over="ignore"):
        return np.asarray(x, FLOAT32, order="C")


def contiguous(x: Array) -> Array:
    """``x`` in C order, itself where it is; without axes it stays so, where CuPy and NumPy would add one.

    Example:
        >>> contiguous(np.ones((2, 3)).T).flags.c_contiguous, contiguous(np.array(1.0)).shape
        (True, ())
    """
    made: Array = array_namespace(x).ascontiguousarray(x)
    return made if x.ndim else made.reshape(())


def cast(x: Array, dtype: Any) -> Array:
    """``x`` as ``dtype``; magnitudes beyond it become infinite."""
    with np.errstate(over="ignore"):
        return converted(x, dtype)


def converted(x: Array, dtype: Any, copy: bool = False) -> Array:
    """An array in another dtype, itself where it has it unless ``copy``; floats on a GPU with NumPy's bits.

    Example:
        >>> converted(np.ones(2, np.float16), np.float32)
        array([1., 1.], dtype=float32)
    """
    if x.__class__ is np.ndarray or not on_gpu(x):
        return x.astype(dtype, copy=copy)
    if x.dtype == dtype:
        return x.copy() if copy else x
    dtype = np.dtype(dtype)
    if is_float(x.dtype):
        from .device import cast, truth

        if is_float(dtype):
            return cast(x, dtype)
        if dtype == np.bool_:
            return truth(x)
    found: Array = x.astype(dtype)
    return found


def refuse_nonfinite(x: Array, scheme: QuantScheme) -> None:
    """Raise NonFiniteError with the index of the first NaN or infinity (S43); on a GPU this waits for it."""
    if on_gpu(x):
        from .device import first_nonfinite

        first = first_nonfinite(x)
        if first >= 0:
            index = np.unravel_index(first, x.shape)
            raise nonfinite_error(to_host(x[index]), index, scheme)
        return
    for start, chunk in float32_rows(x.reshape(-1), CHUNK):
        first = kernels().first_nonfinite(chunk)
        if OBSERVERS:
            launched("first_nonfinite", chunk.size)
        if first >= 0:
            index = np.unravel_index(start + first, x.shape)
            raise nonfinite_error(x[index], index, scheme)


def nonfinite_error(value: Any, index: Any, scheme: QuantScheme) -> NonFiniteError:
    """The error for a non-finite value at an index."""
    place = tuple(int(i) for i in index)
    return NonFiniteError(
        f"quantize to {scheme.name}: the value at index {place} is {value}",
        "finite values under nonfinite='raise'",
        "Look for a division by zero or an overflow, or use nonfinite='propagate'.",
    )


def given_scales(scales: Any, grid: Shape, scheme: QuantScheme, x: Array) -> tuple[Array | None, Any]:
    """Given block scales for ``x`` as float32 of the grid, and the given tensor amax."""
    if scales is None:
        return None, None
    amax = None
    if scheme.tensor_scale:
        if not isinstance(scales, tuple) or len(scales) != 2:
            raise ArgumentError(
                f"{scheme.name}: given scales are not a pair",
                "(block_scales, tensor_amax) for a two-level scheme",
                "Pass the largest magnitude of the tensor beside the block scales.",
            )
        scales, amax = scales[0], _given_amax(scales[1], scheme)
    given = _given_array(scales, scheme)
    if on_gpu(given) and not on_gpu(x):
        raise two_devices("quantize with given scales", [x, given], ["x", "scales"])
    if given.shape != grid and given.size != 1:
        raise ShapeError(
            f"given scales have the shape {given.shape}",
            f"the block grid's, {grid}",
            "Pass one scale a block, or a single one for all.",
        )
    xp = array_namespace(given)
    shape = grid if given.shape == grid else (1,) * len(grid)
    whole = xp.broadcast_to(as_float32(given).reshape(shape), grid)
    return contiguous(whole), amax


def _given_array(scales: Any, scheme: QuantScheme) -> Array:
    try:
        given = float_array(scales)
    except ValueError:  # also a pair for a scheme of one level
        raise ShapeError(
            f"{scheme.name}: given scales of unequal lengths",
            "an array of one scale a block, or a single scale",
            "Pass an array; a pair (block_scales, tensor_amax) is for two-level schemes.",
        ) from None
    if on_gpu(given):
        return given  # computed there: a look at the values would wait for them
    with np.errstate(over="ignore"):
        outside = ~((given >= 0) & np.isfinite(given.astype(FLOAT32)))
    if outside.any():
        raise ArgumentError(
            f"{scheme.name}: a given scale is {given[outside].reshape(-1)[0]}",
            "finite scales of at least 0",
            "Leave scales out, so that they are taken from the values.",
        )
    return given


def _given_amax(amax: Any, scheme: QuantScheme) -> Any:
    if on_gpu(amax) and amax.size == 1:
        return amax.astype(FLOAT32).reshape(())
    try:
        value = float(np.float32(amax)) if amax is not None else math.nan
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise ArgumentError(
            f"{scheme.name}: the given tensor amax is {amax!r}",
            "one finite number of at least 0",
            "Pass the largest magnitude of the tensor.",
        )
    return value


def finite_amax(x: Array) -> float:
    """Largest finite magnitude of ``x`` in float32; 0 where there is none."""
    found = 0.0
    for _, chunk in float32_rows(x.reshape(-1), CHUNK):
        found = max(found, kernels().amax(chunk))
        if OBSERVERS:
            launched("amax", chunk.size)
    return found
