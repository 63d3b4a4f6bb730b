"""Clocks: seconds of device work by CUDA events, or host seconds where no device is at hand."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np

Functions = Sequence[Callable[[], object]]
MOST_CALLS = 64  # calls between two events: the queue of launches holds about a thousand
WARM_UP = 3  # calls of each before: a captured step records itself in its second one
LEAST = 1e-3  # seconds between two events, where calls are short


class DeviceClock:
    """CUDA events on the stream that CuPy and torch share by default.

    Work of known length goes before the first event, so that the host has put everything into the queue
    before the device gets there: what is measured is the device's time, however slow the host.
    """

    def __init__(self, size: int) -> None:
        import cupy

        self.cupy = cupy
        self.source, self.target = _random(cupy, size), cupy.empty(size, cupy.uint8)
        self.events = [cupy.cuda.Event() for _ in range(2)]
        self.copy_seconds = 0.0
        self.copy_seconds = self.copy_time()

    def synchronize(self) -> None:
        """Wait for the device."""
        self.cupy.cuda.runtime.deviceSynchronize()

    def copy(self) -> None:
        """One copy from device memory to device memory."""
        self.target.data.copy_from_device_async(
            self.source.data, self.source.nbytes, self.cupy.cuda.get_current_stream()
        )

    def copy_time(self, rounds: int = 21) -> float:
        """Seconds of the copy: the median of some rounds."""
        for _ in range(3):
            self.copy()
        samples = sorted(self.sample([self.copy], 4, 0.0) for _ in range(rounds))
        return samples[rounds // 2]

    def copy_rate(self) -> float:
        """Bytes a second that the copy moves, read and written ones."""
        return 2 * self.source.nbytes / self.copy_seconds

    def sample(self, functions: Functions, calls: int, host: float) -> float:
        """Seconds a call of the device, over so many calls that take turns among the functions."""
        start, end = self.events
        ahead = math.ceil(1.5 * host * calls / self.copy_seconds) if self.copy_seconds else 0
        for _ in range(1 + ahead):
            self.copy()
        start.record()
        for function in islice(cycle(functions), calls):
            function()
        end.record()
        end.synchronize()
        return self.cupy.cuda.get_elapsed_time(start, end) * 1e-3 / calls


def _random(cupy: Any, size: int) -> Any:
    """Random bytes on the device, without a kernel: a random part, over and over."""
    part = np.random.default_rng(0).integers(0, 256, min(size, 1 << 26), dtype=np.uint8)
    made = cupy.empty(size, cupy.uint8)
    for start in range(0, size, part.size):
        made[start : start + part.size].set(part[: size - start])
    return made


class HostClock:
    """Stands where there is no device, to try the sections out; its figures mean nothing."""

    def __init__(self, size: int) -> None:
        self.size = size

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def copy_rate(self) -> float:
        """A number that says at once that it isn't measured."""
        return 1e9

    def sample(self, functions: Functions, calls: int, host: float) -> float:
        """Host seconds a call."""
        return host_seconds(functions, calls)


def host_seconds(functions: Functions, calls: int) -> float:
    """Host seconds a call, over so many calls that take turns among the functions; nothing is waited for."""
    started = time.perf_counter()
    for function in islice(cycle(functions), calls):
        function()
    return (time.perf_counter() - started) / calls


def calls_for(clock: Any, functions: Functions) -> tuple[int, float]:
    """How many calls go between two events, and what one costs the host; warms up on the way."""
    for function in functions:
        for _ in range(WARM_UP):
            function()
    clock.synchronize()
    host = host_seconds(functions, max(2, min(len(functions), 8)))
    clock.synchronize()
    device = clock.sample(functions, max(2, min(len(functions), 8)), host)
    return max(1, min(MOST_CALLS, math.ceil(LEAST / max(device, 1e-9)))), host
