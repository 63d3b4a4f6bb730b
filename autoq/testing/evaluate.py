"""One operation in float64: its type resolved and its result encoded as in production."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoq.context import current
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.storage.update import updated
from autoq.tape.apply import _reduced_last, computed
from autoq.tape.kinds import looks_up, two_storages
from autoq.tape.op import Op
from autoq.tape.plan import make_plan
from autoq.testing.choices import Choices, choosing, plain, watched
from autoq.testing.estimators import ESTIMATORS
from autoq.testing.events import Array, Call, Event
from autoq.testing.exact import stored_float64, values_of
from autoq.testing.failures import BitsDiffer
from autoq.types import INHIBIT, PROPAGATE, TensorType, float32, float64


@dataclass
class Evaluated:
    """The result of an operation before it is encoded.

    Attributes:
        type: The result's type.
        dense: Its float64 values.
        encoder: From float64 values to packed ones, if the result is to be encoded.
        value: What is stored, where that isn't for the encoder to make.
        note: How a layout op moved packed values.
        choices: The branches that the forward took.
    """

    type: TensorType
    dense: Array
    encoder: Callable[[Array], Any] | None = None
    value: Any = None
    note: str = ""
    choices: Choices = field(default_factory=Choices)

    def encode(self, call: Call) -> None:
        """Encode the call's values, if that is to be, and record the event."""
        if self.encoder is None:
            return
        v = np.asarray(call.dense, float64)
        packed = self.encoder(v)
        decoded = stored_float64(packed)
        kept = np.isfinite(decoded) & np.isfinite(np.asarray(call.dense))
        if not kept.all():
            v = np.where(kept, v, 0.0)
            packed = self.encoder(v)
            decoded = stored_float64(packed)
        cast = call.op.kind == "cast" or call.op.name in ESTIMATORS
        estimate = ESTIMATORS.get(call.op.name) if cast else None
        estimator = _identity if estimate is None else estimate(call.operands, call.static, call.saved)
        left = None if kept.all() else kept
        call.event = Event(v, decoded, estimator, self.encoder, estimate is not None, left)
        call.value = packed if isinstance(packed, QTensor) else decoded


def _identity(change: Array, *rest: Any) -> Array:
    return change


def evaluate(op: Op, operands: Any, static: dict[str, Any], out_dtype: Any) -> Evaluated:
    """Run an operation on float64 values, up to its encode."""
    if op.name in ESTIMATORS:
        return _estimated(op, operands, static)
    if op.kind == "cast":
        return _cast(op, operands, static)
    if op.kind == "update":
        return _update(op, operands, static)
    if op.kind == "index":
        return _index(op, operands, static, out_dtype)
    if op.kind == "layout" and _moves_storage(op, operands):
        return _layout(op, operands, static)
    return _float(op, operands, static, out_dtype)


def forward(op: Op, values: list[Any], static: dict[str, Any]) -> Any:
    """The forward on arrays."""
    return computed(op, values, static, float64)


def _chosen(op: Op, operands: Any, static: dict[str, Any]) -> tuple[Any, Choices]:
    with choosing(Choices()) as choices:
        value = forward(op, [watched(values_of(x)) for x in operands], static)
    return plain(value), choices


def _float(op: Op, operands: Any, static: dict[str, Any], out_dtype: Any) -> Evaluated:
    out_type, _, packed = make_plan(op, operands, out_dtype, current().resolution)
    value, choices = _chosen(op, operands, static)
    value = np.asarray(value, float64) if out_type.is_float else value
    reduced = packed and op.reduction and out_dtype is None and _reduced_last(operands[0], static)
    encoder, out_type = _encoder(out_type, value.ndim, reduced)
    return Evaluated(out_type, value, encoder, value, "", choices)


def _encoder(out_type: TensorType, ndim: int, reduced: bool) -> tuple[Any, TensorType]:
    """How a result of a resolved type is encoded, with S13's exceptions."""
    scheme = out_type.dtype
    if not isinstance(scheme, QuantScheme):
        return None, out_type
    if ndim == 0 or reduced:
        return None, TensorType(float32, INHIBIT if reduced and ndim else out_type.propagation)
    inner = scheme.innermost(ndim)
    return (lambda v: QTensor.encode(v, inner)), TensorType(inner, out_type.propagation)


