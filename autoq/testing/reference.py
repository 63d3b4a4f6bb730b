"""The oracle: what quantize and dequantize give, to the bit, in plain NumPy.

Written from the definition of the formats and sharing no code with the kernels. Formulas are evaluated
in float32, one rounding an operation, in the order written; where a step is exact, in float64.

Sources: OCP Microscaling Formats (MX) v1.0; OCP 8-bit Floating Point v1.0; for NVFP4, NVIDIA's
TransformerEngine (rule ``te``) and torchao (rule ``torchao``); "Four Over Six: More Accurate NVFP4
Quantization with Adaptive Block Scaling".
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, NonFiniteError
from ..random import Draw, random_bits
from ..schemes import QuantScheme
from .reference_elements import decode as decode
from .reference_elements import encode as encode
from .reference_elements import pack as pack
from .reference_elements import unpack as unpack
from .reference_scales import FLOAT_MAX, block_scales, given_scales, nearest, stored, te_factor, tensor_scale
from .reference_scales import swizzled as swizzled

Array = np.ndarray[Any, np.dtype[Any]]

F = np.float32


class Reference(NamedTuple):
    """A quantized array, unpacked.

    Attributes:
        codes: uint8, one a value, of the array's shape.
        scales: Stored scales of the block grid's shape.
        tensor_scale: float32, None in single-level schemes.
    """

    codes: Array
    scales: Array
    tensor_scale: np.float32 | None


class _Blocks(NamedTuple):
    """float32 values (*grid, m), which of them are real rather than padding, and draws alike."""

    values: Array
    real: Array
    draws: Array | None
    bits: int


def quantize(x: Array, scheme: QuantScheme, *, scales: Any = None, draw: Draw | None = None) -> Reference:
    """Encode ``x`` of any float dtype and rank.

    Args:
        x: Floats; rounded to float32 first.
        scheme: What to encode in.
        scales: Given scales of the grid's shape; ``(block_scales, tensor_amax)`` in two-level schemes.
        draw: The draw of stochastic rounding.

    Raises:
        ShapeError: If the blocks have more axes than ``x``.
        ArgumentError: If stochastic rounding gets no draw.
        NonFiniteError: Under ``nonfinite="raise"``.

    Example:
        >>> from autoq.schemes import scheme
        >>> quantize(np.array([1.0, -448.0]), scheme("mxfp8")).codes.tolist()
        [56, 254]
    """
    with np.errstate(all="ignore"):
        x = np.asarray(x).astype(np.float32)
        _refuse(x, scheme, draw)
        extents = scheme.extents(x.ndim)
        blocks = _Blocks(
            to_blocks(x, extents),
            to_blocks(np.ones(x.shape, bool), extents),
            *_draws(x.shape, extents, scheme, draw),
        )
        codes, values, level = _encode_blocks(blocks, scheme, scales)
        return Reference(from_blocks(codes, x.shape, extents), stored(values, scheme.scale_format), level)


def dequantize(codes: Array, scales: Array, tensor_scale: Any, scheme: QuantScheme) -> Array:
    """float32 values of ``codes``, of their shape: code × (block scale × tensor scale).

    Example:
        >>> from autoq.schemes import scheme
        >>> dequantize(*quantize(np.array([1.0, -448.0]), scheme("mxfp8")), scheme("mxfp8")).tolist()
        [1.0, -448.0]
    """
    factors = scheme.scale_format.decode(scales)
    with np.errstate(all="ignore"):
        if tensor_scale is not None:
            factors = factors * F(tensor_scale)
        for axis, extent in enumerate(scheme.extents(codes.ndim)):
            factors = np.repeat(factors, extent or codes.shape[axis], axis=axis)
        inside = tuple(slice(0, n) for n in codes.shape)
        return np.asarray(decode(codes, scheme.element) * factors[inside])


def random_hadamard(x: Array, signs: Array) -> Array:
    """Groups of 16 along the last axis of ``x``, times ``diag(signs) @ H16 / 4``; float32.

    Example:
        >>> random_hadamard(np.eye(1, 16, dtype=np.float32), np.ones(16))[0, :3].tolist()
        [0.25, 0.25, 0.25]
    """
    hadamard = np.ones((1, 1))
    for _ in range(4):
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    matrix = np.asarray(signs, np.float64)[:, None] * hadamard / 4
    return (np.asarray(x, np.float64).reshape(-1, 16) @ matrix).astype(np.float32).reshape(x.shape)


def to_blocks(x: Array, extents: tuple[int, ...]) -> Array:
    """``x`` as ``(*grid, m)``: one row of ``m`` values a block, in row-major order, padded with zeros."""
    sizes = [extent or max(n, 1) for extent, n in zip(extents, x.shape, strict=True)]
    # Of the whole tensor there is one block, even of an empty one.
    grid = [-(-n // size) if extent else 1 for n, size, extent in zip(x.shape, sizes, extents, strict=True)]
    padded = np.zeros([g * s for g, s in zip(grid, sizes, strict=True)], x.dtype)
    padded[tuple(slice(0, n) for n in x.shape)] = x
    split = padded.reshape([part for pair in zip(grid, sizes, strict=True) for part in pair])
    rows = split.transpose([*range(0, 2 * x.ndim, 2), *range(1, 2 * x.ndim, 2)])
    return rows.reshape((*grid, math.prod(sizes)))


def from_blocks(rows: Array, shape: tuple[int, ...], extents: tuple[int, ...]) -> Array:
    """Undo :func:`to_blocks`."""
    sizes = [extent or max(n, 1) for extent, n in zip(extents, shape, strict=True)]
    grid, rank = rows.shape[:-1], len(shape)
    split = rows.reshape((*grid, *sizes))
    axes = [axis for pair in zip(range(rank), range(rank, 2 * rank), strict=True) for axis in pair]
    padded = split.transpose(axes).reshape([g * s for g, s in zip(grid, sizes, strict=True)])
    return padded[tuple(slice(0, n) for n in shape)]


def _refuse(x: Array, scheme: QuantScheme, draw: Draw | None) -> None:
    if scheme.rounding != "nearest" and draw is None:
        raise ArgumentError(f"rounding={scheme.rounding!r} without a draw", "draw=(seed, stream)")
    if scheme.nonfinite == "raise" and not np.isfinite(x).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        raise NonFiniteError(f"the value at index {first} is {x[first]}", "finite values")


def _draws(
    shape: tuple[int, ...], extents: tuple[int, ...], scheme: QuantScheme, draw: Draw | None
) -> tuple[Array | None, int]:
    bits = 8 if scheme.rounding == "stochastic8" else 16
    if scheme.rounding == "nearest" or draw is None:
        return None, bits
    drawn = random_bits(Draw(*draw), math.prod(shape), bits).astype(np.int64)
    return to_blocks(drawn.reshape(shape), extents), bits


def _encode_blocks(
    blocks: _Blocks, scheme: QuantScheme, given: Any
) -> tuple[Array, Array, np.float32 | None]:
    """Codes (*grid, m), float32 values of the stored scales, and the tensor scale."""
    finite = np.isfinite(blocks.values) & blocks.real
    bad: Array = np.asarray(~np.isfinite(blocks.values).all(-1))
    magnitude = np.where(finite, np.abs(blocks.values), F(0))
    tensor_amax = F(magnitude.max(initial=0))
    if given is not None and scheme.tensor_scale:
        given, tensor_amax = given[0], F(given[1])
    if given is None:
        amax = _calibrated(magnitude, finite, scheme)
        values = block_scales(amax, scheme, tensor_amax)
        # Only non-finite values and zeros, to be saturated: there is no magnitude to scale by.
        values = np.where(bad & (amax == 0), F(1), values)
    else:
        values = given_scales(given, scheme)
    codes = _codes(blocks, values, scheme, tensor_amax)
    if scheme.scale_rule == "four_over_six" and given is None:
        codes, values = _better_of_four_and_six(blocks, codes, values, scheme, tensor_amax)
    if given is not None:
        given = np.asarray(given, np.float32)[..., None]
        codes = np.where(given == 0, _zero_codes(blocks, scheme), codes)
    if scheme.nonfinite != "saturate":
        codes, values = np.where(bad[..., None], 0, codes), np.where(bad, F(np.nan), values)
    codes = np.where(blocks.real, codes, 0).astype(np.uint8)
    return codes, values, tensor_scale(scheme, tensor_amax) if scheme.tensor_scale else None


def _calibrated(magnitude: Array, finite: Array, scheme: QuantScheme) -> Array:
    """float32 magnitude that a block's scale is taken of: the largest, or the mean."""
    if scheme.calibration == "abs_max":
        return np.asarray(magnitude.max(-1, initial=0))
    total = np.cumsum(magnitude, axis=-1, dtype=np.float64)[..., -1]
    return np.asarray(total / np.maximum(finite.sum(-1), 1), np.float32)


