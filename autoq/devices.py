"""Devices: the only file that knows which array library a device stands for.

``"cpu"`` holds NumPy arrays; ``"cuda"`` (the first GPU, also ``"cuda:0"``) and ``"cuda:N"`` hold CuPy arrays.
CuPy is imported when a GPU is first asked for, never by ``import autoq``.
"""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from autoq.context import set_default, using
from autoq.errors import DeviceError, DeviceMemoryError, DTypeError
from autoq.gpu_checks import check_usable, import_cupy, index_of, name_of
from autoq.recording import RECORDINGS, recording, refuse_read

_usable: set[int] = set()
# GPUs in use beside the first: what is computed then has to choose one.
SEVERAL: set[int] = set()
# The class of CuPy's arrays, from when there can be any: empty where only the CPU is used.
LIBRARIES: list[Any] = []
_HERE = nullcontext()


def resolve(device: Any, default: str = "cpu") -> str:
    """The device's name, or the default for None; a GPU is checked the first time.

    Raises:
        DeviceError: The device is not offered, or can't be used on this computer.

    Example:
        >>> resolve(None), resolve("cpu")
        ('cpu', 'cpu')
    """
    name = default if device is None else device
    if name == "cpu":
        return "cpu"
    index = index_of(name)
    if index not in _usable:
        check_usable(index)
        _usable.add(index)
        _note_arrays()
    return _used(index)


def cuda(index: int = 0) -> str:
    """The name of a GPU, after a check that it can be used.

    Args:
        index: Which GPU, from 0.

    Raises:
        DeviceError: No CuPy, no GPU of that number, one that is too old, or no number.

    Example:
        >>> import autoq as aq
        >>> try:
        ...     device = aq.cuda()
        ... except aq.errors.DeviceError:
        ...     device = "cpu"
        >>> aq.tensor([1.0], device=device).shape
        (1,)
    """
    return resolve(name_of(index))


def default_device(device: str) -> AbstractContextManager[None]:
    """Make new tensors on a device in a block, in this thread or task alone (S46).

    Raises:
        DeviceError: The device can't be used.

    Example:
        >>> import autoq as aq
        >>> with aq.default_device("cpu"):
        ...     aq.zeros(2).device
        'cpu'
    """
    return using(device=resolve(device))


def set_default_device(device: str) -> None:
    """Make new tensors on a device in every thread and task that doesn't choose one itself.

    Raises:
        DeviceError: The device can't be used.

    Example:
        >>> import autoq as aq
        >>> aq.set_default_device("cpu")
    """
    set_default(device=resolve(device))


def available() -> list[str]:
    """The names of the devices that can be used on this computer, the CPU first.

    Example:
        >>> available()[0]
        'cpu'
    """
    names = ["cpu"]
    try:
        while True:
            names.append(resolve(f"cuda:{len(names) - 1}"))
    except DeviceError:
        return names


def _used(index: int) -> str:
    """The name of a GPU that holds something."""
    if index == 0:
        return "cuda"
    SEVERAL.add(index)
    return f"cuda:{index}"


def is_array(x: Any) -> bool:
    """Whether ``x`` is an array of NumPy or CuPy.

    Example:
        >>> is_array(np.zeros(2)), is_array([0.0, 0.0])
        (True, False)
    """
    return x.__class__ is np.ndarray or isinstance(x, np.ndarray) or on_gpu(x)


def on_gpu(x: Any) -> bool:
    """Whether ``x`` is a CuPy array.

    Example:
        >>> on_gpu(np.zeros(2))
        False
    """
    if x.__class__ is np.ndarray:
        return False
    if not LIBRARIES and not _note_arrays():
        return False
    return isinstance(x, LIBRARIES[0])


def _note_arrays() -> bool:
    """Note the class of CuPy's arrays once CuPy is imported: from then on there can be some."""
    found = getattr(sys.modules.get("cupy"), "ndarray", None)
    if found is not None and not LIBRARIES:
        LIBRARIES.append(found)
    return found is not None


def array_namespace(*arrays: Any) -> Any:
    """The library whose functions compute with these arrays: CuPy if one of them is CuPy's, else NumPy.

    Numbers, NumPy scalars and None have no say.

    Raises:
        DTypeError: Only other objects were given.

    Example:
        >>> array_namespace(np.zeros(2), 1.0) is np
        True
    """
    for array in arrays:
        if array.__class__ is np.ndarray:
            continue
        if on_gpu(array):
            return sys.modules["cupy"]
    if any(isinstance(array, np.ndarray | np.generic | int | float) for array in arrays):
        return np
    raise DTypeError(
        f"an array of type {type(arrays[0]).__name__}.",
        "numpy.ndarray, cupy.ndarray",
        "Convert it with numpy.asarray first.",
    )


def namespace_of(device: str) -> Any:
    """The array library of a device's name, of those that ``resolve`` returns.

    Example:
        >>> namespace_of("cpu") is np
        True
    """
    return np if device == "cpu" else import_cupy()


def device_of(array: Any) -> str:
    """The device that holds an array.

    Example:
        >>> device_of(np.zeros(3))
        'cpu'
    """
    if array.__class__ is np.ndarray:
        return "cpu"
    if on_gpu(array):
        return _used(array.device.id)
    array_namespace(array)  # refuses what is no array
    return "cpu"


