"""Three-part errors for what NumPy or a forward refuses, naming the op and what it was given (S45)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autoq.errors import ArgumentError, AutoqError, DTypeError, IndexingError, ShapeError
from autoq.types import float32

# What a forward raises about its arguments; anything else is a fault of ours and passes unchanged.
REFUSALS = (TypeError, ValueError, IndexError, ArithmeticError)


def refusal(op: Any, operands: tuple[Any, ...], static: Mapping[str, Any], error: Exception) -> AutoqError:
    """The error to raise in place of ``error``, which an op raised while it ran; one of ours as it is.

    Args:
        op: The record.
        operands: What it was called with.
        static: Its static arguments.
        error: What its forward raised.
    """
    if isinstance(error, AutoqError):
        return error
    if isinstance(error, TypeError):
        kind: type[AutoqError] = DTypeError
    else:
        kind = IndexingError if isinstance(error, IndexError) else ArgumentError
    given = [*zip(op.operands, operands, strict=False)] if not op.variadic else [("operands", operands)]
    listed = ", ".join(f"{name}={_spelled(value)}" for name, value in (*given, *static.items()))
    told = str(error).replace(f"{getattr(op.forward, '__name__', '')}()", f"{op.name}()").rstrip(".")
    return kind(
        f"{op.name}: {told}. Called with {listed}.",
        "operands and arguments of the kinds and in the ranges that its documentation lists",
        f"Correct the argument; help(aq.{op.name}) describes each.",
    )


def check_given(op: Any, operands: tuple[Any, ...]) -> None:
    """Refuse None for an operand that the op needs.

    Raises:
        DTypeError: Naming the operand.
    """
    for name, x in zip(op.operands, operands, strict=False):
        if x is None and name not in op.optional:
            raise DTypeError(
                f"{op.name}: {name} is None.",
                "numbers, arrays and tensors",
                "Pass the operand; a function that forgot its return gives None.",
            )


def check_loop(op: Any, values: Any, compute: Any) -> None:
    """Let NumPy's ufunc refuse bools and integers that it has no loop for; CuPy computes with some of them.

    Raises:
        TypeError: As NumPy does.
    """
    if isinstance(op.forward, np.ufunc) and np.dtype(compute).kind in "biu":
        bools = {bool: np.dtype(bool)}  # Python's other numbers are named by their classes
        dtypes = [x.dtype if hasattr(x, "dtype") else bools.get(type(x), type(x)) for x in values]
        op.forward.resolve_dtypes((*dtypes, None))


def check_broadcast(op: Any, arrays: list[Any]) -> tuple[int, ...]:
    """The broadcast shape of the operands, or a ShapeError that names them."""
    shapes = [getattr(x, "shape", ()) for x in arrays if x is not None]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"{op.name}: shapes {' and '.join(map(str, shapes))} don't broadcast.",
            "shapes whose axes, aligned at the last, are equal or 1",
            "Reshape an operand, or insert axes of length 1 with expand_dims.",
        ) from None


def with_dtypes(error: ShapeError, op: Any, operands: tuple[Any, ...]) -> ShapeError:
    """The error with the operands' dtypes, where they are not all float32."""
    tensors = [x for x in operands if hasattr(x, "_type")]
    if all(x._type.dtype is float32 for x in tensors):
        return error
    names = op.operands if len(op.operands) == len(operands) else [str(i) for i in range(len(operands))]
    listed = [
        f"{n} {x._type.dtype.name} {x.shape}"
        for n, x in zip(names, operands, strict=True)
        if hasattr(x, "_type")
    ]
    return ShapeError(f"{error.given} Operands: {', '.join(listed)}.", error.allowed, error.remedy)


def _spelled(value: Any) -> str:
    """An argument in short: a tensor by dtype and shape, anything else by a repr that is cut off."""
    if hasattr(value, "_type"):
        return f"{value.dtype.name} {value.shape}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
