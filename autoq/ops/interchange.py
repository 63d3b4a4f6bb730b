"""Tensors from other arrays, in their memory where possible, and the protocol that hands memory over."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq import devices
from autoq.context import current
from autoq.errors import ArgumentError, DeviceError
from autoq.memory import within_memory
from autoq.tape.apply import apply
from autoq.tape.function import composed
from autoq.tape.tensor import Tensor, _wrapped, tensor
from autoq.types import TensorType, as_dtype


@composed
def asarray(obj: Any, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor of what is in an object, in the object's memory where that is possible.

    A tensor stays on its tape, and without a cast or copy it is returned itself.

    Args:
        obj: Numbers, nested lists, an array of NumPy or CuPy, a tensor, or what has ``__dlpack__``.
        dtype: A NumPy dtype or a QuantScheme; as by ``aq.tensor`` if None.
        device: Where it is to be; by default where it is, and for numbers and NumPy arrays the default one.
        copy: True copies, False never does, None copies where it must.

    Raises:
        ArgumentError: ``copy=False`` where a copy is needed.
        DTypeError: Complex or object data.

    Example:
        >>> import numpy as np
        >>> a = np.ones(2)
        >>> x = asarray(a, device="cpu")
        >>> a[0] = 5.0
        >>> x
        tensor([5. 1.], float64)
    """
    place = None if device is None else devices.resolve(device)
    target = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, Tensor):
        if place is not None and place != obj.device:
            if copy is False:
                raise _needs_copy("asarray", f"a tensor on {obj.device}, to {place}")
            obj, copy = obj.to(place), None
        return _of_tensor(obj, target, copy)
    if not devices.is_array(obj) and hasattr(obj, "__dlpack__"):
        obj = _imported(obj, None)
    shared = copy is not True and devices.is_array(obj) and target in (None, obj.dtype)
    if shared and devices.device_of(obj) == (place or _home(obj)):
        return _wrapped(obj, TensorType(as_dtype(obj.dtype)))
    if copy is False:
        raise _needs_copy("asarray", type(obj).__name__)
    return tensor(obj, target, device=place)


def _home(array: Any) -> str:
    """Where an array belongs if nobody says: on its GPU, or from the CPU to the default device."""
    return devices.device_of(array) if devices.on_gpu(array) else current().device


def _of_tensor(x: Tensor, target: Any, copy: bool | None) -> Tensor:
    if target not in (None, x.dtype):
        if copy is False:
            raise _needs_copy("asarray", f"a {x.dtype.name} tensor as {target.name}")
        return x.astype(target)
    return copied(x) if copy else x


@within_memory("a copy")
def copied(x: Tensor) -> Tensor:
    """A tensor of its own memory, through which gradients reach ``x``."""
    out = apply("identity", x)
    with devices.using_device(x.device):
        out._value, out._version = x._value.copy(), [0]
    return out


@within_memory("from_dlpack")
def _imported(x: Any, copy: bool | None) -> Any:
    """The array behind an object with ``__dlpack__``, on the device where it is.

    Raises:
        ArgumentError: Memory that can't be handed over.
    """
    kind = x.__dlpack_device__()[0] if hasattr(x, "__dlpack_device__") else 1
    try:
        if int(kind) != 2:  # DLPack's kDLCUDA
            return np.from_dlpack(x, copy=copy)
        array = devices.namespace_of("cuda").from_dlpack(x)
        with devices.using_device(devices.device_of(array)):
            return array.copy() if copy else array
    except (BufferError, ValueError, RuntimeError) as error:
        if isinstance(error, DeviceError):
            raise
        raise ArgumentError(
            f"from_dlpack: {error}",
            "an array in the memory of the CPU or of a CUDA device, that can be shared.",
            "Copy it there first.",
        ) from None


def _needs_copy(name: str, given: str) -> ArgumentError:
    return ArgumentError(
        f"{name}: copy=False of {given}, which takes a copy.",
        "copy=False where the memory can be shared.",
        "Pass copy=None.",
    )


@composed
def from_dlpack(x: Any, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor in the memory of an array of another library, handed over by DLPack.

    Args:
        x: An object with ``__dlpack__`` and ``__dlpack_device__``, in the memory of the CPU or a GPU.
        device: Where it is to be; by default where it is, whatever the default device.
        copy: True copies, False never does, None copies where it must.

    Raises:
        ArgumentError: Something else, or memory that can't be handed over.
        DTypeError: A dtype that tensors don't have.

    Example:
        >>> import numpy as np
        >>> from_dlpack(np.arange(3))
        tensor([0 1 2], int64)
    """
    place = None if device is None else devices.resolve(device)
    if not hasattr(x, "__dlpack__"):
        raise ArgumentError(
            f"from_dlpack of {type(x).__name__}.", "an object with __dlpack__.", "Use aq.asarray."
        )
    array = _imported(x, copy)
    if place not in (None, devices.device_of(array)):
        if copy is False:
            raise _needs_copy("from_dlpack", f"an array on {devices.device_of(array)}, to {place}")
        array = devices.to_device(array, str(place))
    return _wrapped(array, TensorType(array.dtype))
