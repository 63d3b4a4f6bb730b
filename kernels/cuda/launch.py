"""Launching kernels: a factory and its parameters to a loaded function, once a device.

CuPy loads the PTX, the driver launches it on CuPy's current stream; under ``NUMBA_ENABLE_CUDASIM=1`` Numba's
simulator runs the Python function on NumPy arrays, which then stand for device arrays everywhere below.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, wraps
from importlib import import_module
from typing import Any

import numpy as np

from ...errors import DeviceError
from .compile import Source, compile_ptx, for_driver, numba_cuda, ptx_of
from .intrinsics import simulated
from .parameters import Parameters, misfit

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
OLDEST = (8, 0)
MOST_BLOCKS = (1 << 31) - 1

# Launches of this process: tests and benchmarks count them.
launches = 0


def library() -> Any:
    """The library of device arrays: CuPy, or NumPy under the simulator."""
    return np if SIMULATED else _cupy()


def _cupy() -> Any:
    # Quicker than an import statement, which every launch would go through.
    return sys.modules.get("cupy") or import_module("cupy")


def empty(shape: Any, dtype: Any) -> Any:
    """A device array that nothing has written yet, from CuPy's pool."""
    return library().ndarray(shape, dtype)  # what CuPy's empty calls too


def kernel(factory: Callable[..., tuple[Any, ...]]) -> Callable[..., Kernel]:
    """Make a factory of kernels return them ready for launching, the same one for the same parameters.

    The factory returns a Python function in the dialect of README.md and the types of its parameters:
    ``"float32*"`` is a pointer to device memory, ``"int64"`` a number; a third result is the most threads a
    block that it is launched with. Its own parameters are hashable and their ``repr`` says all that the code
    depends on. Outside of autoq the factory's own code does so too: what else it calls is part of autoq, or
    else defined within it.
    """
    origin = f"{factory.__module__}.{factory.__qualname__}{_own_code(factory)}"

    @cache
    def made(*parameters: Any) -> Kernel:
        function, signature, *threads = factory(*parameters)
        return Kernel(Source(factory.__name__, function, signature, f"{origin}{parameters!r}", *threads))

    return wraps(factory)(made)


def _own_code(factory: Callable[..., Any]) -> str:
    """What a factory outside of autoq does, as text: the cache of PTX knows the sources of autoq alone."""
    if factory.__module__.startswith("autoq."):
        return ""

    def parts(code: Any) -> list[Any]:
        constants = [parts(each) if hasattr(each, "co_code") else each for each in code.co_consts]
        return [code.co_code.hex(), code.co_names, code.co_varnames, constants]

    return repr(parts(factory.__code__))


class Kernel:
    """A kernel: called with blocks, threads a block and arguments, it launches and returns at once.

    Arguments are device arrays, whose first element's address is passed, None for no array, and numbers.
    Strides, lengths and alignment are the caller's business.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._functions: dict[int, Any] = {}
        self._entries: dict[int, int] = {}
        self._parameters = Parameters(source.signature)
        self._pack, self._pointers = self._parameters.pack, self._parameters.pointers
        self._free = self._parameters.free

    def __call__(self, blocks: int, threads: int, *arguments: Any, shared: int = 0) -> None:
        """Launch on the current device and stream, ``shared`` bytes of dynamic shared memory a block."""
        global launches
        if SIMULATED:
            self._check(blocks)
            launches += 1
            simulate(self.source.function, blocks, threads, arguments, shared)
            return
        values = list(arguments)
        try:
            for i in self._pointers:
                array = values[i]
                values[i] = 0 if array is None else array.data.ptr
        except (AttributeError, IndexError):
            raise misfit(self.source, arguments) from None
        self.start(blocks, threads, values, shared)

    def start(self, blocks: int, threads: int, values: Sequence[Any], shared: int = 0) -> None:
        """The same by all parameters in order, arrays as the addresses of their first elements."""
        global launches
        if not 0 < blocks <= MOST_BLOCKS:
            self._check(blocks)
        launches += 1
        driver = _driver
        device = driver.device()
        entry = self._entries.get(device)
        if entry is None:
            entry = self._load(device)
        if device not in _thread.ready:
            make_ready(device)
        try:
            room = self._free.pop()
        except IndexError:
            room = self._parameters.room()
        try:
            self._pack(room[0], 0, *values)
        except (struct.error, TypeError):
            raise misfit(self.source, values) from None
        driver.launch(entry, blocks, 1, 1, threads, 1, 1, shared, driver.stream(device).ptr, room[1], 0)
        self._free.append(room)

    def _check(self, blocks: int) -> None:
        if not 0 < blocks <= MOST_BLOCKS:
            raise DeviceError(
                f"{self.source.name}: {blocks} blocks.", f"1 to {MOST_BLOCKS}", "Walk the grid in a loop."
            )

    def _load(self, device: int) -> int:
        """The address of the kernel on the current device.

        Of two threads that load it at once, the first one's stays: what nobody holds is unloaded.
        """
        entry: int = self._functions.setdefault(device, load(self.source)).ptr
        self._entries[device] = entry
        return entry


class _Driver:
    """CuPy's functions that a launch calls, found once: attributes of modules take their time."""

    def __init__(self) -> None:
        self.device: Any = current_device
        self.launch: Any = None
        self.stream: Any = None