def using_device(device: str) -> AbstractContextManager[Any]:
    """A block in which CuPy makes arrays and launches kernels on that device, of several.

    Example:
        >>> with using_device("cpu"):
        ...     np.zeros(2).shape
        (2,)
    """
    if device == "cpu" or not SEVERAL:
        return _HERE
    return import_cupy().cuda.Device(index_of(device))


def to_device(array: Any, device: str) -> Any:
    """The array on a device: itself where it is there, else a copy.

    Example:
        >>> x = np.zeros(2)
        >>> to_device(x, "cpu") is x
        True
    """
    if device_of(array) == device:
        return array
    if device == "cpu":
        return to_host(array)
    if RECORDINGS and not on_gpu(array):
        made = recording()
        if made is not None:
            return made.constant(array).copy()  # in the graph: each replay may change its own
    try:
        with using_device(device):
            if on_gpu(array):
                return array.copy()
            # With an axis: an array without one CuPy fills with the value, and with 0.0 for -0.0.
            made = import_cupy().asarray(array if array.ndim else array[None])
            return made if array.ndim else made[0]
    except MemoryError as error:
        raise memory_error(f"a copy to {device!r}", error) from error


def to_host(array: Any) -> Any:
    """The values as a NumPy array: the one explicit way off a GPU, which waits for it.

    Example:
        >>> to_host(np.float32(2.0))
        array(2., dtype=float32)
    """
    if not on_gpu(array):
        return np.asarray(array)
    if RECORDINGS:
        refuse_read("a value read back")
    return array.get()


def beside(array: Any, other: Any) -> Any:
    """A NumPy array, as of indices or labels, on the device of another array; CuPy arrays as they are.

    Raises:
        DeviceError: An array on a GPU beside one that is elsewhere.

    Example:
        >>> beside([1, 2], np.zeros(3))
        array([1, 2])
    """
    if on_gpu(array):
        if device_of(array) != device_of(other):
            raise two_devices("indices and operand", [array, other], ["indices", "operand"])
        return array
    host = np.asarray(array)
    return host if other.__class__ is np.ndarray else to_device(host, device_of(other))


def two_devices(what: str, arrays: Any, names: Any = ()) -> DeviceError:
    """The error for operands on different devices.

    Args:
        what: What was being done with them.
        arrays: The operands.
        names: What they are called, as many as there are arrays; the error leaves out others.

    Example:
        >>> print(two_devices("add", [np.zeros(1), np.zeros(1)], ["a", "b"]).given)
        add: operands on cpu: a on cpu, b on cpu.
    """
    places = [device_of(array) for array in arrays]
    found = list(dict.fromkeys(places))
    given = f"{what}: operands on {' and '.join(found)}"
    if len(names) == len(places):
        given += ": " + ", ".join(f"{name} on {place}" for name, place in zip(names, places, strict=True))
    moves = " or ".join(f'.to("{place}")' for place in found)
    return DeviceError(
        f"{given}.",
        "operands on one device; Python numbers and NumPy scalars go with any",
        f"Move one with {moves}.",
    )


def same_memory(a: Any, b: Any) -> bool:
    """Whether two arrays may overlap in memory: their bounds do.

    Example:
        >>> x = np.zeros(4)
        >>> same_memory(x[:2], x[1:]), same_memory(x, x.copy())
        (True, False)
    """
    if device_of(a) != device_of(b):
        return False
    with using_device(device_of(a)):
        return bool(array_namespace(a).may_share_memory(a, b))


def address(array: Any) -> int:
    """Where the first value of an array lies.

    Example:
        >>> x = np.zeros(2)
        >>> address(x[1:]) - address(x)
        8
    """
    found: int = array.data.ptr if on_gpu(array) else array.__array_interface__["data"][0]
    return found


def out_of_memory(error: BaseException) -> bool:
    """Whether an error is CuPy's for an allocation that doesn't fit.

    Example:
        >>> out_of_memory(MemoryError())
        False
    """
    cupy: Any = sys.modules.get("cupy")
    return cupy is not None and isinstance(error, cupy.cuda.memory.OutOfMemoryError)


def memory_error(what: str, error: MemoryError) -> MemoryError:
    """The error to raise for CuPy's of an allocation that doesn't fit; others as they are.

    What CuPy keeps of freed memory is given back to the GPU first, unless a stream is captured.

    Args:
        what: What was being computed.
        error: As it was raised.
    """
    if not out_of_memory(error):
        return error
    cupy = import_cupy()
    if recording() is None:
        cupy.get_default_memory_pool().free_all_blocks()
    free, total = cupy.cuda.runtime.memGetInfo()
    asked = re.search(r"([\d,]+) bytes", str(error))
    size = f"{asked[1]} bytes" if asked else "more memory"
    return DeviceMemoryError(
        f"{what}: {size} on a GPU with {int(free):,} of {int(total):,} bytes free.",
        "tensors that fit into the memory that is left",
        "Drop tensors, take a smaller batch, store activations in a quantized format, or use aq.checkpoint.",
    )
