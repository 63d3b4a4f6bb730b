"""Readers: float tiles of the operands of an element-wise function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..context import OBSERVERS, launched
from . import convert
from .boxes import Box
from .inputs import cast
from .layout import Geometry, Shape
from .plan import plan_of
from .qtensor import QTensor

Reader = Callable[[Box], Any]


def box_reader(operand: Any, shape: Shape, compute: np.dtype[Any]) -> Reader:
    """Reads any operand in boxes of the result's ``shape``, axes of size 1 left to broadcast.

    A reader owns the memory of its tile and reuses it: each thread makes its own.
    """
    if isinstance(operand, QTensor):
        return _packed_boxes(operand, len(shape), compute)
    if isinstance(operand, np.ndarray) and operand.ndim:
        array = operand.reshape((1,) * (len(shape) - operand.ndim) + operand.shape)
        convert_to = None if array.dtype in (compute, np.dtype(bool)) else compute

        def read(box: Box) -> Any:
            part = array[tuple(s if n != 1 else slice(None) for s, n in zip(box, array.shape, strict=True))]
            return part if convert_to is None else cast(part, convert_to)

        return read
    value = constant(operand, compute)
    return lambda box: value


def whole_tile(operand: Any, compute: np.dtype[Any]) -> Any:
    """An operand in one piece: decoded, or converted as tiles are."""
    if isinstance(operand, QTensor):
        return operand.dequantize(compute)
    if isinstance(operand, np.ndarray) and operand.ndim:
        return operand if operand.dtype == np.dtype(bool) else cast(operand, compute)
    return constant(operand, compute)


def constant(operand: Any, compute: np.dtype[Any]) -> Any:
    """A number or None as it is; an array without axes as a scalar of the compute dtype."""
    if isinstance(operand, np.ndarray | np.generic) and operand.dtype.kind != "b":
        return cast(np.asarray(operand), compute)[()]
    return operand


def _packed_boxes(q: QTensor, rank: int, compute: np.dtype[Any]) -> Reader:
    geometry, inverse, missing = Geometry.of(q.scheme, q.ndim), q.layout.inverse, rank - q.ndim
    scratch = np.empty(0, np.float32)

    def read(box: Box) -> Any:
        nonlocal scratch
        own = [s if n != 1 else slice(0, 1) for s, n in zip(box[missing:], q.shape, strict=True)]
        stored = [own[logical] for logical in inverse]
        shape = tuple(s.stop - s.start for s in stored)
        if scratch.size < math.prod(shape):
            scratch = np.empty(math.prod(shape), np.float32)
        words, scales = stored_slices(stored, geometry)
        tile = convert.dequantize(
            q.words[words],
            q.scales[scales],
            q.tensor_scale,
            q.scheme,
            shape,
            out=scratch[: math.prod(shape)].reshape(shape),
        )
        tile = tile.transpose(q.layout.order).reshape((1,) * missing + tuple(s.stop - s.start for s in own))
        return tile.astype(compute, copy=False)

    return read


def stored_slices(stored: list[slice], geometry: Geometry) -> tuple[Box, Box]:
    """Slices of words and of scales that hold a box whose edges are whole words and blocks."""
    if not stored:
        return (), ()
    last, bits = stored[-1], geometry.bits
    words = (*stored[:-1], slice(last.start * bits // 32, -(-last.stop * bits // 32)))
    scales = tuple(
        slice(s.start // e, -(-s.stop // e)) if e else slice(None)
        for s, e in zip(stored, geometry.extents, strict=True)
    )
    return words, scales


def line_reader(operand: Any, lines: int, n: int, compute: np.dtype[Any]) -> Reader | None:
    """Reads an operand in ranges of ``lines`` contiguous lines of ``n``; None if it isn't laid out so."""
    if isinstance(operand, QTensor):
        if operand.size == lines * n and _plain_lines(operand, n):
            return _packed_lines(operand, lines, n, compute)
        if operand.size in (1, n) and operand.size == math.prod(operand.shape[-1:]):
            row = operand.dequantize(compute).reshape(1, -1)
            return lambda box: row
        return None
    if not isinstance(operand, np.ndarray) or not operand.ndim:
        value = constant(operand, compute)
        return lambda box: value
    if operand.size == lines * n and operand.flags.c_contiguous:
        return box_reader(operand.reshape(lines, n), (lines, n), compute)
    if operand.size == lines and operand.shape[-1] == 1 and operand.flags.c_contiguous:
        return box_reader(operand.reshape(lines, 1), (lines, n), compute)
    if operand.size in (1, n) and operand.size == operand.shape[-1]:
        row = whole_tile(operand, compute).reshape(1, -1)
        return lambda box: row
    return None


def _plain_lines(q: QTensor, n: int) -> bool:
    """Whether the tensor's arrays are lines of ``n`` values one after the other, blocks within them."""
    block = q.scheme.block
    whole = q.shape[-1] == n or (
        q.shape[-1] % n == 0 and n % Geometry.of(q.scheme, q.ndim).cuts(q.ndim - 1) == 0
    )
    return (
        (block is None or len(block) == 1)
        and q.layout.is_identity
        and whole
        and q.words.flags.c_contiguous
        and q.scales.flags.c_contiguous
    )


def _packed_lines(q: QTensor, lines: int, n: int, compute: np.dtype[Any]) -> Reader:
    plan = plan_of(q.scheme)
    words = q.words.view(np.uint8).reshape(lines, -1)
    scales = q.scales.reshape(lines, -1) if plan.block else None
    scratch = np.empty((0, n), np.float32)
    shared = q.scales.reshape(-1, 1)[:1]

    def read(box: Box) -> Any:
        nonlocal scratch, shared
        rows = box[0]
        count = rows.stop - rows.start
        if len(scratch) < count:
            scratch = np.empty((count, n), np.float32)
            shared = np.repeat(shared[:1], count, 0)
        tile = scratch[:count]
        plan.dequantize_lines(
            words[rows],
            shared[:count] if scales is None else scales[rows],
            q.tensor_scale,
            plan.codec,
            plan.block or n,
            tile,
        )
        if OBSERVERS:
            launched("dequantize_lines", tile.size)
        return tile if compute == np.float32 else tile.astype(compute)

    return read
