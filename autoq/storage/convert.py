"""Arrays to packed arrays and back: quantize, dequantize, pack and unpack, in storage order."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ..context import OBSERVERS, launched
from ..devices import on_gpu
from ..errors import ArgumentError, DTypeError
from ..schemes import QuantScheme
from . import device
from .encoding import Packed as Packed
from .encoding import encode_blocks, encode_lines, encode_whole
from .inputs import (
    FLOAT32,
    FLOATS,
    finite_amax,
    float_array,
    given_scales,
    is_float,
    refuse_nonfinite,
)
from .layout import Array, Shape, stored_shapes
from .packing import pack as pack
from .packing import unpack as unpack
from .plan import Plan, plan_of
from .scales import effective_scales as effective_scales


def quantize(x: Array, scheme: QuantScheme, *, scales: Any = None, draw: Any = None) -> Packed:
    """Encode an array.

    Args:
        x: float16, bfloat16, float32 or float64, any strides, of NumPy or CuPy; rounded to float32 first.
        scheme: What to encode in.
        scales: Given scales instead of calibrated ones: floats of the block grid's shape, or
            ``(block_scales, tensor_amax)`` for two-level schemes.
        draw: ``(seed, stream)`` for stochastic rounding.

    Raises:
        DTypeError: If ``x`` is not a float array.
        ShapeError: If the blocks have more axes than ``x``, or given scales don't fit the grid.
        ArgumentError: If stochastic rounding gets no draw.
        NonFiniteError: Under ``nonfinite="raise"``.

    Source: OCP Microscaling Formats (MX) v1.0 §6.3 for the MX schemes.

    Example:
        >>> from autoq.schemes import scheme
        >>> packed = quantize(np.ones((2, 64), np.float32), scheme("mxfp8"))
        >>> packed.words.shape, packed.scales.shape
        ((2, 16), (2, 2))
    """
    return _quantize(x, scheme, scales, draw, None)


def _quantize(x: Array, scheme: QuantScheme, scales: Any, draw: Any, amax: Any) -> Packed:
    plan = plan_of(scheme)
    if (
        plan.direct
        and scales is None
        and type(x) is np.ndarray
        and x.dtype is FLOAT32
        and x.size
        and x.ndim
        and x.flags.c_contiguous
    ):
        return _quantize_direct(x, plan, amax)
    x = float_array(x)
    if scheme.rounding != "nearest" and draw is None:
        raise ArgumentError(
            f"rounding={scheme.rounding!r} without random numbers",
            "a draw of a Generator",
            "Pass rng=autoq.Generator(seed).",
        )
    if draw is not None and not isinstance(draw, tuple):
        raise ArgumentError(f"draw={draw!r}", "a draw of a Generator", "Pass rng.draw().")
    grid = stored_shapes(scheme, x.shape)[1]
    if scheme.nonfinite == "raise":
        refuse_nonfinite(x, scheme)
    given, given_amax = given_scales(scales, grid, scheme, x)
    amax = given_amax if amax is None else amax
    if on_gpu(x):
        return device.encode(x, scheme, amax, given, draw)
    if scheme.tensor_scale and amax is None:
        amax = finite_amax(x)
    return _encode(x, scheme, grid, {"tensor_amax": amax or 0.0, "given": given, "draw": draw})


def _encode(x: Array, scheme: QuantScheme, grid: Shape, options: dict[str, Any]) -> Packed:
    """Encode an array that was checked; ``options`` are those of the kernels."""
    plan = plan_of(scheme)
    shape = stored_shapes(scheme, x.shape)[0]
    level = None if plan.tensor_scale is None else plan.tensor_scale(options["tensor_amax"])
    if x.size == 0:
        empty = np.full(grid, zero_scale(scheme), plan.scale_dtype)
        return Packed(np.zeros(shape, np.uint32), empty, level)
    out = Packed(np.empty(shape, np.uint32), np.empty(grid, plan.scale_dtype), level)
    encode_by = encode_lines if plan.lines else encode_blocks if scheme.block else encode_whole
    encode_by(x, scheme, out, options)
    return out


def encode(x: Array, scheme: QuantScheme, tensor_amax: Any = None) -> Packed:
    """Encode the result of an op: rounded to nearest whatever the scheme says, since only casts draw (S41).

    ``tensor_amax`` is the magnitude to take the tensor scale of, where ``x`` is a part of the tensor.
    """
    return _quantize(x, scheme if scheme.rounding == "nearest" else nearest(scheme), None, None, tensor_amax)


@lru_cache(maxsize=256)
def nearest(scheme: QuantScheme) -> QuantScheme:
    """The scheme with rounding to nearest."""
    return scheme if scheme.rounding == "nearest" else scheme.replace(rounding="nearest")


def _quantize_direct(x: Array, plan: Plan, amax: Any) -> Packed:
    """Encode contiguous float32 lines: one kernel call, after one for the magnitude of two-level schemes."""
    shape = x.shape
    n, leading = shape[-1], shape[:-1]
    words = np.empty(leading + ((n * plan.bits + 31) // 32,), np.uint32)
    scales = np.empty(leading + (-(-n // plan.block),), plan.scale_dtype)
    level = None
    if plan.tensor_scale is None:
        amax = 0.0
    else:
        if amax is None:
            amax = plan.amax(x.reshape(-1))
            if OBSERVERS:
                launched("amax", x.size)
        level = plan.tensor_scale(amax)
    if len(shape) == 2:
        plan.quantize_lines(x, plan.codec, plan.block, words.view(np.uint8), scales, amax)
    else:
        lines = x.size // n
        flat = words.view(np.uint8).reshape(lines, -1)
        plan.quantize_lines(
            x.reshape(lines, n), plan.codec, plan.block, flat, scales.reshape(lines, -1), amax
        )
    if OBSERVERS:
        launched("quantize_lines", x.size)
    return Packed(words, scales, level)


def dequantize(
    words: Array,
    scales: Array,
    tensor_scale: Any,
    scheme: QuantScheme,
    shape: Shape,
    dtype: Any = FLOAT32,
    out: Array | None = None,
) -> Array:
    """Decode a packed array.

    Args:
        words: uint32, shape[:-1] + (words a line,), any strides.
        scales: Stored scales of the block grid, any strides.
        tensor_scale: float32, or None; an array without axes on a GPU.
        scheme: What the array is encoded in.
        shape: The array's shape in storage order.
        dtype: Float dtype of the result; rounded from float32.
        out: Where to write, of ``shape`` and ``dtype``.

    Raises:
        DTypeError: If the result's dtype is not a float.

    Example:
        >>> from autoq.schemes import scheme
        >>> packed = quantize(np.ones(32, np.float32), scheme("mxfp8"))
        >>> float(dequantize(*packed, scheme("mxfp8"), (32,)).sum())
        32.0
    """
    if words.__class__ is not np.ndarray and on_gpu(words):
        return device.decode(words, scales, tensor_scale, scheme, shape, _float_dtype(dtype), out)
    plan = plan_of(scheme)
    if out is None and (dtype is FLOAT32 or dtype is np.float32):
        target = np.empty(shape, FLOAT32)
        if target.size:
            _decode(words, scales, tensor_scale, plan, target)
        return target
    result = np.empty(shape, _float_dtype(dtype)) if out is None else out
    _decode_into(result, words, scales, tensor_scale, scheme, shape)
    return result


def _float_dtype(dtype: Any) -> Any:
    """The dtype asked for; DTypeError if it is a scheme."""
    if isinstance(dtype, QuantScheme):
        raise DTypeError(f"dequantize to {dtype.name}", ", ".join(FLOATS), "Decode, then quantize.")
    return dtype


def _decode_into(
    out: Array,
    words: Array,
    scales: Array,
    tensor_scale: Any,
    scheme: QuantScheme,
    shape: Shape,
) -> None:
    """Decode into an array of any float dtype and strides."""
    if not is_float(out.dtype):
        raise DTypeError(f"dequantize to {out.dtype}", ", ".join(FLOATS), "Decode to a float, then convert.")
    if not out.size:
        return
    if out.dtype == FLOAT32 and out.flags.c_contiguous:
        _decode(words, scales, tensor_scale, plan_of(scheme), out)
    else:
        with np.errstate(over="ignore"):
            out[...] = dequantize(words, scales, tensor_scale, scheme, shape)


def _decode(words: Array, scales: Array, tensor_scale: Any, plan: Plan, out: Array) -> None:
    if not words.flags.c_contiguous:
        words = np.ascontiguousarray(words)
    if plan.lines:
        n, block = out.shape[-1], plan.block
        if not scales.flags.c_contiguous:
            scales = np.ascontiguousarray(scales)
    else:
        n, block, scales = _line_scales(scales, plan, out.shape)
    bytes_ = words.view(np.uint8)
    if out.ndim != 2:
        lines = out.size // n
        out, bytes_, scales = out.reshape(lines, n), bytes_.reshape(lines, -1), scales.reshape(lines, -1)
    plan.dequantize_lines(bytes_, scales, tensor_scale, plan.codec, block, out)
    if OBSERVERS:
        launched("dequantize_lines", out.size)


def _line_scales(scales: Array, plan: Plan, shape: Shape) -> tuple[int, int, Array]:
    """Length of a line, block extent along it and the scales line by line, for other blocks than lines'."""
    n = shape[-1] if shape else 1
    lines = math.prod(shape) // n
    if plan.block == 0:
        return n, n, np.ascontiguousarray(np.broadcast_to(scales.reshape(1, 1), (lines, 1)))
    for axis in range(scales.ndim - 1):
        if scales.shape[axis] != shape[axis]:
            extent = plan.extents[axis - scales.ndim]
            scales = np.repeat(scales, extent, axis)[(slice(None),) * axis + (slice(shape[axis]),)]
    return n, plan.block, np.ascontiguousarray(scales)


@lru_cache(maxsize=256)
def zero_scale(scheme: QuantScheme) -> Any:
    """The stored scale of a block of zeros (S42).

    Example:
        >>> from autoq.schemes import scheme
        >>> int(zero_scale(scheme("mxfp8")))
        0
    """
    return encode(np.zeros(scheme.block or (1,), np.float32), scheme).scales.reshape(-1)[0]
