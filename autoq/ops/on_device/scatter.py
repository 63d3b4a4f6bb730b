"""Values added to entries by position on GPUs, in the order in which they come.

Positions on a GPU are not read back: they count modulo the axis, whatever they are.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from autoq.context import OBSERVERS, launched
from autoq.devices import beside
from autoq.kernels.cuda.launch import library
from autoq.kernels.cuda.scatter import add_at, add_rows
from autoq.storage.inputs import contiguous
from autoq.tape.accelerated import accelerate
from autoq.tape.op import Op
from autoq.types import float32


@accelerate("scatter_add")
def scatter_add(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """Rows added up by number: what looking rows up passes back."""
    x, shape, indices = values[0], tuple(static["shape"]), static["indices"]
    axis = static["axis"] % len(shape)
    expected = (*shape[:axis], *np.shape(indices), *shape[axis + 1 :])
    if x.dtype != float32 or compute != float32 or x.shape != expected or not x.size:
        return NotImplemented
    if isinstance(indices, np.ndarray | list) and not _within(np.asarray(indices), shape[axis]):
        return NotImplemented
    before, after = prod(shape[:axis]), prod(shape[axis + 1 :])
    rows = beside(indices, x).reshape(-1)
    made = library().zeros((before, shape[axis], after), float32)
    add_rows(made, rows, contiguous(x).reshape(before, -1, after))
    if OBSERVERS:
        launched("add_rows", x.size)
    return made.reshape(shape)


@accelerate("scatter_add_along_axis")
def scatter_add_along_axis(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """Entries added up by their places along an axis."""
    x, shape, indices = values[0], tuple(static["shape"]), static["indices"]
    if x.dtype != float32 or compute != float32 or not x.size:
        return NotImplemented
    axis, xp = static["axis"] % len(shape), library()
    places = beside(indices, x) % shape[axis] * prod(shape[axis + 1 :])
    for other, n in enumerate(shape):
        if other != axis:
            along = (1,) * other + (n,) + (1,) * (len(shape) - other - 1)
            places = places + (xp.arange(n) * prod(shape[other + 1 :])).reshape(along)
    if x.shape != places.shape:
        return NotImplemented
    made = xp.zeros(prod(shape), float32)
    add_at(made, places, contiguous(x))
    if OBSERVERS:
        launched("add_rows", x.size)
    return made.reshape(shape)


def _within(indices: Any, extent: int) -> bool:
    """Whether positions on the host are positions of the axis."""
    return not indices.size or bool(-extent <= indices.min() <= indices.max() < extent)
