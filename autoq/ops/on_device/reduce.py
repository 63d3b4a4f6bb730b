"""Sums and extrema over axes on GPUs: packed operands are decoded where they are read, none of them whole."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from autoq.context import OBSERVERS, launched
from autoq.kernels.cuda.launch import empty, library
from autoq.kernels.cuda.map import mapped
from autoq.kernels.cuda.reduce import IDENTITY, extremum, summed
from autoq.kernels.cuda.trace import Traced, traced
from autoq.ops.on_device.elementwise import as_operand, elementwise, kinds_of
from autoq.tape.accelerated import accelerate
from autoq.tape.op import REGISTRY, Op
from autoq.types import float32

Shape = tuple[int, ...]
MAGNITUDE = traced(np.abs, "f")
SQUARE = traced(lambda x: x * x, "f")
IS_EXTREMUM = traced(lambda x, found: np.equal(x, found) | np.isnan(x), "ff")
SQUARED_DISTANCE = traced(lambda x, mean: (x - mean) * (x - mean), "ff")


class Over(NamedTuple):
    """The axes of a reduction.

    Attributes:
        shape: The operand's.
        axes: Those summed over, from 0 on.
        values: How many are in a sum.
        result: The result's shape, with ``keepdims`` or without.
        kept: The result's shape with 1s in the axes' place.
    """

    shape: Shape
    axes: Shape
    values: int
    result: Shape
    kept: Shape


def over(x: Any, static: dict[str, Any]) -> Over | None:
    """The axes of a reduction of floats; None for what the op's own forward does or refuses."""
    axis, keepdims = static.get("axis"), static.get("keepdims")
    if type(axis) not in (int, tuple, type(None)) or type(keepdims) is not bool:
        return None
    if kinds_of((x,), whole=False) != "f":
        return None
    try:
        return _over(x.shape, axis, keepdims)
    except TypeError:
        return None


@lru_cache(maxsize=1024)
def _over(shape: Shape, axis: int | Shape | None, keepdims: bool) -> Over | None:
    given = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if any(type(a) is bool for a in given):
        return None  # refused by the forward
    axes = [operator.index(a) for a in given]
    if not axes or 0 in shape or any(not -len(shape) <= a < len(shape) for a in axes):
        return None
    axes = sorted(a % len(shape) for a in axes)
    if len(set(axes)) < len(axes):
        return None
    kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
    result = kept if keepdims else tuple(n for a, n in enumerate(shape) if a not in axes)
    return Over(shape, tuple(axes), prod(shape[a] for a in axes), result, kept)


def add(found: Traced | None, operands: Sequence[Any], where: Over, divisor: float = 1.0) -> Any:
    """The sum of an expression of stored operands, a float32 array without the axes."""
    assert found is not None
    arrays = [as_operand(x) for x in operands]
    total = summed(found.expression, arrays, found.numbers, where.shape, where.axes, divisor)
    if OBSERVERS:
        launched("sum", prod(where.shape))
    return total


@accelerate("sum", "mean")
def total(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """The sum or the mean of floats, in float32."""
    where = over(values[0], static) if compute == float32 else None
    if where is None:
        return NotImplemented
    divisor = float(where.values) if op.name == "mean" else 1.0
    return add(IDENTITY, values, where, divisor).reshape(where.result)


@accelerate("max", "min")
def extreme(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """The largest or smallest of floats."""
    where = over(values[0], static) if compute == float32 else None
    return NotImplemented if where is None else most(op.name, values[0], where).reshape(where.result)


@accelerate("argmax", "argmin")
def place_of_extreme(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """Where it is, or NaN, first."""
    axis = static.get("axis")
    fits = compute == float32 and not isinstance(axis, tuple)
    where = over(values[0], static) if fits else None
    if where is None:
        return NotImplemented
    assert IS_EXTREMUM is not None
    found, hits = most(op.name[3:], values[0], where).reshape(where.kept), empty(where.shape, np.bool_)
    mapped(IS_EXTREMUM.expression, [as_operand(values[0]), found], IS_EXTREMUM.numbers, hits)
    return library().argmax(hits, axis=axis, keepdims=static["keepdims"])


def most(name: str, x: Any, where: Over) -> Any:
    """The extrema of a stored operand, a float32 array without the axes."""
    if OBSERVERS:
        launched("extremum", prod(where.shape))
    return extremum(as_operand(x), where.axes, name == "max", shape=where.shape)


@accelerate("var", "std")
def spread(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """The variance or the standard deviation: the mean, then the mean squared distance from it."""
    correction: Any = static.get("correction")
    where = over(values[0], static) if compute == float32 and type(correction) in (int, float) else None
    if where is None:
        return NotImplemented
    mean = add(IDENTITY, values, where, float(where.values)).reshape(where.kept)
    divisor = max(where.values - correction, 0)
    found = add(SQUARED_DISTANCE, (values[0], mean), where, float(divisor)).reshape(where.result)
    return found if op.name == "var" else root(found)


@accelerate("norm")
def norm(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """The norms of order 1 and 2, magnitudes or squares summed as they are made."""
    order = static.get("ord")
    plain = compute == float32 and type(order) in (int, float) and order in (1, 2)
    where = over(values[0], static) if plain else None
    if where is None:
        return NotImplemented
    if order == 1:
        return add(MAGNITUDE, values, where).reshape(where.result)
    return root(add(SQUARE, values, where).reshape(where.result))


def root(x: Any) -> Any:
    """The square roots of a float32 array."""
    return elementwise(REGISTRY["sqrt"], (x,), {}, float32, float32)