class _Thread(threading.local):
    """The devices that a thread has launched on."""

    def __init__(self) -> None:
        self.ready: set[int] = set()


_thread = _Thread()


def make_ready(device: int) -> None:
    """Give the thread the device's context, without which the driver launches nothing.

    CuPy does so before its own launches, and by the same call: the runtime's functions make the context.
    """
    cuda = _cupy().cuda
    cuda.runtime.memGetInfo()
    _driver.launch, _driver.stream = cuda.driver.launchKernel, cuda.get_current_stream
    _driver.device = cuda.runtime.getDevice
    _thread.ready.add(device)


def load(source: Source) -> Any:
    """The kernel as a CuPy function of the current device; PTX that it refuses is compiled once more."""
    import cupy

    capability = device_capability(current_device())
    driver = cupy.cuda.runtime.driverGetVersion()
    try:
        return _loaded(ptx_of(source, capability), driver)
    except cupy.cuda.driver.CUDADriverError:
        return _loaded(compile_ptx(source, capability), driver)


def _loaded(ptx: str, driver: int) -> Any:
    import cupy

    from .compile import ENTRY

    module = cupy.cuda.function.Module()
    module.load(for_driver(ptx, driver).encode() + b"\0")
    return module.get_function(ENTRY)


def current_device() -> int:
    """The number of the current device."""
    device: int = _cupy().cuda.runtime.getDevice()
    return device


_driver = _Driver()


@cache
def device_capability(device: int) -> tuple[int, int]:
    """The compute capability of a device.

    Raises:
        DeviceError: It is older than what the kernels are written for.
    """
    import cupy

    text = cupy.cuda.Device(device).compute_capability
    found = int(text[:-1]), int(text[-1])
    if found < OLDEST:
        raise DeviceError(
            f"device {device} has compute capability {found[0]}.{found[1]}.",
            f"{OLDEST[0]}.{OLDEST[1]} or newer",
            'Choose a newer device, or work on device="cpu".',
        )
    return found


def processors() -> int:
    """How many multiprocessors the current device has."""
    return 2 if SIMULATED else _processors(current_device())


@cache
def _processors(device: int) -> int:
    import cupy

    return int(cupy.cuda.Device(device).attributes["MultiProcessorCount"])


def grid(items: int, threads: int, waves: int = 0) -> int:
    """Blocks for so many items, one a thread; at most ``waves`` blocks a multiprocessor where it is given.

    A kernel launched with fewer threads than items walks them in a grid-stride loop.
    """
    blocks = -(-items // threads)
    return max(1, min(blocks, waves * processors()) if waves else blocks)


class _Running:
    """``numba.cuda`` as the simulated kernel sees it, for its functions in other modules too."""

    def __getattr__(self, name: str) -> Any:
        return getattr(simulated(), name)


_RUNNING = _Running()


def simulate(
    function: Callable[..., Any], blocks: int, threads: int, arguments: tuple[Any, ...], shared: int
) -> None:
    """Run a kernel in Numba's simulator, one Python thread a CUDA thread."""
    cuda = numba_cuda(_RUNNING)
    cuda.jit(function)[blocks, threads, 0, shared](*[_flat(argument) for argument in arguments])


def _flat(argument: Any) -> Any:
    """What stands for a pointer in the simulator: the memory from the first element on, as one axis."""
    if not isinstance(argument, np.ndarray):
        return argument
    if argument.flags.c_contiguous:
        return argument.reshape(-1)
    base = argument
    while base.base is not None and isinstance(base.base, np.ndarray):
        base = base.base
    whole = base.reshape(-1).view(argument.dtype)
    start = argument.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    start //= argument.itemsize
    turned = any(step < 0 and n > 1 for step, n in zip(argument.strides, argument.shape, strict=True))
    return _Memory(whole, start) if turned else whole[start:]


class _Memory:
    """Memory around a first element: a pointer to it, of an array with steps back."""

    def __init__(self, whole: np.ndarray, start: int) -> None:
        self.whole, self.start = whole, start

    def _place(self, index: Any) -> int:
        place = self.start + int(index)
        if not 0 <= place < len(self.whole):  # where NumPy would count from the end
            raise IndexError(f"value {index} from a first one at {self.start} of {len(self.whole)}")
        return place

    def __getitem__(self, index: Any) -> Any:
        return self.whole[self._place(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.whole[self._place(index)] = value
