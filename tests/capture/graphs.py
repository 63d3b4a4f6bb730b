"""CUDA graphs of the stand-in: what is called on its arrays between begin and end is noted, and run again.

While a stream is captured nothing is computed for good: arrays that were there before get their contents
back at the end. A replay calls the noted functions on the same arrays and writes what they return to where
the first results lay. Reads of values, and copies from the host on the captured stream, are refused.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from autoq.storage import device
from tests.device import standin, standin_array, standin_device
from tests.device.standin_array import ndarray

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]
METHODS = (
    "astype",
    "copy",
    "__getitem__",
    "__setitem__",
    "fill",
    "scatter_add",
    "reshape",
    "flatten",
    "sort",
)
FUNCTIONS = ("array", "asarray", "ascontiguousarray")


class CUDARuntimeError(RuntimeError):
    """What CUDA answers where a captured stream can't do something."""


class _State:
    """The stream that is captured, the stream in use, and the allocator."""

    captured: Any = None
    streams: list[Any] = []
    allocator: Any = None
    depth = 0


class Graph:
    """The noted calls. As CuPy's class, this one takes no weak references."""

    __slots__ = ("calls", "launched", "own")

    def __init__(self, calls: list[Call], own: list[np.ndarray]) -> None:
        self.calls, self.own = calls, own
        self.launched = 0

    def launch(self, stream: Any = None) -> None:
        """Run the calls again; memory of the captured stream holds anything until they write there."""
        self.launched += 1
        for array in self.own:
            np.atleast_1d(array).view(np.uint8)[...] = 0xFF
        for function, args, kwargs, result in self.calls:
            for old, new in zip(_arrays(result), _arrays(function(*args, **kwargs)), strict=True):
                if _address(old._array) != _address(new._array):  # else it is a view, or was written in place
                    old._array[...] = new._array


class Stream:
    """A stream: work on it is done at once, unless it is captured."""

    count = 0

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        Stream.count += 1
        self.ptr = Stream.count
        self.calls: list[Call] = []
        self.before: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.made: dict[int, np.ndarray] = {}

    def __enter__(self) -> Stream:
        _State.streams.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        _State.streams.pop()

    def begin_capture(self, mode: Any = None) -> None:
        """Note calls from now on."""
        assert _State.captured is None
        _State.captured = self

    def end_capture(self) -> Graph:
        """The calls as a graph; what they did is taken back."""
        _State.captured = None
        for array, contents in self.before.values():
            array[...] = contents
        return Graph(self.calls, [array for array in self.made.values() if array.flags.c_contiguous])

    def synchronize(self) -> None:
        """Refused while the stream is captured."""
        if _State.captured is self:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported")

    def record(self, event: Any = None) -> Any:
        return event or Event()

    def wait_event(self, event: Any) -> None:
        """Everything is over already."""


class Event:
    """A point in a stream, which is always over."""

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.recorded = 0

    def record(self, stream: Any = None) -> None:
        self.recorded += 1

    def synchronize(self) -> None:
        """Nothing to wait for."""


class MemoryPool:
    """Counts what is taken from it; the memory is NumPy's."""

    def __init__(self, allocator: Any = None) -> None:
        self.taken = 0

    def malloc(self, size: int) -> Any:
        self.taken += size
        return SimpleNamespace(mem=SimpleNamespace(ptr=_State.address))


@contextlib.contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    """A block in which new arrays are announced to an allocator."""
    previous, _State.allocator = _State.allocator, allocator
    try:
        yield
    finally:
        _State.allocator = previous


def _arrays(value: Any) -> list[ndarray]:
    if isinstance(value, ndarray):
        return [value]
    if isinstance(value, tuple | list):
        return [x for v in value for x in _arrays(v)]
    if isinstance(value, dict):
        return [x for v in value.values() for x in _arrays(v)]
    rows = getattr(value, "rows", None)  # of a table of the optimizers' kernels
    return _arrays(rows) if isinstance(rows, dict) else []


