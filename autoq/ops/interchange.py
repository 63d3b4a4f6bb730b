"""Tensors from other arrays, in their memory where possible, and the protocol that hands memory over."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq import devices
from autoq.context import current
from autoq.errors import ArgumentError
from autoq.tape.apply import apply
from autoq.tape.function import composed
from autoq.tape.tensor import Tensor, _wrapped, tensor
from autoq.types import TensorType, as_dtype


@composed
def asarray(obj: Any, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor of what is in an object, in the object's memory where that is possible.

    A tensor stays on its tape, and without a cast or copy it is returned itself.

    Args:
        obj: Numbers, nested lists, a NumPy array, a tensor, or what has ``__dlpack__``.
        dtype: A NumPy dtype or a QuantScheme; as by ``aq.tensor`` if None.
        device: ``"cpu"``.
        copy: True copies, False never does, None copies where it must.

    Raises:
        ArgumentError: ``copy=False`` where a copy is needed.
        DTypeError: Complex or object data.

    Example:
        >>> import numpy as np
        >>> a = np.ones(2)
        >>> x = asarray(a)
        >>> a[0] = 5.0
        >>> x
        tensor([5. 1.], float64)
    """
    devices.resolve(device, current().device)
    target = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, Tensor):
        return _of_tensor(obj, target, copy)
    if not isinstance(obj, np.ndarray) and hasattr(obj, "__dlpack__"):
        obj = np.from_dlpack(obj)
    if copy is not True and isinstance(obj, np.ndarray) and target in (None, obj.dtype):
        return _wrapped(obj, TensorType(obj.dtype))
    if copy is False:
        raise _needs_copy("asarray", type(obj).__name__)
    return tensor(obj, target)


def _of_tensor(x: Tensor, target: Any, copy: bool | None) -> Tensor:
    if target not in (None, x.dtype):
        if copy is False:
            raise _needs_copy("asarray", f"a {x.dtype.name} tensor as {target.name}")
        return x.astype(target)
    return copied(x) if copy else x


def copied(x: Tensor) -> Tensor:
    """A tensor of its own memory, through which gradients reach ``x``."""
    out = apply("identity", x)
    out._value, out._version = x._value.copy(), [0]
    return out


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
        x: An object with ``__dlpack__`` and ``__dlpack_device__``, in the CPU's memory.
        device: ``"cpu"``.
        copy: True copies, False never does, None copies where it must.

    Raises:
        ArgumentError: Something else, or memory that can't be handed over.
        DTypeError: A dtype that tensors don't have.

    Example:
        >>> import numpy as np
        >>> from_dlpack(np.arange(3))
        tensor([0 1 2], int64)
    """
    devices.resolve(device, current().device)
    if not hasattr(x, "__dlpack__"):
        raise ArgumentError(
            f"from_dlpack of {type(x).__name__}.", "an object with __dlpack__.", "Use aq.asarray."
        )
    try:
        array = np.from_dlpack(x, copy=copy)
    except (BufferError, ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"from_dlpack: {error}",
            "an array in the CPU's memory that can be shared.",
            "Copy it there first.",
        ) from None
    return _wrapped(array, TensorType(array.dtype))
