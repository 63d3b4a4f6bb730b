"""Threads of a simulated block that take turns, in an order that is the same in every run.

Numba's simulator starts a Python thread a CUDA thread and asks all of them in a loop whether they wait: most
of its time goes into that. Here one runs at a time, until it waits at a barrier or ends, and one that ends
goes on as another of its block: without barriers no thread is started at all. They begin, and go on after
each barrier, in an order drawn anew, so that a barrier which is missing shows: some thread reads what another
has not written yet, or has already overwritten.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cuda.simulator.kernel import BlockManager
from numba.cuda.simulator.kernelapi import Dim3, FakeCUDAShared

# Threads that have nothing to do.
_idle: list[_Runner] = []
_numbas_array = FakeCUDAShared.array


def install() -> None:
    """Let the simulator of this process run blocks by turns."""
    BlockManager.run = run
    FakeCUDAShared.array = shared_array


def run(manager: Any, place: tuple[int, ...], *arguments: Any) -> None:
    """What ``BlockManager.run`` does: all threads of the block at ``place`` of the grid."""
    _Block(manager._f, arguments, place, manager._block_dim).run()


def shared_array(memory: Any, shape: Any, dtype: Any) -> Any:
    """What ``FakeCUDAShared.array`` does, one array a line of code, without reading every caller's source."""
    if shape == 0:  # that of the launch
        return _numbas_array(memory, shape, dtype)
    caller = sys._getframe(1)
    line = caller.f_code, caller.f_lineno
    if line not in memory._allocations:
        memory._allocations[line] = np.empty(shape, dtype)
    return memory._allocations[line]


class _Block:
    """A block: the threads that have not started, that may go on, and that wait at a barrier."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        place: tuple[int, ...],
        shape: tuple[int, ...],
    ) -> None:
        self.function, self.arguments, self.place = function, arguments, Dim3(*place)
        self.order = random.Random(0)
        self.new = [*np.ndindex(*shape)]
        self.order.shuffle(self.new)
        self.ready: list[_Runner] = []
        self.waiting: list[_Runner] = []
        self.error: BaseException | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        self.pass_on()
        self.ended.wait()
        if self.error is not None:
            raise self.error

    def pass_on(self) -> None:
        """Give the turn to another thread. Where all wait the barrier is passed, as it is after an error."""
        if self.error is not None:
            self.new.clear()
        if not self.ready and not self.new:
            self.ready, self.waiting = self.waiting, []
            self.order.shuffle(self.ready)
        if self.ready:
            self.ready.pop().turn.release()
        elif self.new:
            runner = _idle.pop() if _idle else _Runner()
            runner.block = self
            runner.turn.release()
        else:
            self.ended.set()


class _Runner(threading.Thread):
    """A Python thread that is CUDA threads one after another: the simulator asks it which one it is."""

    block: _Block

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.turn = threading.Lock()  # whoever gives the turn releases it
        self.turn.acquire()
        self.start()

    def run(self) -> None:
        while True:
            self.turn.acquire()
            block = self.block
            while block.new:
                self._be(block.new.pop())
            _idle.append(self)
            block.pass_on()

    def _be(self, place: tuple[int, ...]) -> None:
        self.threadIdx, self.blockIdx = Dim3(*place), self.block.place
        try:
            self.block.function(*self.block.arguments)
        except BaseException as error:
            error.add_note(f"in thread {place} of block {tuple(self.blockIdx)}")
            self.block.error = self.block.error or error
            self.block.new.clear()

    def syncthreads(self) -> None:
        """Wait until all threads of the block wait, but those that have ended."""
        self.block.waiting.append(self)
        self.block.pass_on()
        self.turn.acquire()
        if self.block.error is not None:
            raise RuntimeError("another thread of the block failed")
