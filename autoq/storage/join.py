"""Joining packed tensors: concat, stack and padding with zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..devices import address, array_namespace, device_of, on_gpu, using_device
from ..errors import DTypeError, ShapeError
from . import convert
from .axes import axis_of
from .device import filled
from .gather import encoded
from .layout import Array, Geometry, Layout, grid_shape, words_shape
from .packing import pack as pack_codes
from .packing import unpack
from .qtensor import QTensor


def concat(tensors: Sequence[QTensor], axis: int = 0) -> tuple[Any, str]:
    """Join along an axis: a copy of codes where tensor scales agree and no block is cut.

    Raises:
        DTypeError: If the dtypes differ (by :meth:`QuantScheme.canonical`).
        ShapeError: If the shapes differ elsewhere than along ``axis``.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.ones((2, 32), np.float32), scheme("mxfp8"))
        >>> joined, how = concat([q, q], axis=1)
        >>> joined.shape, how
        ((2, 64), 'copy')
    """
    parts = _same_kind(tensors, "concat")
    axis = axis_of(axis, parts[0].ndim)
    first = parts[0].shape
    for part in parts[1:]:
        if (
            part.ndim != len(first)
            or part.shape[:axis] + part.shape[axis + 1 :] != first[:axis] + first[axis + 1 :]
        ):
            raise ShapeError(
                f"concat: shapes {[p.shape for p in parts]} along axis {axis}",
                "equal sizes along the other axes",
                "Slice, pad or reshape them to agree.",
            )
    result = _joined(_aligned(parts), axis)
    if result is None:
        return encoded(np.concatenate([part.dequantize() for part in parts], axis), parts[0].scheme), "decode"
    return result, "copy"


def stack(tensors: Sequence[QTensor], axis: int = 0) -> tuple[Any, str]:
    """Join along a new axis: a copy of words and scales where tensor scales agree.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.ones(32, np.float32), scheme("mxfp8"))
        >>> stack([q, q])[0].shape
        (2, 32)
    """
    parts = _same_kind(tensors, "stack")
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        raise ShapeError(f"stack: shapes {sorted(shapes)}", "equal shapes", "Reshape or pad them to agree.")
    axis = axis_of(axis, parts[0].ndim + 1)
    aligned = _aligned(parts)
    if aligned is None:
        return encoded(np.stack([part.dequantize() for part in parts], axis), parts[0].scheme), "decode"
    joined = _joined([_with_axis(part, axis) for part in aligned], axis)
    assert joined is not None
    return joined, "copy"


def pad(q: QTensor, pad_width: Any, value: float = 0.0) -> tuple[Any, str]:
    """Pad with a constant, as ``numpy.pad``: zero codes where blocks stay whole, else encoded again.

    Args:
        pad_width: ``((before, after), ...)`` an axis, one pair for all, or an int.
        value: What to pad with; anything but 0 decodes.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.ones((2, 32), np.float32), scheme("mxfp8"))
        >>> wider, how = pad(q, ((0, 1), (32, 0)))
        >>> wider.shape, how
        ((3, 64), 'copy')
    """
    widths = _pad_widths(pad_width, q.shape)
    if not any(map(any, widths)):
        return q, "view"
    result: QTensor | None = q if value == 0.0 and _zero_codes_are_zero(q) else None
    for axis, (before, after) in enumerate(widths):
        if result is not None and (before or after):
            parts = [_zeros_beside(result, axis, before), result, _zeros_beside(result, axis, after)]
            result = _joined([part for part in parts if part.shape[axis]], axis)
    if result is None:
        return encoded(np.pad(q.dequantize(), widths, constant_values=value), q.scheme), "decode"
    return result, "copy"


def _same_kind(tensors: Sequence[QTensor], name: str) -> list[QTensor]:
    parts = list(tensors)
    if not parts:
        raise ShapeError(f"{name} of no tensors", "at least one", "Pass one or more tensors.")
    schemes = {part.scheme.canonical(): part.scheme for part in parts}
    if len(schemes) > 1:
        raise DTypeError(
            f"{name}: tensors of {', '.join(s.name for s in schemes.values())}",
            "one dtype",
            "Decode them, or encode them in one scheme first.",
        )
    if len({part.scheme for part in parts}) > 1:
        # Only encode choices differ: the result takes the defaults, whatever the order of the parts (S8).
        parts = [
            QTensor.make(p.words, p.scales, p.tensor_scale, p.scheme.default_choices(), p.shape, p.layout)
            for p in parts
        ]
    return parts


def _aligned(parts: list[QTensor]) -> list[QTensor] | None:
    """The tensors with one axis order, if blocks, tensor scales and per-tensor scales agree; else None."""
    from .move import contiguous

    first = parts[0]
    if any(part.scheme.block != first.scheme.block or part.ndim != first.ndim for part in parts):
        return None
    if len({part.layout.order for part in parts}) > 1:
        parts = [contiguous(part)[0] for part in parts]
    if len({part.layout.order for part in parts}) > 1 or len({_shared_scale(part) for part in parts}) > 1:
        return None
    return parts


def _shared_scale(part: QTensor) -> bytes | int | None:
    """The bits of the scale that all values of a tensor share, None where they share none.

    On a GPU where it lies instead: its value is not read back, so equal scales must be the same one.
    """
    shared: Any = part.scales if part.scheme.block is None else part.tensor_scale
    if shared is None:
        return None
    return address(shared) if on_gpu(shared) else bytes(shared.tobytes())


def _joined(parts: list[QTensor] | None, axis: int) -> QTensor | None:
    """Words and scales joined along a logical axis; None if blocks are cut."""
    if parts is None:
        return None
    first = parts[0]
    geometry = Geometry.of(first.scheme, first.ndim)
    stored = first.layout.order[axis]
    extent = geometry.extents[stored]
    parts = [part for part in parts if part.shape[axis]] or parts[:1]
    sizes = [part.shape[axis] for part in parts]
    if extent > 1 and any(n % extent for n in sizes[:-1]):
        return None
    shape = (*first.shape[:axis], sum(sizes), *first.shape[axis + 1 :])
    scales = np.concatenate([part.scales for part in parts], stored) if extent else first.scales
    if geometry.is_free(stored) or stored < first.ndim - 1 or not any(n % geometry.unit for n in sizes[:-1]):
        words = np.concatenate([part.words for part in parts], stored)
    else:
        words = pack_codes(np.concatenate([_stored_codes(part) for part in parts], stored), geometry.bits)
    return QTensor.make(words, scales, first.tensor_scale, first.scheme, shape, first.layout)


def _stored_codes(part: QTensor) -> Array:
    return unpack(part.words, part.scheme.element_bits, part.storage_shape)


def _with_axis(part: QTensor, axis: int) -> QTensor:
    """A new axis of size 1 that no block spans, in logical order where blocks allow."""
    if not part.shape:
        return QTensor.make(part.words, part.scales.reshape(1), None, part.scheme, (1,))
    order = part.layout.order
    front = part.ndim - Geometry.of(part.scheme, part.ndim).pinned
    at = min(order[axis] if axis < part.ndim else part.ndim, front)
    shifted = [place + (place >= at) for place in order]
    layout = Layout((*shifted[:axis], at, *shifted[axis:]))
    words, scales = np.expand_dims(part.words, at), np.expand_dims(part.scales, at)
    shape = (*part.shape[:axis], 1, *part.shape[axis:])
    return QTensor.make(words, scales, part.tensor_scale, part.scheme, shape, layout)


def _zeros_beside(q: QTensor, axis: int, n: int) -> QTensor:
    """Zeros of the layout, scheme and shared scales of ``q``, ``n`` along ``axis``."""
    shape = (*q.shape[:axis], n, *q.shape[axis + 1 :])
    stored = q.layout.storage_shape(shape)
    xp, scales = array_namespace(q.words), q.scales
    with using_device(device_of(q.words)):
        words = xp.zeros(words_shape(stored, q.scheme.element_bits), np.uint32)
        if q.scheme.block is not None:
            grid = grid_shape(stored, q.scheme.extents(q.ndim))
            scales = filled(xp, grid, convert.zero_scale(q.scheme), scales.dtype)
    return QTensor.make(words, scales, q.tensor_scale, q.scheme, shape, q.layout)


def _zero_codes_are_zero(q: QTensor) -> bool:
    """Whether code 0 decodes to 0 beside ``q``: not under a NaN scale that all values share.

    On a GPU that scale is not read back. With or without a decode all values are NaN then.
    """
    shared = q.scheme.block is None and not on_gpu(q.scales)
    shared_nan = shared and bool(np.isnan(q.effective_scales()).any())
    return bool(q.scheme.element_format.values[0] == 0.0) and not shared_nan


def _pad_widths(pad_width: Any, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    widths = np.asarray(pad_width)
    try:
        pairs = np.broadcast_to(widths, (len(shape), 2)).tolist()
    except ValueError:
        pairs = []
    if len(pairs) != len(shape) or widths.dtype.kind not in "iu" or (widths < 0).any():
        raise ShapeError(
            f"pad: widths {pad_width} for a tensor of shape {shape}",
            "((before, after), ...) an axis, none negative",
            "Pass one pair an axis.",
        )
    return [(before, after) for before, after in pairs]
