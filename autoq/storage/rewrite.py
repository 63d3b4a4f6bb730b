"""New values in a packed tensor: only blocks in which something changed are encoded again (S12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import convert
from .blocks import from_blocks, to_blocks
from .layout import Array
from .packing import pack, unpack
from .plan import plan_of
from .qtensor import QTensor


def rewritten(q: QTensor, values: Array) -> QTensor:
    """``q`` with other values; blocks whose decoded values equal the new ones keep their bits.

    A scale of the whole tensor stays: values beyond it saturate. The axis order stays too.

    Args:
        q: Any layout.
        values: float32 of the logical shape.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.linspace(0.1, 1, 64, dtype=np.float32), scheme("mxfp4"))
        >>> new = q.dequantize()
        >>> new[40] = 7.0
        >>> changed = rewritten(q, new)
        >>> changed[:32].same_bits(q[:32]), changed.dequantize()[40]
        (True, np.float32(8.0))
    """
    old = q.dequantize()
    changed = ~((old == values) | (np.isnan(old) & np.isnan(values)))
    if not changed.any():
        return q
    inverse = q.layout.inverse
    new, touched = np.ascontiguousarray(values.transpose(inverse)), changed.transpose(inverse)
    if q.scheme.block is None:
        packed = _under_scales_of(q, new)
        scales = q.scales
    else:
        packed = convert.encode(new, q.scheme, tensor_amax=_amax_of(q))
        extents = q.scheme.extents(q.ndim)
        blocks = np.asarray(to_blocks(np.ascontiguousarray(touched), extents).values.any(axis=1))
        scales = np.where(blocks.reshape(q.scales.shape), packed.scales, q.scales)
        spread = np.broadcast_to(blocks[:, None], (len(blocks), int(np.prod(extents))))
        touched = from_blocks(spread, new.shape, extents)
    bits = q.scheme.element_bits
    codes = np.where(touched, unpack(packed.words, bits, new.shape), unpack(q.words, bits, new.shape))
    return QTensor.make(pack(codes, bits), scales, q.tensor_scale, q.scheme, q.shape, q.layout)


def _under_scales_of(q: QTensor, values: Array) -> Any:
    """Encoded with the one scale that a whole tensor has."""
    given = convert.effective_scales(q.scales, None, q.scheme)
    return convert.quantize(values, convert.nearest(q.scheme), scales=given)


def _amax_of(q: QTensor) -> float | None:
    """A magnitude that gives the tensor scale which ``q`` has; None without one."""
    rule = plan_of(q.scheme).tensor_scale
    if rule is None or q.tensor_scale is None:
        return None
    guess = np.float32(q.tensor_scale) / np.float32(rule(1.0))
    near = [guess]
    for _ in range(4):
        near = [np.nextafter(near[0], np.float32(0)), *near, np.nextafter(near[-1], np.float32(np.inf))]
    found = [float(amax) for amax in near if rule(float(amax)) == q.tensor_scale]
    return found[0] if found else float(guess)
