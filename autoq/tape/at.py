"""``x.at[index].set(v)`` and ``.add(v)``: a new tensor with changed entries, of the target's type (S12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoq.context import current
from autoq.errors import DTypeError
from autoq.storage import QTensor
from autoq.storage.inputs import converted
from autoq.storage.update import updated
from autoq.tape.apply import apply, bind_kind, decoded, on_device, output
from autoq.tape.beside import one_device
from autoq.tape.node import compute_dtype
from autoq.tape.op import Op
from autoq.types import dtype_name

if TYPE_CHECKING:
    from autoq.tape.tensor import Tensor


class At:
    """What ``x.at`` is: ``x.at[index]`` names entries of a tensor to change.

    Example:
        >>> import autoq as aq
        >>> x = aq.tensor([1.0, 2.0, 3.0])
        >>> x.at[1:].set(0.0), x.at[0].add(5.0), x
        (tensor([1. 0. 0.], float32), tensor([6. 2. 3.], float32), tensor([1. 2. 3.], float32))
    """

    __slots__ = ("_target",)

    def __init__(self, target: Tensor) -> None:
        self._target = target

    def __getitem__(self, index: Any) -> Entries:
        return Entries(self._target, index)

    def __repr__(self) -> str:
        return f"<at of {self._target!r}>"


class Entries:
    """Entries of a tensor; its methods return a new tensor in which they are changed."""

    __slots__ = ("_index", "_target")

    def __init__(self, target: Tensor, index: Any) -> None:
        self._target, self._index = target, index

    def set(self, values: Any) -> Tensor:
        """The tensor with these entries replaced; of an entry named twice the last value stays.

        Args:
            values: Broadcast to the entries; cast to the tensor's dtype.

        Raises:
            IndexingError: A position outside its axis.
            ShapeError: Values that don't broadcast.
            DTypeError: Floats into an integer or bool tensor.
        """
        return apply("update", self._target, values, index=self._index, add=False)

    def add(self, values: Any) -> Tensor:
        """The tensor with the values added to these entries; to an entry named twice, both.

        Args:
            values: Broadcast to the entries; the sum is cast to the tensor's dtype.

        Raises:
            IndexingError: A position outside its axis.
            ShapeError: Values that don't broadcast.
            DTypeError: Floats into an integer or bool tensor.
        """
        return apply("update", self._target, values, index=self._index, add=True)


def run_update(op: Op, operands: tuple[Any, ...], static: dict[str, Any], out_dtype: Any) -> Tensor:
    """An op that changes entries of its first operand and keeps that one's type."""
    target, values = operands
    kind, stored = target._type, target._value
    if on_device(operands):
        one_device(op, operands)
    floats = [x._type.dtype for x in operands if hasattr(x, "_type") and x._type.is_float]
    if not kind.is_float:
        if floats or type(values) is float:
            raise _floats_into(op, kind)
        value = op.forward(stored, getattr(values, "_value", values), **static)
    elif type(stored) is QTensor:
        value = updated(stored, static["index"], decoded(values, compute_dtype(())), static["add"])
    else:
        compute = compute_dtype(floats)
        value = op.forward(decoded(target, compute), decoded(values, compute), **static)
        value = converted(value, kind.dtype)
    out = output(op, operands, static, value, kind, compute_dtype(floats), current())
    return out if out_dtype is None else out.astype(out_dtype)


def _floats_into(op: Op, kind: Any) -> DTypeError:
    return DTypeError(
        f"{op.name}: float values into a {dtype_name(kind.dtype)} tensor.",
        "integers or bools",
        "Cast the values, or the tensor, with astype.",
    )


bind_kind("update", run_update)
