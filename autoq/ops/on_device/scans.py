"""Running sums, products and extrema on GPUs, in the order of the CPU; sums of few long lines in pieces."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from autoq.context import OBSERVERS, launched
from autoq.devices import on_gpu
from autoq.kernels.cuda.launch import SIMULATED, empty, library
from autoq.kernels.cuda.scan import first_extrema, recurrence, running
from autoq.storage import QTensor
from autoq.storage.inputs import contiguous, converted
from autoq.tape.accelerated import accelerate, raw_on_device
from autoq.tape.op import REGISTRY, Op
from autoq.types import float32

UFUNCS = {"cumulative_sum": "add", "cumulative_prod": "multiply", "cummax": "maximum", "cummin": "minimum"}
FLATTENING = ("add", "multiply")  # take all values as one line where no axis is named
# The op that joins two pieces, and what it leaves as it is. Products are never taken in pieces: a later piece
# may be too large for a float32 where the product so far is 0.
JOINED = {"add": ("add", 0.0), "maximum": ("maximum", -np.inf), "minimum": ("minimum", np.inf)}
# From how many values on a line is cut into pieces of so many, where there are fewer lines than threads.
PIECE, FEW = 1024, 4096


@accelerate(*UFUNCS)
def scanned(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """Lines of float32, whatever floats they are stored as."""
    x, name, axis = dense(values[0], compute), UFUNCS[op.name], option(op, static, "axis")
    if x is None:
        return NotImplemented
    if axis is None and name in FLATTENING:
        x, axis = x.reshape(-1), 0
    if not fits(axis, x.ndim):
        return NotImplemented
    axis %= x.ndim
    result = along(name, lines(x, axis)).reshape(x.shape)
    if OBSERVERS:
        launched("scan", x.size)
    if not static.get("include_initial"):
        return result
    first = library().full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), float(name == "multiply"), float32)
    return library().concatenate([first, result], axis=axis)


@accelerate("extremum_so_far")
def extremum_so_far(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """Positions, by one kernel."""
    x, axis = dense(values[0], compute), option(op, static, "axis")
    if x is None or not fits(axis, x.ndim):
        return NotImplemented
    places = empty(x.shape, np.int64)
    first_extrema(option(op, static, "largest"), lines(x, axis % x.ndim), lines(places, axis % x.ndim))
    if OBSERVERS:
        launched("scan", x.size)
    return places


@accelerate("linear_recurrence")
def linear_recurrence(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """One kernel, whose lines can't be cut into pieces without other roundings."""
    (a, b), axis = [dense(x, compute) for x in values], option(op, static, "axis")
    if a is None or b is None or a.shape != b.shape or not fits(axis, a.ndim):
        return NotImplemented
    result = empty(a.shape, float32)
    recurrence(*[lines(x, axis % a.ndim) for x in (a, b, result)])
    if OBSERVERS:
        launched("scan", a.size)
    return result


def option(op: Op, static: dict[str, Any], name: str) -> Any:
    """A static argument, or its default."""
    return static.get(name, op.defaults.get(name))


def dense(x: Any, compute: Any) -> Any:
    """A stored operand as float32; None for what is none, or is computed in another dtype."""
    if compute != float32:
        return None
    if x.__class__ is QTensor:
        return x.dequantize()
    if not (SIMULATED or on_gpu(x)) or x.dtype.kind in "biu":
        return None
    return converted(x, float32)


def fits(axis: Any, ndim: int) -> bool:
    """Whether there is such an axis."""
    whole = isinstance(axis, int | np.integer) and not isinstance(axis, bool)
    return whole and bool(-ndim <= axis < ndim)


def lines(x: Any, axis: int) -> Any:
    """(before, n, after) of an axis, contiguous."""
    shape = x.shape
    whole = contiguous(x)
    return whole.reshape(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))


def along(name: str, x: Any) -> Any:
    """The running sums, products or extrema of lines (before, n, after)."""
    before, count, after = x.shape
    if count > PIECE and before * after < FEW and name in JOINED:
        return in_pieces(name, x)
    result = empty(x.shape, float32)
    running(name, x, result)
    return result


def in_pieces(name: str, x: Any) -> Any:
    """The same by pieces of lines, to each of which what came before it is added."""
    joined, neutral = JOINED[name]
    before, count, after = x.shape
    pieces = -(-count // PIECE)
    whole = library().full((before, pieces * PIECE, after), neutral, float32)
    whole[:, :count] = x
    inner = along(name, whole.reshape(before * pieces, PIECE, after)).reshape(before, pieces, PIECE, after)
    totals = along(name, contiguous(inner[:, :-1, -1]))
    inner[:, 1:] = raw_on_device(REGISTRY[joined], inner[:, 1:], totals[:, :, None])
    return inner.reshape(whole.shape)[:, :count]