def _index(op: Op, operands: Any, static: dict[str, Any], out_dtype: Any) -> Evaluated:
    value = np.asarray(forward(op, [values_of(x) for x in operands], static))
    value = value if out_dtype is None else value.astype(out_dtype)
    return Evaluated(TensorType(value.dtype), value, None, value)


def _moves_storage(op: Op, operands: Any) -> bool:
    """Whether a layout op moves what is stored, instead of decoding operands of several types."""
    first = operands[0]
    if op.variadic and any(x._type is not first._type or two_storages(x, first) for x in operands[1:]):
        return False
    return type(first._value) is not QTensor or op.packed is not None


def _layout(op: Op, operands: Any, static: dict[str, Any]) -> Evaluated:
    first = operands[0]
    dense = np.asarray(plain(forward(op, [values_of(x) for x in operands], static)), float64)
    moved: Any = dense
    note, out_type = "", first._type
    if type(first._value) is QTensor:
        stored = tuple(x._value for x in operands) if op.variadic else first._value
        assert op.packed is not None
        moved, note = op.packed(stored, **static)
        dtype = moved.scheme if isinstance(moved, QTensor) else moved.dtype
        out_type = TensorType(dtype, first._type.propagation)
        moved = moved if isinstance(moved, QTensor) else dense
    if not out_type.propagates and looks_up(static):
        out_type = out_type.with_flag(PROPAGATE)
    if note == "decode" and isinstance(moved, QTensor):
        return Evaluated(out_type, dense, lambda v: _encoded_like(moved, v), moved, note)
    _check_moved(op, operands, static, moved, note)
    return Evaluated(out_type, dense, None, moved, note)


def _encoded_like(moved: QTensor, v: Array) -> QTensor:
    """A re-encode (S36) of float64 values under the scheme that storage chose."""
    return QTensor.encode(v, moved.scheme)


def _check_moved(op: Op, operands: Any, static: dict[str, Any], moved: Any, note: str) -> None:
    """What was moved packed decodes to the decoded values moved (S34, S35)."""
    if not isinstance(moved, QTensor):
        return
    expected = np.asarray(forward(op, [stored_float64(x._value) for x in operands], static))
    if not np.array_equal(expected, moved.dequantize(float64), equal_nan=True):
        raise BitsDiffer(
            f"{op.name} of {operands[0]._type.dtype.name} {operands[0].shape} ({note}) changed values.",
            "the decoded values, moved",
            "Correct the packed function of the op, or return 'decode' and encode again.",
        )


def _update(op: Op, operands: Any, static: dict[str, Any]) -> Evaluated:
    """Entries of the first operand changed, in its type; of a packed one touched blocks are encoded (S12)."""
    target, values = operands
    dense = np.asarray(plain(forward(op, [values_of(target), values_of(values)], static)), float64)
    stored = target._value
    if type(stored) is not QTensor:
        return Evaluated(target._type, dense, None, dense)
    new = values_of(values)
    return Evaluated(
        target._type, dense, lambda v: updated(stored, static["index"], new, static["add"]), dense
    )


def _estimated(op: Op, operands: Any, static: dict[str, Any]) -> Evaluated:
    """An operation that rounds, with a declared estimator: its result is one event."""
    values = [values_of(x) for x in operands]
    result = op.forward(*values, **static)
    dtype = result.scheme if isinstance(result, QTensor) else operands[0]._type.dtype
    out_type = TensorType(dtype, operands[0]._type.propagation)
    return Evaluated(out_type, values[0], lambda v: op.forward(v, *values[1:], **static), result)


def _cast(op: Op, operands: Any, static: dict[str, Any]) -> Evaluated:
    (x,) = operands
    result = op.forward(x._value, **static)
    flag = x._type.propagation
    if isinstance(result, QTensor) and type(x._value) is not QTensor:
        return Evaluated(TensorType(result.scheme, flag), x.exact, lambda v: op.forward(v, **static), result)
    if isinstance(result, QTensor):
        return Evaluated(TensorType(result.scheme, flag), x.exact, None, result)
    # A 'cast' that keeps the array keeps the dtype that the tensor counts as, whatever the array is.
    dtype = x._type.dtype if result is x._value else result.dtype
    if dtype.kind in "biu":
        return Evaluated(TensorType(dtype, flag), result, None, result)
    return Evaluated(TensorType(dtype, flag), x.exact, None, x._value if _dense(x) else x.exact)


def _dense(x: Any) -> bool:
    return type(x._value) is not QTensor
