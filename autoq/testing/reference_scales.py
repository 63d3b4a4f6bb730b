"""The oracle's scale rules: exact arithmetic on integers, bits and powers of two."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..schemes import QuantScheme, ScaleFormat

Array = np.ndarray[Any, np.dtype[Any]]

F = np.float32
FLOAT_MAX = np.finfo(np.float32).max
SIXTH = F(1) / F(6)


def block_scales(amax: Array, scheme: QuantScheme, tensor_amax: np.float32) -> Array:
    """float32 values of the stored scales of blocks whose calibrated magnitude is ``amax``."""
    element, scale = scheme.element_format, scheme.scale_format
    if scale.mantissa_bits == 0:
        return power_of_two(amax, scheme, F(element.half_range), element.maximum_exponent)
    if scheme.scale_rule in ("te", "four_over_six"):
        return nearest(np.minimum(amax * (te_factor(tensor_amax) * SIXTH), FLOAT_MAX), scale)
    raw = amax / F(element.half_range)
    if scheme.scale_rule == "torchao":
        return torchao(raw / (tensor_amax / F(2688)), scale)
    if scheme.tensor_scale:
        raw = raw / tensor_scale(scheme, tensor_amax)
    return rounded(raw, scheme)


def tensor_scale(scheme: QuantScheme, tensor_amax: np.float32) -> np.float32:
    """The stored scale of the tensor under a two-level scheme."""
    if scheme.scale_rule in ("te", "torchao", "four_over_six"):
        return F(tensor_amax / F(2688))
    raw = tensor_amax / F(scheme.element_format.half_range)
    return F(max(raw / F(scheme.scale_format.maximum), F(2.0**-126)))


def te_factor(tensor_amax: np.float32) -> np.float32:
    """S of the rule ``te``: what scales the tensor to 6 · 448."""
    if tensor_amax == 0:
        return F(1)
    factor = F(min(F(2688) / tensor_amax, FLOAT_MAX))
    return factor if factor > 0 else F(1)


def given_scales(given: Array, scheme: QuantScheme) -> Array:
    """float32 values of the stored scales where they are given: rounded by the scheme's rule."""
    given = np.asarray(given, np.float32)
    scale = scheme.scale_format
    if scale.mantissa_bits == 0:
        return power_of_two(given, scheme, F(1), 0)
    if scheme.scale_rule in ("te", "four_over_six"):
        return nearest(given, scale)
    if scheme.scale_rule == "torchao":
        return torchao(given, scale)
    return np.where(given == 0, F(0), rounded(given, scheme))


def torchao(ratio: Array, scale: ScaleFormat) -> Array:
    """The scale of the rule ``torchao``: never subnormal. 0/0, of a zero tensor, counts as 0."""
    return nearest(np.clip(np.nan_to_num(ratio, nan=0.0, posinf=np.inf), F(2.0**-6), F(448)), scale)


def power_of_two(amax: Array, scheme: QuantScheme, largest: np.float32, largest_exponent: int) -> Array:
    """2**(E - 127) by the rules of OCP MX v1.0 §6.3 and their siblings, on the bits of ``amax``."""
    bits = np.asarray(amax, np.float32).view(np.uint32).astype(np.int64)
    if scheme.scale_rule == "round_up":
        code = _round_up_code((np.asarray(amax, np.float32) / largest).view(np.uint32).astype(np.int64))
    else:
        if scheme.scale_rule == "even":
            bits = bits + (1 << (22 - scheme.element_format.precision_bits)) & 0xFF800000
        inexact = (bits & 0x7FFFFF != 0) & (scheme.scale_rule == "ceil")
        exponent = (bits >> 23) - 127 - largest_exponent + inexact
        code = np.minimum(np.clip(exponent, -127, 127) + 127, 254)
    return np.asarray(np.ldexp(F(1), code - 127), np.float32)


def _round_up_code(bits: Array) -> Array:
    field, mantissa = bits >> 23, bits & 0x7FFFFF
    normal = np.minimum(field + (mantissa != 0), 254)
    return np.where(field == 0, (mantissa > 0x400000).astype(np.int64), normal)


def rounded(raw: Array, scheme: QuantScheme) -> Array:
    """``raw`` scales rounded by ``round_up`` or ``nearest``; never below the smallest scale."""
    function = np.ceil if scheme.scale_rule == "round_up" else np.rint
    scale = scheme.scale_format
    return np.maximum(_on_grid(raw, scale, function), F(scale.smallest))


def nearest(raw: Array, scale: ScaleFormat) -> Array:
    """``raw`` scales rounded to the nearest stored one, ties to even."""
    return _on_grid(raw, scale, np.rint)


def _on_grid(raw: Array, scale: ScaleFormat, function: Any) -> Array:
    """float32: ``raw`` in units of its last place, made whole by ``function``, up to the maximum."""
    exact = np.asarray(raw, np.float64)
    exponent = np.maximum(np.frexp(exact)[1] - 1, scale.minimum_exponent)
    unit = np.ldexp(1.0, exponent - scale.mantissa_bits)
    return np.asarray(np.minimum(function(exact / unit) * unit, scale.maximum), np.float32)


def stored(values: Array, scale: ScaleFormat) -> Array:
    """Stored scales of float32 ``values`` that the format holds exactly; NaN becomes its NaN."""
    if scale.nan_code is None:
        return values.astype(scale.stored_dtype)
    codes = np.searchsorted(scale.values[: scale.nan_code], np.where(np.isnan(values), 0, values))
    return np.where(np.isnan(values), scale.nan_code, codes).astype(np.uint8)


def swizzled(scales: Array) -> Array:
    """Scale codes (rows, columns) in Blackwell's 128 × 4 tiles, flat, padded with zeros.

    Example:
        >>> swizzled(np.arange(512, dtype=np.uint16).reshape(128, 4))[:6].tolist()
        [0, 1, 2, 3, 128, 129]

    Source: NVIDIA cuBLAS documentation, 1D block scaling factors layout.
    """
    rows, columns = scales.shape
    padded = np.pad(scales, [(0, -rows % 128), (0, -columns % 4)])
    tiles = padded.reshape(len(padded) // 128, 4, 32, -1, 4)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(-1)