def _codes(blocks: _Blocks, values: Array, scheme: QuantScheme, tensor_amax: np.float32) -> Array:
    """Element codes for stored scales of these ``values``, none of which decodes to infinity."""
    scale = values[..., None]
    factor = scale * tensor_scale(scheme, tensor_amax) if scheme.tensor_scale else scale
    scaled = _scaled(blocks.values, scale, factor, scheme, tensor_amax)
    codes = encode(scaled, scheme.element, blocks.draws, blocks.bits)
    zero = scale == 0 if scheme.scale_rule in ("te", "torchao", "four_over_six") else factor == 0
    codes = np.where(zero, _zero_codes(blocks, scheme), codes)
    return _finite_products(codes, factor, scheme)


def _scaled(x: Array, scale: Array, factor: Array, scheme: QuantScheme, tensor_amax: np.float32) -> Array:
    """What is rounded to element codes: ``x`` over its scale, as each rule computes it."""
    if scheme.scale_format.mantissa_bits == 0:
        return np.asarray(x.astype(np.float64) / scale)
    if scheme.scale_rule in ("te", "four_over_six"):
        inverse = np.minimum(F(1) / (scale * (F(1) / te_factor(tensor_amax))), FLOAT_MAX)
        return np.asarray(x * inverse)
    if scheme.scale_rule == "torchao":
        return np.asarray(x * ((F(1) / F(tensor_amax / F(2688))) / scale))
    return np.asarray(x / factor)


