"""Running the kinds of ops that compute no floats: indices and truth values, layout, casts (S16, S21, S3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoq.context import OBSERVERS, current
from autoq.devices import is_array
from autoq.errors import DTypeError, ShapeError
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.tape.accelerated import forward_on_device
from autoq.tape.apply import (
    bind_kind,
    computed,
    decoded,
    on_device,
    output,
    run_float,
    untracked,
)
from autoq.tape.beside import as_array, one_device
from autoq.tape.node import compute_dtype
from autoq.tape.op import Op
from autoq.tape.refusal import check_given
from autoq.types import PROPAGATE, TensorType, bool_

if TYPE_CHECKING:
    from autoq.tape.tensor import Tensor


def run_index(op: Op, operands: tuple[Any, ...], static: dict[str, Any], out_dtype: Any) -> Tensor:
    """Run an op that returns truth values or indices, which no gradient goes through (S16)."""
    dtypes = [x._type.dtype for x in operands if hasattr(x, "_type")]
    for x in operands:
        if x is None:
            check_given(op, operands)
    floats = [d for d in dtypes if isinstance(d, QuantScheme) or d.kind not in "biu"]
    compute = compute_dtype(floats)
    value = NotImplemented
    if on_device(operands):
        one_device(op, operands)
        values = [getattr(x, "_value", x) for x in operands]
        value = forward_on_device(op, values, static, bool_, compute)
    if value is NotImplemented:
        arrays = [decoded(x, compute) if _is_float(x) else getattr(x, "_value", x) for x in operands]
        value = computed(op, arrays, static)
    if isinstance(out_dtype, QuantScheme):
        raise DTypeError(
            f"{op.name}: out_dtype={out_dtype.name}.",
            "bool, integer and float dtypes",
            "Indices and truth values have no scale to be quantized by; cast them to a float first.",
        )
    if out_dtype is not None:
        value = value.astype(out_dtype, copy=False)
    return untracked(value)


def _is_float(x: Any) -> bool:
    return hasattr(x, "_type") and x._type.is_float


def run_layout(op: Op, operands: tuple[Any, ...], static: dict[str, Any], out_dtype: Any) -> Tensor:
    """Run an op that moves values, packed ones as they are where blocks can follow (S21)."""
    if not operands:
        raise ShapeError(f"{op.name} of no tensors.", "at least one", "Skip the call for an empty list.")
    first = operands[0]
    if op.variadic and on_device(operands):
        one_device(op, operands)
    if op.variadic and any(x._type is not first._type or two_storages(x, first) for x in operands[1:]):
        return run_float(op, operands, static, out_dtype)
    value, note = first._value, ""
    values = tuple([x._value for x in operands]) if op.variadic else (value,)
    if type(value) is QTensor:
        if op.packed is None:
            return run_float(op, operands, static, out_dtype)
        value, note = op.packed(values, **static) if op.variadic else op.packed(value, **static)
        if OBSERVERS and (observer := current().observer) is not None:
            observer.moved(note)
        dtype = value.scheme if isinstance(value, QTensor) else value.dtype  # without an axis: float32 (S13)
        out_type = TensorType(dtype, first._type.propagation)
    else:
        value = as_array(op.forward(values, **static) if op.variadic else op.forward(value, **static))
        out_type = first._type
    if not out_type.propagates and looks_up(static):
        out_type = out_type.with_flag(PROPAGATE)  # S10
    out = output(op, operands, static, value, out_type, compute_dtype((out_type.dtype,)), current(), note)
    if not op.variadic:
        out._version = first._version  # a view is changed together with its source (S29)
    return out if out_dtype is None else out.astype(out_dtype)


def looks_up(static: dict[str, Any]) -> bool:
    """Whether a layout op picks by data, an array of positions, and not by Python numbers."""
    index = static.get("indices", static.get("index"))
    return any(isinstance(i, list) or is_array(i) for i in (index if isinstance(index, tuple) else (index,)))


def two_storages(x: Any, y: Any) -> bool:
    """Whether one tensor is packed and the other is not."""
    return isinstance(x._value, QTensor) != isinstance(y._value, QTensor)


def run_cast(op: Op, operands: tuple[Any, ...], static: dict[str, Any], out_dtype: Any) -> Tensor:
    """Run an op whose result has the dtype that it was asked for: quantize, dequantize, astype."""
    x = operands[0]
    rest = [y._value for y in operands[1:]] if len(operands) > 1 else ()
    value = op.forward(x._value, *rest, **static)
    dtype = value.scheme if isinstance(value, QTensor) else value.dtype
    out_type = TensorType(dtype, x._type.propagation)
    out = output(op, operands, static, value, out_type, compute_dtype((x._type.dtype,)), current())
    if value is x._value:
        out._version = x._version
    return out


bind_kind("index", run_index)
bind_kind("layout", run_layout)
bind_kind("cast", run_cast)
