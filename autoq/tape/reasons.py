"""Why an op returned the type it did: the rule of the semantics that decided, in one phrase."""

from __future__ import annotations

from typing import Any

from autoq.tape.op import Op
from autoq.tape.plan import voters
from autoq.types import TensorType, canonical, dtype_name, resolve


def reason(op: Op, operands: tuple[Any, ...], out_dtype: Any, found: TensorType, how: str = "") -> str:
    """Why ``op`` on these operands returned ``found``.

    Args:
        op: The record.
        operands: Tensors, numbers and None.
        out_dtype: What the call asked for, or None.
        found: The result's type.
        how: How a layout op moved packed values.

    Example:
        >>> import autoq as aq
        >>> from autoq.tape.op import REGISTRY
        >>> x, w = aq.quantize(aq.tensor([1.0, 2.0]), aq.mxfp8), aq.Parameter([3.0, 4.0])
        >>> reason(REGISTRY["mul"], (x, w), None, x.tensor_type)
        'S7: a votes mxfp8; b float32 inhibits (S9)'
    """
    if op.kind in _FIXED:
        return _FIXED[op.kind]
    if op.kind == "layout" and len({x._type for x in operands}) == 1:
        return _of_layout(operands[0]._type, found, how)
    named = _named(op, operands)
    if not any(x._type.is_float for _, x in named):
        return "S5: no float among the operands"
    if out_dtype is not None:
        return "S14: out_dtype" + _exception(out_dtype, found)
    return _of_float(named, found)


_FIXED = {
    "cast": "S3: a cast",
    "index": "S16: decoded first, untracked",
    "loss": "S14: a loss is float",
    "update": "S12: the target's type",
}


def _of_layout(source: TensorType, found: TensorType, how: str) -> str:
    if how == "decode":
        return "S36: blocks are cut, encoded again along the last axis" + _exception(source.dtype, found)
    if found.propagates and not source.propagates:
        return "S10: looked up by data, an activation"
    return "S4: layout keeps the type"


def _named(op: Op, operands: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """Tensors with the names of their operands."""
    names = op.operands if not op.variadic else [str(i) for i in range(len(operands))]
    return [(n, x) for n, x in zip(names, operands, strict=False) if hasattr(x, "_type")]


def _of_float(named: list[tuple[str, Any]], found: TensorType) -> str:
    """S5 to S10 and S13: who voted, for what, and what came of it."""
    voting = voters([x for _, x in named])
    propagating = any(x._type.propagates for x in voting)
    candidates = [(n, x) for n, x in named if _is_in(x, voting) and x._type.propagates == propagating]
    plain = resolve("", [x._type for _, x in candidates], "widen")
    text = _vote(candidates, plain) if propagating else f"S6: nothing propagates: {_listed(candidates)}"
    silent = [(n, x) for n, x in named if x._type.is_float and not _is_in(x, [y for _, y in candidates])]
    inhibiting = [(n, x) for n, x in silent if not x._type.propagates]
    if propagating and inhibiting:
        text += f"; {_listed(inhibiting)} inhibits (S9)"
    if propagating and len(silent) > len(inhibiting):
        text += f"; {', '.join(n for n, x in silent if x._type.propagates)} has no axis (S5)"
    if not propagating and plain.is_quantized:
        return f"{text}; S10: float32, not encoded again"
    return text + _exception(plain.dtype, found)


def _is_in(x: Any, tensors: list[Any]) -> bool:
    return any(x is y for y in tensors)


def _vote(candidates: list[tuple[str, Any]], plain: TensorType) -> str:
    dtypes = {x._type.dtype for _, x in candidates}
    if len(dtypes) == 1:
        verb = "votes" if len(candidates) == 1 else "vote"
        return f"S7: {', '.join(n for n, _ in candidates)} {verb} {dtype_name(plain.dtype)}"
    if len({canonical(d) for d in dtypes}) == 1:
        return f"S8: {_listed(candidates)} are one dtype, in its default choices"
    widest = max(x._type.bits for _, x in candidates)
    if len({canonical(x._type.dtype) for _, x in candidates if x._type.bits == widest}) > 1:
        return f"S7: {_listed(candidates)} are equally wide, hence float32"
    return f"S7: the widest of {_listed(candidates)}"


def _listed(named: list[tuple[str, Any]]) -> str:
    return ", ".join(f"{n} {dtype_name(x._type.dtype)}" for n, x in named)


def _exception(dtype: Any, found: TensorType) -> str:
    """S13, where the resolved dtype is a scheme and the result isn't quite that."""
    plain = TensorType(dtype)
    if not plain.is_quantized or found.dtype == dtype:
        return ""
    if found.is_quantized:
        return "; S13: blocks along the last axis"
    return "; S13: float32, " + (
        "a block needs an axis" if found.propagates else "statistics of the last axis don't vote"
    )
