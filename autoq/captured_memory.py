"""Memory of captured steps: what the graph keeps, and what the host writes into it before each replay."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np

SLOTS = 8  # steps that the host may be ahead of the device
FROM_HOST, ON_DEVICE = 1, 3  # cudaMemcpyKind


class Uploads:
    """Pinned memory for the host's values of several steps: none is overwritten before it was read."""

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.turn = cupy, 0
        self.slots: list[dict[int, Any]] = [{} for _ in range(SLOTS)]
        self.events = [cupy.cuda.Event(disable_timing=True) for _ in range(SLOTS)]

    @contextmanager
    def slot(self) -> Any:
        """The function that copies host bytes to where a device array begins, within one step."""
        number = self.turn = (self.turn + 1) % SLOTS
        held, event = self.slots[number], self.events[number]
        if held:
            event.synchronize()  # the copies of the step that had this slot are over
        stream = self.cupy.cuda.get_current_stream()

        def upload(device: Any, host: np.ndarray) -> None:
            key, size = len(used), host.nbytes
            if key not in held:
                memory = self.cupy.cuda.alloc_pinned_memory(size)
                pinned = np.frombuffer(memory, np.uint8, size)
                held[key] = pinned, pinned.ctypes.data
            used.append(key)
            pinned, address = held[key]
            pinned[...] = host
            self.cupy.cuda.runtime.memcpyAsync(device.data.ptr, address, size, FROM_HOST, stream.ptr)

        used: list[int] = []
        yield upload
        if used:
            event.record(stream)


def put(cupy: Any, target: Any, source: Any) -> None:
    """Copy a device array to another of the same shape and dtype on the current stream.

    Contiguous ones by one call of CUDA: CuPy's own takes the host several times as long.
    """
    if target.flags.c_contiguous and source.flags.c_contiguous:
        stream = cupy.cuda.get_current_stream().ptr
        cupy.cuda.runtime.memcpyAsync(target.data.ptr, source.data.ptr, target.nbytes, ON_DEVICE, stream)
    else:
        cupy.copyto(target, source)


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
