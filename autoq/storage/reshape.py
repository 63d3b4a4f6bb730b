"""Reshape of packed tensors: metadata where axes merge and split between blocks (S34-S36)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..devices import array_namespace, beside, device_of, same_memory, using_device
from ..errors import ShapeError
from .axes import lengths_of
from .gather import encoded
from .layout import Array, Shape, grid_shape, words_shape
from .packing import pack, unpack
from .qtensor import QTensor
from .regroup import Regrouping, Source, block_sources, regrouping


def resolve_shape(old: Shape, new: int | Sequence[int]) -> Shape:
    """The target of a reshape with its -1 filled in.

    Raises:
        ShapeError: If the sizes differ, or -1 appears twice or can't be filled.

    Example:
        >>> resolve_shape((4, 6), (2, -1))
        (2, 12)
    """
    shape = lengths_of(new)
    known = math.prod(n for n in shape if n != -1)
    size = math.prod(old)
    unknown = shape.count(-1)
    if unknown == 1 and known and size % known == 0:
        shape = tuple(size // known if n == -1 else n for n in shape)
    if min(shape, default=1) < 0 or math.prod(shape) != size:
        raise ShapeError(
            f"reshape: a tensor of shape {old} to {shape}",
            f"a shape of {size} values, at most one -1",
            "Change the target shape.",
        )
    return shape


def reshape(q: QTensor, shape: int | Sequence[int]) -> tuple[Any, str]:
    """Reshape in logical row-major order.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.ones((2, 5, 64), np.float32), scheme("mxfp8"))
        >>> reshape(q, (2, 5, 2, 32))[1], reshape(q, (10, 64))[1], reshape(q, (2, 320))[1]
        ('view', 'view', 'view')
    """
    shape = resolve_shape(q.shape, shape)
    if shape == q.shape:
        return q, "view"
    if q.size == 0:
        return _empty(q, shape), "copy"
    source = Source(q.scheme, q.shape, q.layout)
    plan = regrouping(source, shape)
    if plan is not None:
        return _regrouped(q, plan, source, shape)
    if q.scheme.block is None:
        words = pack(q.codes().reshape(shape), q.scheme.element_bits)
        scales = q.scales.reshape((1,) * len(shape))
        return QTensor.make(words, scales, None, q.scheme, shape), "copy"
    return encoded(q.dequantize().reshape(shape), q.scheme), "decode"


def _empty(q: QTensor, shape: Shape) -> QTensor:
    """A tensor without values of another shape: only a shared scale is kept."""
    scheme = q.scheme.innermost(len(shape)) if len(q.scheme.block or ()) > len(shape) else q.scheme
    grid = grid_shape(shape, scheme.extents(len(shape)))
    xp = array_namespace(q.words)
    with using_device(device_of(q.words)):
        scales = q.scales.reshape(grid) if scheme.block is None else xp.empty(grid, q.scales.dtype)
        words = xp.empty(words_shape(shape, scheme.element_bits), np.uint32)
    return QTensor.make(words, scales, q.tensor_scale, scheme, shape)


def _regrouped(q: QTensor, plan: Regrouping, source: Source, shape: Shape) -> tuple[QTensor, str]:
    if plan.cut is not None:
        words, scales = _cut_anew(q, plan, source, shape)
    else:
        words = _transposed(_transposed(q.words, plan.axes).reshape(plan.parts_words), plan.finish)
        scales = _transposed(q.scales, plan.axes)
    words = words.reshape(plan.words)
    scales = _transposed(scales.reshape(plan.parts_grid), plan.finish).reshape(plan.grid)
    shared = same_memory(words, q.words) and same_memory(scales, q.scales)
    result = QTensor.make(words, scales, q.tensor_scale, q.scheme, shape, plan.layout)
    return result, "view" if shared else "copy"


def _cut_anew(q: QTensor, plan: Regrouping, source: Source, shape: Shape) -> tuple[Array, Array]:
    """Words of lines cut off words, and for each new block the scale of the old one that it lies in."""
    assert plan.cut is not None
    bits = q.scheme.element_bits
    codes = _transposed(unpack(q.words, bits, q.storage_shape), plan.axes).reshape(plan.parts)
    words = pack(_transposed(codes, plan.finish).reshape(plan.stored), bits)
    blocks = math.prod(q.shape[axis] for axis in plan.cut.old[:-1]) * q.scales.shape[-1]
    sources = block_sources(source, plan.cut, shape)
    assert sources is not None
    scales = _transposed(q.scales, plan.axes).reshape(-1, blocks)
    return words, np.take(scales, beside(sources, scales), axis=1)


def _transposed(array: Array, axes: Shape | None) -> Array:
    return array if axes is None else array.transpose(axes)
