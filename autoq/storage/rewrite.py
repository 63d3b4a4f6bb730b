"""New values in a packed tensor: only blocks in which something changed are encoded again (S12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..devices import array_namespace, on_gpu
from ..schemes.scale import NVFP4_RULES
from . import convert
from .blocks import from_blocks, to_blocks
from .inputs import contiguous, converted, refuse_nonfinite
from .layout import Array
from .packing import pack, unpack
from .plan import plan_of
from .qtensor import QTensor

LARGEST = 0x7F7FFFFF  # bits of the largest float32


def rewritten(q: QTensor, values: Array, old: Array | None = None) -> QTensor:
    """``q`` with other values; blocks whose decoded values equal the new ones keep their bits.

    A scale of the whole tensor stays: values beyond it saturate. The axis order stays too.

    Args:
        q: Any layout.
        values: float32 of the logical shape.
        old: ``q`` decoded, where that is at hand.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.linspace(0.1, 1, 64, dtype=np.float32), scheme("mxfp4"))
        >>> new = q.dequantize()
        >>> new[40] = 7.0
        >>> changed = rewritten(q, new)
        >>> changed[:32].same_bits(q[:32]), changed.dequantize()[40]
        (True, np.float32(8.0))
    """
    old = q.dequantize() if old is None else old
    changed = _differ(old, values)
    if not on_gpu(changed) and not changed.any():
        return q
    if q.scheme.nonfinite == "raise":
        refuse_nonfinite(values, q.scheme)
    inverse = q.layout.inverse
    new = contiguous(values.transpose(inverse))
    touched = changed.transpose(inverse)
    codes = unpack(q.words, q.scheme.element_bits, new.shape)
    if on_gpu(codes):
        codes, scales = _rewritten_everywhere(q, codes, new, touched)
    elif q.scheme.block is None:
        codes[touched], scales = _under_scale_of(q, new[touched])
    else:
        codes, scales = _blocks_rewritten(q, codes, new, np.ascontiguousarray(touched))
    words = pack(codes, q.scheme.element_bits)
    return QTensor.make(words, scales, q.tensor_scale, q.scheme, q.shape, q.layout)


def _differ(old: Array, new: Array) -> Array:
    """Where values differ, NaN being equal to NaN, and -0 to 0."""
    if not on_gpu(old):
        changed: Array = ~((old == new) | (np.isnan(old) & np.isnan(new)))
        return changed
    a, b = old.view(np.uint32), new.view(np.uint32)  # CuPy takes subnormals for zeros
    sizes = [x & np.uint32(0x7FFFFFFF) for x in (a, b)]
    zeros = (sizes[0] | sizes[1]) == 0
    nans = (sizes[0] > np.uint32(0x7F800000)) & (sizes[1] > np.uint32(0x7F800000))
    different: Array = (a != b) & ~zeros & ~nans
    return different


def _under_scale_of(q: QTensor, values: Array) -> tuple[Array, Array]:
    """Codes of some values under the one scale of the whole tensor, and that scale: NaN after NaN (S43)."""
    given = convert.effective_scales(q.scales, None, q.scheme).reshape(1)
    packed = convert.quantize(values, convert.nearest(q.scheme), scales=given)
    return unpack(packed.words, q.scheme.element_bits, values.shape), packed.scales.reshape(q.scales.shape)


def _blocks_rewritten(q: QTensor, codes: Array, values: Array, touched: Array) -> tuple[Array, Array]:
    """Codes and scales in storage order, those of touched blocks encoded again."""
    extents, scales = q.scheme.extents(q.ndim), np.array(q.scales)
    rows = np.flatnonzero(np.asarray(to_blocks(touched, extents).values.any(axis=1)))
    new, amax = to_blocks(values, extents), _amax_of(q)
    if new.counts is not None and q.scheme.calibration != "abs_max":  # zeros beyond the edge would count
        whole = convert.encode(values, q.scheme, tensor_amax=amax)
        fresh, found = unpack(whole.words, q.scheme.element_bits, values.shape), whole.scales
        encoded, found = to_blocks(fresh, extents).values[rows], found.reshape(-1)[rows]
    else:
        lines = q.scheme.replace(block=(new.values.shape[1],))
        packed = convert.encode(np.ascontiguousarray(new.values[rows]), lines, tensor_amax=amax)
        encoded = unpack(packed.words, q.scheme.element_bits, (len(rows), new.values.shape[1]))
        found = packed.scales.reshape(-1)
    blocks = to_blocks(codes, extents).values
    blocks[rows] = encoded
    scales.reshape(-1)[rows] = found
    return from_blocks(blocks, values.shape, extents), scales


def _rewritten_everywhere(q: QTensor, codes: Array, values: Array, touched: Array) -> tuple[Array, Array]:
    """The same on a GPU: all blocks are encoded again and those that were touched are taken.

    How many were touched is known there only, and isn't waited for.
    """
    xp = array_namespace(codes)
    if q.scheme.block is None:
        fresh, scales = _under_scale_of(q, values)
        return xp.where(touched, fresh, codes), scales
    extents = q.scheme.extents(q.ndim)
    blocks = to_blocks(touched, extents).values
    rows = blocks.any(axis=1, keepdims=True)
    packed = convert.encode(values, q.scheme, tensor_amax=_amax_of(q))
    fresh = unpack(packed.words, q.scheme.element_bits, values.shape)
    inside = from_blocks(xp.broadcast_to(rows, blocks.shape), values.shape, extents)
    bits = np.dtype(f"u{q.scales.dtype.itemsize}")
    kept = contiguous(q.scales).view(bits)
    scales = xp.where(rows.reshape(q.scales.shape), packed.scales.view(bits), kept)
    return xp.where(inside, fresh, codes), scales.view(q.scales.dtype)


def _amax_of(q: QTensor) -> Any:
    """A magnitude that gives the tensor scale which ``q`` has; None without one."""
    rule = plan_of(q.scheme).tensor_scale
    if rule is None or q.tensor_scale is None:
        return None
    if on_gpu(q.tensor_scale):
        return _amax_on_gpu(q, rule)
    guess = q.tensor_scale / np.float32(rule(1.0))
    near = [guess]
    for _ in range(4):
        near = [np.nextafter(near[0], np.float32(0)), *near, np.nextafter(near[-1], np.float32(np.inf))]
    found = [float(amax) for amax in near if rule(float(amax)) == q.tensor_scale]
    return found[0] if found else float(guess)


def _amax_on_gpu(q: QTensor, rule: Any) -> Any:
    """The same as an array without axes: by bits and, where scales may be subnormal, in float64.

    CuPy takes float32's subnormals for zeros. A quotient rounded to float64 first rounds to the same float32.
    """
    xp = array_namespace(q.tensor_scale)
    wide = np.float64 if q.scheme.scale_rule in NVFP4_RULES else np.float32  # others are never subnormal
    guess = converted(converted(q.tensor_scale, np.float64) / float(rule(1.0)), np.float32)
    places = guess.view(np.uint32).astype(np.int64) + xp.arange(-4, 5)
    near = places.clip(0, LARGEST).astype(np.uint32).view(np.float32)
    scales = converted(rule(converted(near, wide)), np.float32)
    fits = scales.view(np.uint32) == q.tensor_scale.view(np.uint32)
    return xp.where(fits.any(), near.take(fits.argmax()), guess)
