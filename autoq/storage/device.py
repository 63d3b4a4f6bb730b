"""Encoding and decoding on a GPU: whole tensors, each by one call of a kernel; no value comes to the host."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from ..context import OBSERVERS, launched
from ..devices import SEVERAL, array_namespace, beside, device_of, to_device, to_host, using_device
from ..errors import DTypeError
from ..memory import within_memory
from ..recording import key_for_kernel, recording
from ..schemes import QuantScheme
from .encoding import Packed
from .inputs import FLOAT32, FLOATS, as_float32, contiguous, is_float
from .layout import Array, Shape, stored_shapes
from .plan import codec_of, plan_of

# Where among the kernels each function is.
MODULES = {
    "quantize": "quantize",
    "dequantize": "dequantize",
    "pack": "pack",
    "unpack": "pack",
    "first_nonfinite": "measure",
    "add_at": "scatter",
    "cast": "casts",
    "extremum": "reduce",
}
# What the kernels read and write themselves; float64 goes through float32.
KERNEL_FLOATS = ("float32", "float16", "bfloat16")


@within_memory("quantize")
def encode(x: Array, scheme: QuantScheme, tensor_amax: Any, given: Any, draw: Any) -> Packed:
    """Encode a CuPy array that was checked.

    Args:
        x: A float array of any strides.
        scheme: What to encode in.
        tensor_amax: What the tensor scale is taken of: a number, an array without axes, or None: measured.
        given: Scales, float32 of the block grid, or None.
        draw: For stochastic rounding.
    """
    where = device_of(x)
    if SEVERAL:
        with using_device(where):
            return _encoded(x, scheme, tensor_amax, given, draw)
    return _encoded(x, scheme, tensor_amax, given, draw)


def _encoded(x: Array, scheme: QuantScheme, tensor_amax: Any, given: Any, draw: Any) -> Packed:
    xp, plan, size = array_namespace(x), plan_of(scheme), x.size
    shape, grid = stored_shapes(scheme, x.shape)
    if not size:
        return _empty(xp, scheme, shape, grid)
    words, scales = xp.empty(shape, np.uint32), xp.empty(grid, plan.scale_dtype)
    level = None if plan.tensor_scale is None else xp.empty((), FLOAT32)
    _kernel("quantize")(
        x if is_float(x.dtype, KERNEL_FLOATS) else cast(x, FLOAT32),
        plan.codec if given is None else codec_of(scheme, True),
        plan.extents,
        words,
        scales,
        level,
        given=None if given is None else beside(given, x),
        given_amax=tensor_amax,
        draw=None if draw is None else key_for_kernel(draw),
    )
    if OBSERVERS:
        launched("quantize", size)
    return Packed(words, scales, level)


def _empty(xp: Any, scheme: QuantScheme, shape: Shape, grid: Shape) -> Packed:
    """A tensor without values."""
    from .convert import zero_scale

    plan = plan_of(scheme)
    level = None if plan.tensor_scale is None else _uploaded(xp, np.asarray(plan.tensor_scale(0.0)))
    return Packed(xp.zeros(shape, np.uint32), filled(xp, grid, zero_scale(scheme), plan.scale_dtype), level)


def filled(xp: Any, shape: Shape, value: Any, dtype: Any) -> Array:
    """An array of one stored scale everywhere."""
    return _uploaded(xp, np.full(shape, value, dtype))


def _uploaded(xp: Any, array: np.ndarray) -> Array:
    """A small array on the current device; in a captured step one that all replays read."""
    if not array.size:
        return xp.empty(array.shape, array.dtype)
    made = recording()
    return xp.asarray(array) if made is None else made.constant(array)


@within_memory("dequantize")
def decode(
    words: Array,
    scales: Array,
    tensor_scale: Any,
    scheme: QuantScheme,
    shape: Shape,
    dtype: Any,
    out: Array | None,
) -> Array:
    """Decode CuPy arrays, into ``out`` or a new array of ``dtype``."""
    where = device_of(words)
    if SEVERAL:
        with using_device(where):
            return _decoded((words, scales, tensor_scale), scheme, shape, dtype, out)
    return _decoded((words, scales, tensor_scale), scheme, shape, dtype, out)


def _decoded(stored: Any, scheme: QuantScheme, shape: Shape, dtype: Any, out: Array | None) -> Array:
    xp, plan = array_namespace(stored[0]), plan_of(scheme)
    result = xp.empty(shape, dtype) if out is None else out
    if not is_float(result.dtype):
        raise DTypeError(
            f"dequantize to {result.dtype}", ", ".join(FLOATS), "Decode to a float, then convert."
        )
    if not result.size:
        return result
    target = result if is_float(result.dtype, KERNEL_FLOATS) else xp.empty(shape, FLOAT32)
    _kernel("dequantize")(*stored, plan.codec, plan.extents, target)
    if target is not result:
        result[...] = cast(target, result.dtype)
    if OBSERVERS:
        launched("dequantize", result.size)
    return result


def pack(codes: Array, bits: int, words: Array) -> None:
    """Pack uint8 codes into words along the last axis."""
    with using_device(device_of(codes)):
        _kernel("pack")(contiguous(codes), bits, words)
    if OBSERVERS:
        launched("pack", codes.size)


def unpack(words: Array, bits: int, codes: Array) -> None:
    """Unpack words into uint8 codes."""
    with using_device(device_of(words)):
        _kernel("unpack")(contiguous(words), bits, codes)
    if OBSERVERS:
        launched("unpack", codes.size)


def first_nonfinite(x: Array) -> int:
    """The flat position of the first NaN or infinity, -1 without one. It waits for the device."""
    if OBSERVERS:
        launched("first_nonfinite", x.size)
    with using_device(device_of(x)):
        return int(_kernel("first_nonfinite")(x)) if x.size else -1


def add_at(x: Array, index: Any, values: Any) -> None:
    """Add values to the entries at an index, in the order in which they come, as ``numpy.add.at`` does.

    Only float64 values that meet in one entry are added in any order.

    Args:
        x: A CuPy array of any strides; changed.
        index: As of ``x[index]``.
        values: A number or a CuPy array that broadcasts to ``x[index]``.
    """
    xp = array_namespace(x)
    with using_device(device_of(x)):
        if x.dtype.kind in "bui":
            _add_integers(x, index, values)
        elif x.dtype == np.float64:
            xp.add.at(x, index, xp.asarray(values, np.float64))
        else:
            whole = as_float32(x)
            places = xp.arange(x.size).reshape(x.shape)[index]
            given = xp.broadcast_to(xp.asarray(values, FLOAT32), places.shape)
            _kernel("add_at")(whole.reshape(-1), places, contiguous(given))
            if whole is not x:
                x[...] = whole.reshape(x.shape)


def cast(x: Array, dtype: Any) -> Array:
    """Floats of a CuPy array in another float dtype, with NumPy's bits, in a new array.

    Those below the normal numbers among them, which CuPy's casts make 0.
    """
    xp, turned = array_namespace(x), x.flags.f_contiguous and not x.flags.c_contiguous
    with using_device(device_of(x)):
        source = x.T if turned else x
        out = xp.empty(source.shape, dtype)
        if x.size:
            _kernel("cast")(source, out)
    if OBSERVERS:
        launched("cast", x.size)
    return out.T if turned else out


def truth(x: Array) -> Array:
    """Whether the floats of a CuPy array aren't 0: by their bits, as CuPy takes subnormals for 0."""
    if x.dtype.itemsize > FLOAT32.itemsize:
        return x != 0
    bits = np.dtype(f"u{x.dtype.itemsize}").type
    magnitudes = bits(np.iinfo(bits).max >> 1)
    found: Array = (x.view(bits) & magnitudes) != 0
    return found


