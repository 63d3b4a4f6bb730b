"""What stands for CuPy's memory where there is no device: arrays with addresses; allocations are counted."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np


class DeviceArray(np.ndarray):
    """A NumPy array that gives its address as CuPy's do."""

    memory: Any = None

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.__array_interface__["data"][0])


class Block:
    """An allocation, at a multiple of 512 bytes as CuPy's are."""

    def __init__(self, size: int) -> None:
        raw = np.zeros(size + 512, np.uint8)
        start = -raw.__array_interface__["data"][0] % 512
        self.bytes = raw[start : start + size]


class Pointer:
    """What ``cupy.cuda.alloc`` returns, and a place further on in the same memory."""

    def __init__(self, block: Block, offset: int = 0) -> None:
        self.block, self.offset = block, offset
        self.ptr = block.bytes.__array_interface__["data"][0] + offset

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.block, self.offset + offset)


class Library:
    """The functions of CuPy that make arrays.

    Attributes:
        blocks: The allocations, as weak references: which are freed can be seen.
        arrays: How many arrays were made.
    """

    def __init__(self) -> None:
        self.blocks: list[Any] = []
        self.arrays = 0

    def alloc(self, size: int) -> Pointer:
        block = Block(size)
        self.blocks.append(weakref.ref(block))
        return Pointer(block)

    def array(self, shape: Any, dtype: Any, memory: Pointer | None = None) -> DeviceArray:
        self.arrays += 1
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory = memory or self.alloc(size)
        part = memory.block.bytes[memory.offset : memory.offset + size]
        assert len(part) == size, "an array beyond its allocation"
        made = part.view(dtype).reshape(shape).view(DeviceArray)
        made.memory = memory
        return made

    def zeros(self, shape: Any, dtype: Any) -> DeviceArray:
        made = self.array(shape, dtype)
        made[...] = 0
        return made

    @property
    def names(self) -> dict[str, Any]:
        """As ``Driver.put`` takes them."""
        return {"ndarray": self.array, "zeros": self.zeros, "cuda": {"alloc": self.alloc}}

    @property
    def alive(self) -> int:
        """Allocations that something still holds."""
        return sum(block() is not None for block in self.blocks)
