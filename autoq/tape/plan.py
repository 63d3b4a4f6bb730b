"""Which type an op computes in and which it returns: S5-S10 and S14, from its operands' types."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.tape.node import compute_dtype
from autoq.tape.op import Op
from autoq.tape.refusal import check_given
from autoq.types import INHIBIT, PROPAGATE, TensorType, bool_, float32, float64, int64, resolve, uint64

# Output type, compute dtype, and whether an operand or the output is packed.
Plan = tuple[TensorType, "np.dtype[Any]", bool]


def make_plan(op: Op, operands: tuple[Any, ...], out_dtype: Any, policy: str) -> Plan:
    """Output type, compute dtype, and whether anything is packed, for operands of these types."""
    check_given(op, operands)
    out_type, compute = _resolved(op, operands, out_dtype, policy)
    packed = out_type.is_quantized or any(hasattr(x, "_type") and x._type.is_quantized for x in operands)
    return out_type, compute, packed


def _resolved(
    op: Op, operands: tuple[Any, ...], out_dtype: Any, policy: str
) -> tuple[TensorType, np.dtype[Any]]:
    tensors = [x for x in operands if hasattr(x, "_type")]
    types = [x._type for x in tensors if x._type.is_float]
    if not types:
        return _integer_plan(op, operands, out_dtype)
    compute = compute_dtype([t.dtype for t in types])
    voting = [x._type for x in voters(tensors)]
    if op.kind == "loss":
        flag = PROPAGATE if any(t.propagates for t in types) else INHIBIT
        return TensorType(out_dtype or compute, flag), compute
    found = (
        resolve(op.name, voting, policy)
        if out_dtype is None
        else TensorType(out_dtype, resolve(op.name, voting, "widen").propagation)
    )
    if out_dtype is None and found.is_quantized and not found.propagates:
        found = TensorType(float32, INHIBIT)  # S10
    return found, compute


def voters(tensors: list[Any]) -> list[Any]:
    """The float tensors whose types are combined: those with axes, before those without (S5)."""
    floats = [x for x in tensors if x._type.is_float]
    found = [x for x in floats if x._value.ndim]
    if not any(x._type.propagates for x in found):
        found += [x for x in floats if not x._value.ndim]
        found = [x for x in found if x._type.propagates] or found
    return found


def _integer_plan(op: Op, operands: tuple[Any, ...], out_dtype: Any) -> tuple[TensorType, np.dtype[Any]]:
    """No float among the operands: what NumPy returns for an integer op, else float32 (S5)."""
    wanted = None if out_dtype is None else TensorType(out_dtype)
    if wanted is not None and wanted.is_float:
        return wanted, float64 if out_dtype == float64 else float32
    if op.integers and not any(type(x) is float for x in operands):
        result = _integer(op, operands)
        return wanted or TensorType(result), result
    return wanted or TensorType(float32), float32


def _integer(op: Op, operands: tuple[Any, ...]) -> np.dtype[Any]:
    """The dtype that an integer op computes in: Python integers don't vote, but are no bools."""
    dtypes = [x._type.dtype for x in operands if hasattr(x, "_type")]
    result = np.result_type(*dtypes) if dtypes else bool_
    if op.widens:
        return uint64 if result.kind == "u" else int64
    counts = op.accumulates or any(type(x) is int for x in operands)  # bools add up as numbers
    return int64 if result == bool_ and counts else result