def _root(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _address(array: np.ndarray) -> int:
    return int(_root(array).__array_interface__["data"][0])


def _recording() -> Any:
    """The captured stream, if that is the one in use."""
    stream = _State.streams[-1] if _State.streams else None
    return stream if stream is not None and stream is _State.captured else None


def _noted(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        stream = _recording()
        if stream is None or _State.depth:
            return function(*args, **kwargs)
        if function in HOST_COPIES and not _arrays(args):
            raise CUDARuntimeError("a copy from memory of the host that isn't kept")
        for array in _arrays((args, kwargs)):
            key = _address(array._array)
            if key not in stream.made and key not in stream.before:
                root = _root(array._array)
                stream.before[key] = (root, root.copy())
        _State.depth += 1
        try:
            with np.errstate(all="ignore"):  # what isn't uploaded yet is any number; nothing of it stays
                result = function(*args, **kwargs)
        finally:
            _State.depth -= 1
        for array in _arrays(result):
            if _address(array._array) not in stream.before:
                stream.made[_address(array._array)] = _root(array._array)
        if not (args and args[0] in (np.empty, np.empty_like)):  # nothing runs for those
            stream.calls.append((function, args, kwargs, result))
        return result

    return called


def _checked_set(function: Callable[..., Any]) -> Callable[..., Any]:
    """CuPy's conditions of ``set``, and its refusal on the captured stream."""

    def called(self: ndarray, array: np.ndarray, stream: Any = None) -> None:
        assert isinstance(array, np.ndarray)
        assert (array.shape, array.dtype) == (self.shape, self.dtype)
        assert self._array.flags.c_contiguous or self._array.flags.f_contiguous
        if (stream or _State.streams[-1]) is _State.captured:
            raise CUDARuntimeError("a copy from memory of the host that isn't kept")
        function(self, array)

    return called


def _keyed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that also takes the key of a draw on the device, which it reads when it runs."""

    def called(*args: Any, **kwargs: Any) -> Any:
        draw = kwargs.get("draw")
        if isinstance(draw, ndarray):
            low, high, stream_low, stream_high = (int(word) for word in draw._array)
            kwargs = {**kwargs, "draw": (low | high << 32, stream_low | stream_high << 32)}
        return function(*args, **kwargs)

    return called


HOST_COPIES: list[Any] = []


def _announced(made: ndarray) -> ndarray:
    """Tell the allocator in use of an array with memory of its own."""
    if _State.allocator is not None and made._array.base is None:
        _State.address = _address(made._array)
        _State.allocator(made._array.nbytes)
    return made


@contextlib.contextmanager
def allow_synchronize(allowed: bool) -> Iterator[None]:
    """A block in which reads of values are refused."""
    previous = standin_device.SETTINGS["forbid"]
    standin_device.SETTINGS["forbid"] = not allowed
    try:
        yield
    finally:
        standin_device.SETTINGS["forbid"] = previous


@cache
def install() -> None:
    """Give the stand-in streams, events, pools and graphs."""
    cupy = standin.namespace()
    sys.modules["cupyx"].allow_synchronize = allow_synchronize
    cuda = cupy.cuda
    cuda.Stream, cuda.Event, cuda.MemoryPool, cuda.using_allocator = (
        Stream,
        Event,
        MemoryPool,
        using_allocator,
    )
    cuda.runtime.CUDARuntimeError = standin_device.ReadOfDevice = CUDARuntimeError
    cuda.alloc_pinned_memory = lambda size: np.empty(size, np.uint8)
    _State.streams.append(Stream(null=True))
    cuda.get_current_stream = lambda: _State.streams[-1]
    standin_device.Memory.mem = property(lambda self: SimpleNamespace(ptr=_address(self._array)))
    new, view = ndarray.__new__, ndarray._view
    ndarray.__new__ = lambda cls, *args, **kwargs: _announced(new(cls, *args, **kwargs))
    ndarray._view = lambda self, array: _announced(view(self, array))
    standin.computed = standin_array.computed = _noted(standin_array.computed)
    ndarray.set = _checked_set(ndarray.set)
    for name in METHODS:
        setattr(ndarray, name, _noted(getattr(ndarray, name)))
    for name in FUNCTIONS:
        HOST_COPIES.append(getattr(cupy, name))
        setattr(cupy, name, _noted(getattr(cupy, name)))
    for name, module in list(sys.modules.items()):
        if name.startswith("autoq.kernels.cuda.") and module.__spec__ is None:
            for key, function in list(vars(module).items()):
                if callable(function) and not isinstance(function, type) and not key.startswith("_"):
                    setattr(module, key, _noted(_keyed(function)))
    device._kernel.cache_clear()  # storage may have looked kernels up before
