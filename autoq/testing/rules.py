"""Gradient rules with something around them: parts left out, a residual noted."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from autoq.tape.gradient import _call, _raw_value
from autoq.tape.namespace import RAW
from autoq.tape.node import Node
from autoq.tape.op import Op
from autoq.tape.tensor import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


def around(op: Op, before: Callable[[Any, Any], Any], after: Callable[[Any, Any, Any], Any]) -> Op:
    """The record with rules that see ``before(F, g)`` and return ``after(F, g, d)``."""
    assert not isinstance(op.vjp, str)

    def changed(rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def around_rule(F: Any, g: Any, *reads: Any) -> Any:  # noqa: N803
            g = before(F, g)
            return after(F, g, rule(F, g, *reads))

        around_rule.__signature__ = inspect.signature(rule)  # type: ignore[attr-defined]
        return around_rule

    return replace(op, vjp={name: changed(rule) for name, rule in op.vjp.items()})


def without(op: Op, kept: Array | None, regular: Array | None) -> Op:
    """The record with no gradient through what is left out."""

    def before(F: Any, g: Any) -> Any:  # noqa: N803
        return g if kept is None else F.where(kept, g, 0.0)

    def after(F: Any, g: Any, d: Any) -> Any:  # noqa: N803
        return d if regular is None else F.where(regular, d, 0.0)

    return around(op, before, after)


def noting_residual(op: Op, note: Callable[[Array], None]) -> Op:
    """The record with a rule that notes by how much it changed the gradient."""

    def after(F: Any, g: Any, d: Any) -> Any:  # noqa: N803
        if not isinstance(d, Tensor):
            note(np.asarray(d, np.float64) - g)
        return d

    return around(op, lambda F, g: g, after)


def slopes(node: Node, shape: tuple[int, ...]) -> dict[int, Array]:
    """By operand of an element-wise op, the derivative that its rule gives at every element."""
    found: dict[int, Array] = {}
    values: dict[Any, Any] = {}
    ones = np.ones(shape)
    with np.errstate(all="ignore"):
        for i, parent in enumerate(node.parents):
            if parent is not None:
                d = _call(node, i, RAW, ones, values, _raw_value)
                found[i] = np.broadcast_to(d, shape) if np.ndim(d) <= len(shape) else np.asarray(d)
    return found
