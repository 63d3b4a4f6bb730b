"""Public functions made from op records: ``aq.sum(x, axis=0, out_dtype=...)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autoq.errors import ArgumentError, DTypeError
from autoq.tape.apply import as_tensor, run
from autoq.tape.op import Op

if TYPE_CHECKING:
    from autoq.tape.tensor import Tensor


# Public functions that call more than one op, or one of another name: methods of tensors find them here.
COMPOSED: dict[str, Callable[..., Any]] = {}


def composed(made: Callable[..., Any]) -> Callable[..., Any]:
    """Register a public function under its name; it takes tensors, arrays and numbers.

    Example:
        >>> import autoq as aq
        >>> COMPOSED["topk"] is aq.topk
        True
    """
    COMPOSED[made.__name__] = made
    return made


def function(op: Op) -> Callable[..., Tensor]:
    """The public function of a record: operands first, then its static arguments, then ``out_dtype``.

    Example:
        >>> import autoq as aq
        >>> from autoq.tape.op import REGISTRY
        >>> function(REGISTRY["sum"])(aq.tensor([[1.0, 2.0]]), 1)
        tensor([3.], float32)
    """
    defaults = _defaults(op)
    statics = frozenset(op.statics)
    count = 1 if op.variadic else len(op.operands)
    required = statics - set(op.defaults)
    tails = {
        n: tuple(defaults[o] for o in op.operands[n:])
        for n in range(count + 1)
        if set(op.operands[n:]) <= set(defaults)
    }

    def call(*arguments: Any, out_dtype: Any = None, **named: Any) -> Tensor:
        tail = tails.get(len(arguments))
        unlike = (named or required) and not (required <= named.keys() and named.keys() <= statics)
        if tail is None or unlike:
            if op.widens and "dtype" in named:
                return _cast_first(call, op, arguments, named, out_dtype)
            arguments, named = _bound(op, defaults, arguments, named)
        elif tail:
            arguments += tail
        return run(op, sequence(op, arguments[0]) if op.variadic else arguments, named, out_dtype)

    call.op = op  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = op.doc or op.forward.__doc__
    call.__module__ = "autoq"
    call.__signature__ = _signature(op, defaults)  # type: ignore[attr-defined]
    return call


def sequence(op: Op, given: Any) -> tuple[Any, ...]:
    """The operands of an op that takes a sequence of them."""
    try:
        return tuple(given)
    except TypeError:
        raise DTypeError(
            f"{op.name}: a {type(given).__name__} for {op.operands[0]}.",
            "a list or tuple of tensors",
            "Put the tensors into a list.",
        ) from None


def _cast_first(
    call: Callable[..., Tensor], op: Op, arguments: tuple[Any, ...], named: dict[str, Any], out_dtype: Any
) -> Tensor:
    """The standard's ``dtype=`` of sums and products: the operand is cast to it, and the result has it."""
    dtype = named.pop("dtype")
    if dtype is not None:
        name = op.operands[0]
        if not arguments and name not in named:
            raise _misuse(op, arguments, named, (*op.operands, *op.statics))
        x = as_tensor(arguments[0] if arguments else named.pop(name, None)).astype(dtype)
        arguments = (x, *arguments[1:])
    return call(*arguments, out_dtype=dtype if out_dtype is None else out_dtype, **named)


def _bound(
    op: Op, defaults: dict[str, Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands and static arguments of a call that gave some of either by position or by name."""
    names = (*op.operands, *op.statics)
    bound = dict(zip(names, arguments, strict=False))
    if len(arguments) > len(names) or not named.keys() <= set(names) - set(bound):
        raise _misuse(op, arguments, named, names)
    bound = {**defaults, **bound, **named}
    if any(n not in bound for n in names):
        raise _misuse(op, arguments, named, names)
    return tuple(bound[n] for n in op.operands), {n: bound[n] for n in op.statics}


def _defaults(op: Op) -> dict[str, Any]:
    try:
        parameters = inspect.signature(op.forward).parameters.values()
    except ValueError:  # NumPy ufuncs
        return {}
    return {
        p.name: p.default
        for p in parameters
        if p.default is not p.empty and p.name in (*op.operands, *op.statics)
    }


def _signature(op: Op, defaults: dict[str, Any]) -> inspect.Signature:
    empty = inspect.Parameter.empty
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters: list[inspect.Parameter] = []
    for name in (*op.operands, *op.statics):
        default = defaults.get(name, empty)
        if default is empty and parameters and parameters[-1].default is not empty:
            kind = inspect.Parameter.KEYWORD_ONLY  # nothing without a default may follow by position
        parameters.append(inspect.Parameter(name, kind, default=default))
    if op.widens:
        parameters.append(inspect.Parameter("dtype", inspect.Parameter.KEYWORD_ONLY, default=None))
    parameters.append(inspect.Parameter("out_dtype", inspect.Parameter.KEYWORD_ONLY, default=None))
    return inspect.Signature(parameters)


def _misuse(
    op: Op, arguments: tuple[Any, ...], named: dict[str, Any], names: tuple[str, ...]
) -> ArgumentError:
    given = f"{len(arguments)} positional arguments" + (f" and {', '.join(named)}" if named else "")
    return ArgumentError(
        f"{op.name}: called with {given}.",
        f"({', '.join(names)}, out_dtype=None)",
        f"See help(aq.{op.name}).",
    )
