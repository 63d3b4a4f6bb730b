"""Registering element-wise ops made from a NumPy function: record, sample and docstring in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoq.ops.docs import documented
from autoq.ops.samples import Sample
from autoq.tape.op import Op, register

Rule = Callable[..., Any]


def unary_op(
    name: str, ufunc: Callable[..., Any], rule: Rule, sample: Sample, *doc: str, integers: bool = False
) -> None:
    """Register ``name(x)``; ``doc`` is the summary, a call, and what it prints."""
    register(
        Op(
            name,
            ufunc,
            {"x": rule},
            elementwise=True,
            operands=("x",),
            integers=integers,
            sample=sample,
            doc=documented(("x",), *doc),
        )
    )


def binary_op(
    name: str,
    ufunc: Callable[..., Any],
    rules: tuple[Rule, Rule],
    sample: Sample,
    *doc: str,
    integers: bool = False,
) -> None:
    """Register ``name(a, b)``; the rules are those of a and b."""
    register(
        Op(
            name,
            ufunc,
            dict(zip("ab", rules, strict=True)),
            elementwise=True,
            operands=("a", "b"),
            integers=integers,
            sample=sample,
            doc=documented(("a", "b"), *doc),
        )
    )


def flat(F: Any, g: Any) -> Any:
    """The rule of a piecewise constant op: its gradient is 0."""
    return g * 0.0