def _zero_codes(blocks: _Blocks, scheme: QuantScheme) -> Array:
    """Codes under a scale of 0: zero, except that NaN is never lost."""
    return np.where(np.isnan(blocks.values), scheme.element_format.nan_code or 0, 0)


def _finite_products(codes: Array, factor: Array, scheme: QuantScheme) -> Array:
    """``codes``, those whose product with ``factor`` overflows replaced by the largest that don't."""
    values = decode(codes, scheme.element)
    table = scheme.element_format.values
    inside = (table >= scheme.element_format.minimum) & (table <= scheme.element_format.maximum)
    factor = np.broadcast_to(factor, codes.shape)
    codes = codes.copy()
    for index in np.argwhere(np.isinf(values * factor) & np.isfinite(values) & np.isfinite(factor)):
        at = tuple(index)
        fits = inside & np.isfinite(table * factor[at]) & (np.signbit(table) == np.signbit(values[at]))
        codes[at] = np.argmax(np.where(fits, np.abs(table), -1))
    return codes


def _better_of_four_and_six(
    blocks: _Blocks, codes: Array, values: Array, scheme: QuantScheme, tensor_amax: np.float32
) -> tuple[Array, Array]:
    """Per block the maximum on 6 or on 4, whichever has the smaller squared error; 6 on a tie."""
    finite = np.isfinite(blocks.values) & blocks.real
    amax = np.where(finite, np.abs(blocks.values), F(0)).max(-1, initial=0)
    target = amax * (te_factor(tensor_amax) * (F(1) / F(6))) * F(1.5)
    on_four = nearest(np.minimum(target, FLOAT_MAX), scheme.scale_format)
    four = _codes(blocks, on_four, scheme, tensor_amax)
    better = _squared_error(blocks, four, on_four, scheme, tensor_amax) < _squared_error(
        blocks, codes, values, scheme, tensor_amax
    )
    return np.where(better[..., None], four, codes), np.where(better, on_four, values)


def _squared_error(
    blocks: _Blocks, codes: Array, values: Array, scheme: QuantScheme, tensor_amax: np.float32
) -> Array:
    """float32 sum over a block, in order, of (code · scale - x · S)²."""
    difference = decode(codes, scheme.element) * values[..., None] - blocks.values * te_factor(tensor_amax)
    return np.cumsum(difference * difference, axis=-1, dtype=np.float32)[..., -1]
