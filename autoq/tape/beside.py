"""Arrays that the tape makes on the device of a tensor or of another array."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.devices import (
    SEVERAL,
    array_namespace,
    device_of,
    is_array,
    on_gpu,
    to_device,
    two_devices,
    using_device,
)
from autoq.errors import DeviceError
from autoq.schemes import QuantScheme
from autoq.storage.inputs import converted
from autoq.tape.accelerated import raw_on_device
from autoq.tape.op import REGISTRY, Op
from autoq.types import float32, float64

# Of what holds no arrays; asking a class is quicker.
PLAIN = frozenset({type(None), bool, int, float, str, QuantScheme})


def as_array(value: Any) -> Any:
    """What a forward returned as an array: NumPy makes scalars of arrays without axes."""
    return value if is_array(value) else np.asarray(value)


def held(x: Any) -> Any:
    """The array behind a tensor, a packed tensor (its words) or an array.

    Example:
        >>> held(np.zeros(2)).shape
        (2,)
    """
    value = getattr(x, "_value", x)
    return getattr(value, "words", value)


def check_beside(what: str, *data: Any, names: Any = ()) -> None:
    """Raise DeviceError unless tensors, and arrays on GPUs, are on one device; the rest goes with any.

    Args:
        what: What is being done with them, for the error.
        data: Tensors, arrays, numbers, None and nests of them.
        names: What each of the data is called, for the error.

    Example:
        >>> import autoq as aq
        >>> check_beside("add", aq.tensor([1.0], device="cpu"), np.zeros(1), None)
    """
    arrays = placed(data)
    if len(arrays) > 1 and len({device_of(array) for array in arrays}) > 1:
        called = [name for name, x in zip(names, data, strict=False) for _ in placed(x)]
        raise two_devices(what, arrays, called)


def one_device(op: Op, operands: tuple[Any, ...]) -> str:
    """The one device that the tensors among an op's operands are on.

    Raises:
        DeviceError: They are on several, which it names.

    Example:
        >>> import autoq as aq
        >>> one_device(REGISTRY["add"], (aq.tensor([1.0], device="cpu"), 2.0))
        'cpu'
    """
    arrays = [held(x) for x in operands if hasattr(x, "_value")]
    if not SEVERAL and all(array.__class__ is not np.ndarray for array in arrays):
        return "cuda"
    if len({device_of(array) for array in arrays}) > 1:
        names = operand_names(op, operands)
        called = [name for name, x in zip(names, operands, strict=True) if hasattr(x, "_value")]
        raise two_devices(op.name, arrays, called)
    return device_of(arrays[0])


def operand_names(op: Op, operands: tuple[Any, ...]) -> list[str]:
    """What an op calls its operands; those of a sequence, and of an op without names, are counted.

    Example:
        >>> operand_names(REGISTRY["add"], (1, 2)), operand_names(REGISTRY["concat"], (1, 2))
        (['a', 'b'], ['arrays[0]', 'arrays[1]'])
    """
    if not op.variadic and len(op.operands) >= len(operands):
        return list(op.operands[: len(operands)])
    sequence = op.operands[0] if op.operands else "inputs"
    return [f"{sequence}[{number}]" for number in range(len(operands))]


def beside_arrays(
    error: DeviceError, op: Op, given: tuple[Any, ...], operands: tuple[Any, ...]
) -> DeviceError:
    """The error of an op on two devices, with what to do about arrays that became tensors on the wrong one.

    Args:
        error: What the op raised; returned as it is where no array is on another device than a tensor.
        op: The record.
        given: What it was called with.
        operands: The same with arrays as tensors.
    """
    tensors = [device_of(held(x)) for x in given if hasattr(x, "_value")]
    named = zip(operand_names(op, operands), given, operands, strict=True)
    made = [(name, y) for name, x, y in named if y is not x and hasattr(y, "_value")]
    elsewhere = [name for name, y in made if tensors and device_of(held(y)) != tensors[0]]
    if not elsewhere:
        return error
    advice = " and ".join(f'aq.tensor({name}, device="{tensors[0]}")' for name in elsewhere)
    return DeviceError(error.given, error.allowed, f"Pass {advice}, or move the other with .to(...).")


def placed(data: Any) -> list[Any]:
    """The arrays in a nest that a device was chosen for: those of tensors, and those on GPUs.

    Example:
        >>> placed((slice(None), [1, 2], np.arange(2)))
        []
    """
    if data.__class__ in PLAIN:
        return []
    if hasattr(data, "_value"):
        return [held(data)]
    if type(data) in (tuple, list):
        return [array for x in data for array in placed(x)]
    return [data] if on_gpu(data) else []


def filled(number: float, shape: tuple[int, ...], dtype: Any, other: Any) -> Any:
    """One number everywhere, on the device of ``other``.

    Example:
        >>> filled(1, (2,), np.float32, np.zeros(3))
        array([1., 1.], dtype=float32)
    """
    array = held(other)
    if array.__class__ is np.ndarray:
        return np.full(shape, number, dtype)
    with using_device(device_of(array)):
        return array_namespace(array).full(shape, number, dtype)


def copied_beside(data: Any, dtype: Any, other: Any) -> Any:
    """A copy of an array in a dtype, on the device of ``other``.

    Example:
        >>> copied_beside([1, 2], np.float32, np.zeros(3))
        array([1., 2.], dtype=float32)
    """
    array = held(other)
    if array.__class__ is np.ndarray and not on_gpu(data):
        return np.array(data, dtype)
    device = device_of(array)
    made = to_device(data if on_gpu(data) else np.array(data, dtype), device)
    if device == "cpu":
        return converted(made, dtype)
    with using_device(device):
        return converted(made, dtype, copy=made is data)


def frozen(array: Any) -> bool:
    """Whether an array may not be written to: it is read-only, or repeats values without a copy.

    Example:
        >>> frozen(np.zeros(2)), frozen(np.broadcast_to(np.zeros(()), (2,)))
        (False, True)
    """
    if array.__class__ is np.ndarray:
        return not array.flags.writeable
    return any(stride == 0 and n > 1 for stride, n in zip(array.strides, array.shape, strict=True))


def apart(a: Any, b: Any) -> bool:
    """Whether two arrays on a GPU have no byte in common, as far as their first and last ones tell."""
    (first, end), (other, other_end) = _extent(a), _extent(b)
    return end <= other or other_end <= first


def _extent(x: Any) -> tuple[int, int]:
    """Where an array's first byte lies, and where the one after its last."""
    first = end = x.data.ptr
    for size, step in zip(x.shape, x.strides, strict=True):
        if step < 0:
            first += (size - 1) * step
        else:
            end += (size - 1) * step
    return first, end + x.itemsize


def added(a: Any, b: Any) -> Any:
    """The sum of two arrays of one shape, in at least float32 (S23).

    Example:
        >>> added(np.ones(2, np.float16), np.ones(2, np.float16))
        array([2., 2.], dtype=float32)
    """
    dtype = float64 if float64 in (a.dtype, b.dtype) else float32
    if not on_gpu(a):
        # Of arrays without axes NumPy makes a scalar, which `+=` would not change.
        return np.asarray(np.add(a, b, dtype=dtype))
    with using_device(device_of(a)):
        return raw_on_device(REGISTRY["add"], converted(a, dtype), converted(b, dtype))
