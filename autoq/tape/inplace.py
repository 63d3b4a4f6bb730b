"""Changing a tensor in place, untracked or under no_grad, with a version that backward checks (S12, S29)."""

from __future__ import annotations

from typing import Any

from autoq.context import OBSERVERS, changed, current, noted
from autoq.devices import device_of, on_gpu, to_device, using_device
from autoq.errors import DTypeError, GradientError, ShapeError
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.storage.inputs import converted
from autoq.storage.update import updated, write
from autoq.tape.apply import apply, plain
from autoq.tape.beside import check_beside, frozen, held
from autoq.tape.methods import Methods
from autoq.tape.stored import real_array, stored
from autoq.types import TensorType, dtype_name


class InPlace(Methods):
    """``assign``, item assignment and the augmented operators."""

    __slots__ = ()

    _value: Any
    _type: TensorType
    _node: Any
    _version: list[int]

    def assign(self, data: Any) -> None:
        """Replace the values in place, keeping shape, dtype and flag; untracked, or under no_grad.

        Raises:
            GradientError: It is tracked and grad mode is on.
            ShapeError: Data of another shape.
        """
        _check_mutable(self, "assign", data)
        if hasattr(data, "_value"):
            check_beside("assign", self, data, names=("the tensor", "data"))
        source = held(data)
        with using_device(device_of(source if on_gpu(source) else held(self))):
            value = _moved(stored(_fitting("assign", data, self), self._type.dtype), self)
        shape = self._value.shape
        if value.shape != shape:
            raise ShapeError(
                f"data of shape {value.shape} for a tensor of {shape}.", "its own shape", "Reshape it."
            )
        self._value = value
        self._version[0] += 1

    def __setitem__(self, index: Any, data: Any) -> None:
        _check_mutable(self, "x[...] = v", index, data)
        check_beside("x[...] = v", self, index, data, names=("x", "the index", "v"))
        with using_device(device_of(held(self))):
            self._set(plain(index), data)
        self._version[0] += 1

    def _set(self, index: Any, data: Any) -> None:
        values = _moved(real_array(_fitting("x[...] = v", data, self), "the value"), self)
        if type(self._value) is QTensor:
            self._value = updated(self._value, index, values)
            return
        values = converted(values, self._value.dtype, copy=True)
        if frozen(self._value):
            self._value = self._value.copy()
        write(self._value, index, values)

    def __iadd__(self, other: Any) -> Any:
        return _updated(self, "add", other)

    def __isub__(self, other: Any) -> Any:
        return _updated(self, "sub", other)

    def __imul__(self, other: Any) -> Any:
        return _updated(self, "mul", other)

    def __itruediv__(self, other: Any) -> Any:
        return _updated(self, "div", other)

    def __ifloordiv__(self, other: Any) -> Any:
        return _updated(self, "floor_divide", other)

    def __imod__(self, other: Any) -> Any:
        return _updated(self, "remainder", other)

    def __ipow__(self, other: Any) -> Any:
        return _updated(self, "pow", other)

    def __imatmul__(self, other: Any) -> Any:
        return _updated(self, "matmul", other)

    def __iand__(self, other: Any) -> Any:
        return _updated(self, "bitwise_and", other)

    def __ior__(self, other: Any) -> Any:
        return _updated(self, "bitwise_or", other)

    def __ixor__(self, other: Any) -> Any:
        return _updated(self, "bitwise_xor", other)

    def __ilshift__(self, other: Any) -> Any:
        return _updated(self, "bitwise_left_shift", other)

    def __irshift__(self, other: Any) -> Any:
        return _updated(self, "bitwise_right_shift", other)


def _updated(x: Any, op: str, other: Any) -> Any:
    """``x op= other`` on an untracked tensor, in its own dtype (S12)."""
    _check_mutable(x, f"in-place {op}")
    if not x._type.is_float and (op == "div" or not isinstance(other, int | bool)):
        _fitting(f"in-place {op}", apply(op, x.detach(), other), x)
    result = apply(op, x.detach(), other, out_dtype=x._type.dtype)
    if result.shape != x.shape:
        raise ShapeError(
            f"in-place {op}: a result of shape {result.shape} in a tensor of {x.shape}.",
            "operands that broadcast to the tensor's shape",
            f"Write x = x {op} y instead.",
        )
    if type(x._value) is QTensor or frozen(x._value):
        x._value = result._value
    else:
        with using_device(x.device):
            x._value[...] = result._value
    x._version[0] += 1
    return x


# The kinds of values that tensors of a kind take without loss of their meaning.
_HELD = {"b": "b", "i": "biu", "u": "biu"}


def _fitting(what: str, data: Any, target: Any) -> Any:
    """The data, unless they are floats for a tensor of integers or bools, which would be cut off."""
    dtype = data.dtype if hasattr(data, "dtype") else real_array(data, "the value").dtype
    own = target._type.dtype
    if not target._type.is_float and (isinstance(dtype, QuantScheme) or dtype.kind not in _HELD[own.kind]):
        raise DTypeError(
            f"{what}: {dtype_name(dtype)} values for a tensor of {dtype_name(own)}.",
            "integers for integers, bools for bools",
            "Cast the tensor with .astype first, or the values if they are to be cut off.",
        )
    return data


def _moved(value: Any, target: Any) -> Any:
    """A value on the target's device: a copy where it isn't there."""
    device = target.device
    if device_of(held(value)) == device:
        return value
    return value.to(device) if type(value) is QTensor else to_device(value, device)


def _check_mutable(x: Any, what: str, *values: Any) -> None:
    """Refuse to change a tracked tensor in place; tell observers of what is changed, by which values."""
    if x._node is not None and current().grad:
        raise GradientError(
            f"{what} on a tensor that is tracked.",
            "untracked tensors, or any under aq.no_grad()",
            "Compute a new tensor instead: x = x + y, x.at[index].set(v) or x.at[index].add(v).",
        )
    if OBSERVERS:
        changed(x)
        noted(what, *values)
