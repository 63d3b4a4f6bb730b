"""Writers: where the computed tiles of an element-wise function go."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..context import OBSERVERS, launched
from ..schemes import QuantScheme
from . import convert
from .boxes import Box
from .inputs import as_float32, nonfinite_error
from .layout import Array, Geometry, Shape
from .plan import codec_of, kernels, plan_of
from .readers import stored_slices

Writer = Callable[[Box, Array], None]


def dense_writer(result: Array, cut_shape: Shape) -> Writer:
    """Writes boxes of ``cut_shape`` into a contiguous array, rounded to its dtype."""
    target = result.reshape(cut_shape)

    def write(box: Box, values: Array) -> None:
        with np.errstate(over="ignore"):
            target[box] = values

    return write


def packed_writer(
    words: Array,
    scales: Array,
    scheme: QuantScheme,
    cut_shape: Shape,
    amax: float | None,
    given: float | None,
) -> Writer:
    """Encodes boxes into words and scales.

    Args:
        words, scales: Of the whole result, contiguous.
        cut_shape: What boxes are boxes of: the result's shape, or its lines.
        amax: The largest magnitude, under two-level schemes.
        given: The scale that all blocks share, under per-tensor schemes.
    """
    if given is not None:
        return _shared_scale_writer(words, scheme, cut_shape, given)
    if plan_of(scheme).lines and len(cut_shape) == 2:
        return _line_writer(words, scales, scheme, cut_shape, amax or 0.0)
    geometry = Geometry.of(scheme, len(cut_shape))

    def write(box: Box, values: Array) -> None:
        in_words, in_scales = stored_slices(list(box), geometry)
        part = convert.encode(values, scheme, tensor_amax=amax)
        words[in_words], scales[in_scales] = part.words, part.scales

    return write


def _line_writer(words: Array, scales: Array, scheme: QuantScheme, cut_shape: Shape, amax: float) -> Writer:
    plan = plan_of(convert.nearest(scheme))
    lines, n = cut_shape
    bytes_, scales = words.view(np.uint8).reshape(lines, -1), scales.reshape(lines, -1)
    step = plan.bits, plan.block

    def write(box: Box, values: Array) -> None:
        rows, columns = box
        if values.dtype != np.float32 or not values.flags.c_contiguous:
            values = as_float32(values)
        if columns.start == 0 and columns.stop == n:
            plan.quantize_lines(values, plan.codec, plan.block, bytes_[rows], scales[rows], amax)
            if OBSERVERS:
                launched("quantize_lines", values.size)
            return
        bits, block = step
        part = convert.encode(values, scheme, tensor_amax=amax)
        bytes_[rows, columns.start * bits // 8 : -(-columns.stop * bits // 32) * 4] = part.words.view(
            np.uint8
        )
        scales[rows, columns.start // block : -(-columns.stop // block)] = part.scales

    return write


def _shared_scale_writer(words: Array, scheme: QuantScheme, cut_shape: Shape, given: float) -> Writer:
    codec = codec_of(convert.nearest(scheme), given=True)
    geometry = Geometry.of(scheme, len(cut_shape))
    words = words.reshape(*cut_shape[:-1], -1)

    def write(box: Box, values: Array) -> None:
        n = values.shape[-1]
        lines = math.prod(values.shape[:-1])
        shared = np.full((lines, 1), given, np.float32)
        part = np.empty((lines, -(-n * geometry.bits // 32)), np.uint32)
        stored = np.empty((lines, 1), plan_of(scheme).scale_dtype)
        kernels().quantize_lines(
            as_float32(values).reshape(lines, n),
            codec,
            n,
            part.view(np.uint8),
            stored,
            given=shared,
        )
        if OBSERVERS:
            launched("quantize_lines", values.size)
        at, _ = stored_slices(list(box), geometry)
        words[at] = part.reshape(words[at].shape)

    return write


def refuse(values: Array, box: Box, cut_shape: Shape, shape: Shape, scheme: QuantScheme) -> None:
    """Raise NonFiniteError, with its index in the result, for the first non-finite value of a box."""
    first = kernels().first_nonfinite(as_float32(values).reshape(-1))
    if OBSERVERS:
        launched("first_nonfinite", values.size)
    if first >= 0:
        within = np.unravel_index(first, values.shape)
        place = [int(i) + s.start for i, s in zip(within, box, strict=True)]
        flat = int(np.ravel_multi_index(place, cut_shape))
        raise nonfinite_error(values[within], np.unravel_index(flat, shape), scheme)
