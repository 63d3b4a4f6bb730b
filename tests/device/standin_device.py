"""The device that the stand-in has: where new arrays go, what is left of its memory, and who reads it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

READS: Counter[str] = Counter()
SETTINGS = {"forbid": False, "limit": None, "device": 0, "flush": True}


class ReadOfDevice(RuntimeError):
    """A value was read back where a test forbids it."""


class OutOfMemoryError(MemoryError):
    """CuPy's error of that name."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).")


def read(how: str) -> None:
    """Note that a value came to the host, by ``get``, ``item``, ``bool`` and the like."""
    READS[how] += 1
    if SETTINGS["forbid"]:
        raise ReadOfDevice(f"{how}() of an array on the device")


@contextlib.contextmanager
def no_reads() -> Iterator[None]:
    """A block in which every read of a value from the device is an error."""
    SETTINGS["forbid"] = True
    try:
        yield
    finally:
        SETTINGS["forbid"] = False


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """A block in which arrays of more bytes than ``size`` are out of memory."""
    SETTINGS["limit"] = size
    try:
        yield
    finally:
        SETTINGS["limit"] = None


@contextlib.contextmanager
def on_device(index: int) -> Iterator[None]:
    """A block in which new arrays are made on a device."""
    previous, SETTINGS["device"] = SETTINGS["device"], index
    try:
        yield
    finally:
        SETTINGS["device"] = previous


def current_device() -> int:
    """The device that new arrays are made on."""
    return int(SETTINGS["device"])


class Memory:
    """Where an array lies."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.ptr = array.__array_interface__["data"][0]

    @property
    def mem(self) -> Any:
        """The allocation."""
        return self


class Flags:
    """The flags that CuPy's arrays have: no ``writeable`` among them."""

    def __init__(self, flags: Any) -> None:
        self.c_contiguous, self.f_contiguous, self.owndata = (
            flags.c_contiguous,
            flags.f_contiguous,
            flags.owndata,
        )

    @property
    def forc(self) -> bool:
        """Contiguous in one of the two orders."""
        return bool(self.c_contiguous or self.f_contiguous)


class Device:
    """What stands for ``cupy.cuda.Device``."""

    compute_capability = "90"

    def __init__(self, device: Any = None) -> None:
        self.id = current_device() if device is None else int(device)
        self._entered: list[Any] = []

    def __enter__(self) -> Device:
        self._entered.append(on_device(self.id))
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(None, None, None)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def use(self) -> None:
        SETTINGS["device"] = self.id

    def synchronize(self) -> None:
        read("synchronize")


class Capsule:
    """An array handed over by DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array