def extremum(x: Array, axes: Shape, largest: bool, start: float | None) -> Array:
    """The largest or smallest values of a CuPy array over axes, which are not empty, without these.

    Args:
        x: float32, of which CuPy's own functions take subnormals for 0.
        axes: From 0 on, at least one.
        largest: The maximum, else the minimum.
        start: One more value to compare with each, or None.
    """
    if OBSERVERS:
        launched("extremum", x.size)
    with using_device(device_of(x)):
        found: Array = _kernel("extremum")(x, axes, largest, start)
    return found


def set_at(x: Array, index: Any, values: Any) -> None:
    """Set entries at an index that may name one several times: as in NumPy, the last value stays.

    A GPU writes in any order, so every value for an entry is first made the last one.

    Args:
        x: A CuPy array; changed.
        index: As of ``x[index]``.
        values: A CuPy array that broadcasts to ``x[index]``.
    """
    xp = array_namespace(x)
    with using_device(device_of(x)):
        places = xp.arange(x.size).reshape(x.shape)[index]
        if not places.size:
            return
        flat = places.reshape(-1)
        order = xp.argsort(flat, kind="stable")
        last = order[xp.searchsorted(flat[order], flat, side="right") - 1]
        given = xp.broadcast_to(values, places.shape).reshape(-1)
        x[index] = given[last].reshape(places.shape)


def _add_integers(x: Array, index: Any, values: Any) -> None:
    """The same for integers: in two's complement sums in uint64, which CuPy has, are those in int64."""
    xp = array_namespace(x)
    wide = x.astype(np.int64)
    given = xp.asarray(values).astype(np.int64)
    xp.add.at(wide.view(np.uint64), index, given.view(np.uint64))
    x[...] = wide.astype(x.dtype)


@cache
def _kernel(name: str) -> Any:
    """A function of the kernels for CUDA, imported on first use: they bring the compiler along."""
    return getattr(import_module(f"autoq.kernels.cuda.{MODULES[name]}"), name)


def scale_to(tensor_scale: Any, device: str) -> Any:
    """A tensor scale as a device keeps it: a NumPy float32 on the CPU, an array without axes on a GPU."""
    if tensor_scale is None:
        return None
    if device == "cpu":
        return np.float32(to_host(tensor_scale)[()])
    held = np.asarray(tensor_scale) if isinstance(tensor_scale, np.generic) else tensor_scale
    return to_device(held, device)
