"""Memory of captured steps: what the graph keeps, and what the host writes into it before each replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autoq.devices import SEVERAL
from autoq.storage import QTensor

STEPS = 8  # steps a half of the pinned memory is for: the host may be as many ahead of the device, or twice
FROM_HOST, ON_DEVICE = 1, 3  # cudaMemcpyKind


class Uploads:
    """Pinned memory for the host's values of several steps: none is overwritten before it was read.

    It has two halves of ``STEPS`` steps. One event tells that all copies from a half are over, which is
    asked for before the half is written again.

    Args:
        cupy: The library.
        parts: Device bytes, and the host's that are copied there in each step.
    """

    def __init__(self, cupy: Any, parts: list[tuple[Any, np.ndarray]]) -> None:
        self.turn = 0
        self.events = [cupy.cuda.Event(disable_timing=True) for _ in range(2)]
        self._copy = cupy.cuda.runtime.memcpyAsync
        self._parts = [
            (device.data.ptr, host, [(row, row.ctypes.data) for row in _pinned(cupy, host.nbytes)])
            for device, host in parts
        ]

    def start(self, stream: Any) -> None:
        """Copy what the host's bytes are now, on a stream that waits for the one of the step before."""
        if not self._parts:
            return
        half, step = divmod(self.turn, STEPS)
        if step == 0:
            self.events[half].synchronize()
        for target, host, rows in self._parts:
            pinned, address = rows[self.turn]
            pinned[...] = host
            self._copy(target, address, host.nbytes, FROM_HOST, stream.ptr)
        if step == STEPS - 1:
            self.events[half].record(stream)
        self.turn = (self.turn + 1) % (2 * STEPS)


def _pinned(cupy: Any, size: int) -> np.ndarray:
    """So many bytes of pinned memory for each step of both halves, uint8 (2 * STEPS, size)."""
    count = 2 * STEPS * size
    return np.frombuffer(cupy.cuda.alloc_pinned_memory(count), np.uint8, count).reshape(2 * STEPS, size)


def put(cupy: Any, target: Any, source: Any) -> None:
    """Copy a device array to another of the same shape and dtype on the current stream.

    Contiguous ones by one call of CUDA: CuPy's own takes the host several times as long.
    """
    if target.flags.c_contiguous and source.flags.c_contiguous:
        stream = cupy.cuda.get_current_stream().ptr
        cupy.cuda.runtime.memcpyAsync(target.data.ptr, source.data.ptr, target.nbytes, ON_DEVICE, stream)
    else:
        cupy.copyto(target, source)


def copied(cupy: Any, source: Any) -> Any:
    """A device array with the values of another, made on the current stream."""
    if not source.flags.c_contiguous:
        return source.copy()
    made, stream = cupy.ndarray(source.shape, source.dtype), cupy.cuda.get_current_stream().ptr
    cupy.cuda.runtime.memcpyAsync(made.data.ptr, source.data.ptr, made.nbytes, ON_DEVICE, stream)
    return made


def taker(cupy: Any, target: Any) -> Callable[[Any], bool]:
    """A function that copies a value to ``target`` if both lie alike in the memory of one device.

    It looks at nothing else and returns False for any other value, of which nothing counts as copied.

    Args:
        cupy: The library.
        target: A device array or a QTensor of some, contiguous; for others nothing is taken.
    """
    if type(target) is QTensor:
        return _packed_taker(cupy, target)
    if not target.flags.c_contiguous:
        return nothing_taken
    kind, strides, shape, dtype = target.__class__, target.strides, target.shape, target.dtype
    address, size, device = target.data.ptr, target.nbytes, target.device.id
    copy, current = cupy.cuda.runtime.memcpyAsync, cupy.cuda.get_current_stream

    def take(value: Any) -> bool:
        if value.__class__ is not kind or value.shape != shape or value.strides != strides:
            return False
        if value.dtype != dtype or (SEVERAL and value.device.id != device):
            return False
        copy(address, value.data.ptr, size, ON_DEVICE, current().ptr)
        return True

    return take


def nothing_taken(value: Any) -> bool:
    """The taker of what isn't copied, or not by one call: it takes nothing."""
    return False


def _packed_taker(cupy: Any, target: QTensor) -> Callable[[Any], bool]:
    scheme, shape, layout = target.scheme, target.shape, target.layout
    words, scales = taker(cupy, target.words), taker(cupy, target.scales)
    level = nothing_taken if target.tensor_scale is None else taker(cupy, target.tensor_scale)

    def take(value: Any) -> bool:
        if value.__class__ is not QTensor or value.scheme is not scheme or value.shape != shape:
            return False
        if value.layout is not layout and value.layout != layout:
            return False
        both = words(value.words) and scales(value.scales)
        return both and (value.tensor_scale is None or level(value.tensor_scale))

    return take


def allocator(cupy: Any) -> Callable[[int], Any]:
    """What a graph's pool gets its memory from, which stays the graph's for as long as the pool is there.

    Short of memory, a pool frees what no array holds, and the graph works in that.
    """
    held: list[Any] = []

    def allocate(size: int) -> Any:
        held.append(cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0))
        return held[-1]

    return allocate


def room(cupy: Any, beside: Any, size: int) -> Any:
    """Bytes on the device that are written before each replay.

    A pool keeps the memory of each stream apart. What the captured stream gave back has been written to by
    an earlier part of the step, which would do so in each replay.
    """
    with beside:
        return cupy.empty(size, np.uint8)


def constant(cupy: Any, beside: Any, array: np.ndarray) -> Any:
    """A copy on the device that is made at once, by a stream that isn't captured."""
    with beside:
        made = cupy.empty(array.shape, array.dtype)
        made.set(np.asarray(array, order="C"), stream=beside)
        beside.synchronize()
    return made
