"""Recordings: what a step under capture asks of the graph that it becomes.

A graph repeats what the device did, with the same addresses and numbers. What the host computes anew for
each step, learning rates, counts of steps and the keys of random draws, lies in device arrays that are
written before each replay, all by one copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from autoq.errors import CaptureError

CHUNK = 1 << 14  # bytes of host values that are copied at once
ALIGNMENT = 16

# Recordings at work in any context. Empty nearly always: what code looks at before it asks for its own.
RECORDINGS: list[Recording] = []
_current: ContextVar[Recording | None] = ContextVar("autoq_recording", default=None)
_in_step: ContextVar[bool] = ContextVar("autoq_in_step", default=False)


class _Chunk(NamedTuple):
    """Host bytes, and the device bytes that they are copied to."""

    host: np.ndarray
    device: Any


class Recording:
    """One step while it is captured, and what is to be done before each replay.

    Args:
        empty: Makes a device array of so many bytes.
        constant: Copies a host array to the device at once, beside what is being captured.

    Attributes:
        chunks: What is copied before each replay.
        idle: Parameters that optimizers passed over, since they had no gradient.
    """

    def __init__(self, empty: Callable[[int], Any], constant: Callable[[np.ndarray], Any]) -> None:
        self._empty, self._constant = empty, constant
        self._actions: list[Callable[[], Any]] = []
        self._watched: list[tuple[Callable[[], Any], Any, Callable[[], CaptureError]]] = []
        self._undone: list[Callable[[], Any]] = []
        self._kept: list[Any] = []
        self.idle: list[Any] = []
        self._used = 0
        self.chunks: list[_Chunk] = []

    def follow(self, compute: Callable[[], Any]) -> Any:
        """A device array that holds what ``compute`` returns, computed now and again before each replay.

        Args:
            compute: Returns a small array or number, of one shape and dtype always; it may advance counters.

        Example:
            >>> steps = iter(range(1, 10))
            >>> recording = Recording(lambda size: np.empty(size, np.uint8), np.copy)
            >>> count = recording.follow(lambda: np.float32(next(steps)))
            >>> recording.advance()
            >>> for device, host in recording.parts():
            ...     device[: len(host)] = host
            >>> count
            array(2., dtype=float32)
        """
        first = np.asarray(compute())
        host, device = self._room(first.nbytes)
        held = host.view(first.dtype).reshape(first.shape)
        held[...] = first

        def again() -> None:
            held[...] = compute()

        self._actions.append(again)
        return device.view(first.dtype).reshape(first.shape)

    def each_time(self, function: Callable[[], Any]) -> None:
        """Call something now and before each replay, in the order in which it was asked for."""
        function()
        self._actions.append(function)

    def constant(self, array: np.ndarray) -> Any:
        """A device array with the values that a host array has now, the same ones in every replay."""
        made = self._constant(array)
        self._kept.append(made)
        return made

    def keep(self, *arrays: Any) -> None:
        """Keep arrays that the step reads, and nothing else may hold, alive as long as the graph."""
        self._kept.extend(arrays)

    def unchanged(self, name: str, get: Callable[[], Any]) -> None:
        """Refuse to replay once ``get`` returns another object than now: the graph has the old addresses."""
        self._watched.append((get, get(), lambda: replaced(name)))

    def require(self, holds: Callable[[], bool], error: Callable[[], CaptureError]) -> None:
        """Refuse to replay, with an error, once something doesn't hold any more."""
        self._watched.append((holds, True, error))

    def on_failure(self, function: Callable[[], Any]) -> None:
        """Call something if the capture fails: what Python counted wasn't computed then."""
        self._undone.append(function)

    def fail(self) -> None:
        """The capture failed: take back what Python counted, the last thing first."""
        for function in reversed(self._undone):
            function()

    def drawn(self, generator: Any, path: str, made_here: bool = False) -> CapturedDraw:
        """The next draw of a generator as a key on the device, which goes on with the generator.

        One that the step itself makes is made anew in each call, and draws the same then.
        """
        if made_here:
            return CapturedDraw(generator.seed, self.constant(key_of(generator.drawn(path))))
        return CapturedDraw(generator.seed, self.follow(lambda: key_of(generator.drawn(path))))

    def check(self) -> None:
        """Raise CaptureError if something that the graph depends on was replaced, or isn't so any more."""
        for get, expected, error in self._watched:
            if get() is not expected:
                raise error()

    def advance(self) -> None:
        """Compute the host's values of the next step."""
        for action in self._actions:
            action()

    def parts(self) -> list[tuple[Any, np.ndarray]]:
        """Where on the device the host's values go, and their bytes: of the last chunk what is in use."""
        found = [(chunk.device, chunk.host) for chunk in self.chunks[:-1]]
        return found + [(chunk.device, chunk.host[: self._used]) for chunk in self.chunks[-1:]]

    def _room(self, size: int) -> tuple[np.ndarray, Any]:
        """Parts of a chunk, on the host and on the device."""
        start = -(-self._used // ALIGNMENT) * ALIGNMENT
        if not self.chunks or start + size > len(self.chunks[-1].host):
            length = max(CHUNK, size)
            self.chunks.append(_Chunk(np.zeros(length, np.uint8), self._empty(length)))
            start = 0
        self._used = start + size
        host, device = self.chunks[-1]
        return host[start : start + size], device[start : start + size]


class CapturedDraw(tuple[int, int]):
    """What a draw is keyed by under capture: a uint32 (4,) device array, written before each replay.

    It stands where a ``Draw`` would, but gives no stream: as a number it would be the same in every replay.

    Attributes:
        seed: The generator's, for comparing draws.
        key: Low and high words of the seed, then of the stream.
    """

    seed: int
    key: Any

    def __new__(cls, seed: int, key: Any) -> CapturedDraw:
        made = super().__new__(cls, (seed, 0))
        made.seed, made.key = seed, key
        return made

    @property
    def stream(self) -> int:
        """Refused."""
        raise CaptureError(
            "random numbers made on the host in a captured step.",
            "dropout, stochastic rounding and draws on the device",
            "Draw outside of the step and pass the numbers as an argument.",
        )

    def __iter__(self) -> Any:
        return iter((self.seed, self.stream))


def key_of(draw: Any) -> np.ndarray:
    """The four words that key a draw, uint32 (4,).

    Example:
        >>> from autoq.random import Draw
        >>> key_of(Draw(seed=1 << 32, stream=5))
        array([0, 1, 5, 0], dtype=uint32)
    """
    low = 0xFFFFFFFF
    return np.array([draw.seed & low, draw.seed >> 32, draw.stream & low, draw.stream >> 32], np.uint32)


def key_for_kernel(draw: Any) -> Any:
    """What a kernel takes of a draw: the draw itself, or under capture its key on the device.

    Example:
        >>> from autoq.random import Draw
        >>> key_for_kernel(Draw(1, 2))
        Draw(seed=1, stream=2)
    """
    return draw.key if type(draw) is CapturedDraw else draw


def recording() -> Recording | None:
    """The recording in progress in this context, or None: nearly always.

    Example:
        >>> recording() is None
        True
    """
    return _current.get() if RECORDINGS else None


@contextmanager
def stepping() -> Iterator[None]:
    """Run a block, a call of a captured step that isn't recorded: one that warms up, or one on the CPU."""
    token = _in_step.set(True)
    try:
        yield
    finally:
        _in_step.reset(token)


def in_captured_step() -> bool:
    """Whether a captured step runs in this context, recorded or not: values that it returns are tensors.

    Example:
        >>> with stepping():
        ...     in_captured_step()
        True
    """
    return recording() is not None or _in_step.get()


@contextmanager
def recorded_by(made: Recording) -> Iterator[Recording]:
    """Run a block, a step under capture, with a recording."""
    RECORDINGS.append(made)
    token = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(token)
        RECORDINGS.remove(made)


def refuse_read(what: str) -> None:
    """Raise CaptureError where a step under capture reads a value back.

    Example:
        >>> refuse_read(".item()")  # no step is captured here
    """
    if recording() is None:
        return
    raise CaptureError(
        f"{what} in a captured step.",
        "operations whose results stay on the device",
        "Return the tensor from the step and read it outside: .item(), .numpy(), print and bool read values.",
    )


def replaced(name: str) -> CaptureError:
    """The error for something whose memory the graph has and that is elsewhere now."""
    return CaptureError(
        f"{name} was replaced since the step was captured.",
        "parameters, buffers and optimizer state that are changed in place",
        "Loading a state dict, .assign(...) or .to(...) does that: call .reset() on the captured step then.",
    )
