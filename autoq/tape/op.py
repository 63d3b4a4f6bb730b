"""The Op record and its registry: one record is all that an operation needs (S18, S22)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from autoq.errors import ArgumentError

KINDS = ("float", "layout", "index", "cast", "loss", "update")
EVERY: Collection[int] = range(sys.maxsize)  # of a variadic op's operands, however many there are


class Read(NamedTuple):
    """One argument of a gradient rule: where its value comes from.

    Attributes:
        source: ``"value"`` (a decoded operand), ``"values"`` (all of a variadic op's), ``"shape"`` (an
            operand's shape), ``"shared"`` (what the rules have in common) or ``"static"``.
        key: The operand's position, or the static argument's name.
    """

    source: str
    key: Any


class Rule(NamedTuple):
    """The gradient rule of one operand: ``function(F, g, *reads)``."""

    function: Callable[..., Any]
    reads: tuple[Read, ...]


@dataclass(frozen=True, eq=False)
class Op:
    """An operation: how it computes, how it differentiates, what type it returns.

    Attributes:
        name: The public name.
        forward: Arrays in, array out. Positional parameters are the operands, keyword-only ones the static
            arguments. A ``cast`` gets stored values (ndarray or QTensor) and returns one.
        vjp: Gradient rules by operand name, or the reason why there are none. A rule is called with the op
            namespace ``F``, the cotangent ``g`` and what its further parameters name: an operand (its decoded
            value), ``<operand>_shape``, or a static argument. What no rule names is not saved.
        kind: ``"float"`` decodes, computes, encodes once (S5-S15); ``"layout"`` moves values (S21, S34-S36);
            ``"index"`` returns bool or int, untracked (S16); ``"cast"`` changes the dtype (S3); ``"loss"``
            decodes and returns float32 or float64 (S14); ``"update"`` changes entries of its first operand
            and keeps that one's type (S12).
        elementwise: The forward is a broadcasting map, so packed operands run tile by tile.
        reduction: It takes ``axis`` and ``keepdims`` (S13).
        accumulates: It sums products or values, in float64 under ``precision="exact"`` (S15).
        integers: On bool and integer operands alone it returns what NumPy returns, not float32.
        widens: On those alone it works in and returns int64, or uint64 of unsigned ones, as sums do; its
            public function takes the array API standard's ``dtype=``.
        variadic: The operands are one sequence; ``vjp["*"]`` may read ``i``, ``shapes``, and all of them by
            the sequence's name.
        packed: For layout ops: ``packed(q, **static) -> (QTensor, how)``.
        operands: Operand names, where the forward has no signature (NumPy ufuncs).
        residual: What a rule needs beside the operands: ``residual(values, static) -> dict`` of arrays,
            saved under names that rules may read like static arguments; run only when the call is recorded.
        sign_shows: The rule reads of the only operand no more than where it is above zero, which the output
            shows. Where it does so in its format too, it is saved instead, as the next op often saves it.
        shared: What several rules compute alike from the operands: ``shared(F, *reads)``, run once a backward
            for all rules with a parameter ``shared``, and then dropped.
        sample: ``sample(rng)`` lists ``(operands, static)`` in the op's smooth domain, for the registry
            tests.
        doc: The public docstring; the forward's own if empty.
        differentiable: Whether it has gradient rules.
    """

    name: str
    forward: Callable[..., Any]
    vjp: Mapping[str, Callable[..., Any]] | str
    kind: str = "float"
    elementwise: bool = False
    reduction: bool = False
    accumulates: bool = False
    integers: bool = False
    widens: bool = False
    variadic: bool = False
    packed: Callable[..., Any] | None = None
    operands: tuple[str, ...] = ()
    residual: Callable[..., Any] | None = None
    sign_shows: bool = False
    shared: Callable[..., Any] | None = None
    sample: Callable[..., Any] | None = None
    doc: str = ""
    differentiable: bool = field(default=True, init=False)
    statics: tuple[str, ...] = field(default=(), init=False)
    defaults: Mapping[str, Any] = field(default_factory=dict, init=False)
    optional: frozenset[str] = field(default=frozenset(), init=False)
    rules: tuple[Rule | None, ...] = field(default=(), init=False)
    shared_reads: tuple[Read, ...] = field(default=(), init=False)
    reads: dict[int, Collection[int]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ArgumentError(
                f"op {self.name}: kind {self.kind!r}.", ", ".join(KINDS), "Choose one of these."
            )
        operands, statics = _signature(self)
        object.__setattr__(self, "differentiable", not isinstance(self.vjp, str))
        object.__setattr__(self, "operands", operands)
        object.__setattr__(self, "statics", statics)
        object.__setattr__(self, "defaults", _defaults(self))
        object.__setattr__(self, "optional", _optional(self))
        object.__setattr__(self, "rules", _rules(self))
        if self.shared is not None:
            object.__setattr__(self, "shared_reads", tuple(_reads(self, self.shared, after=1)))

    def reads_of(self, needs: int) -> Collection[int]:
        """The operands whose values are read by the rules of those in the bit set ``needs``; kept."""
        rules = self.rules * needs.bit_length() if self.variadic else self.rules
        chosen = [rule for i, rule in enumerate(rules) if rule is not None and needs >> i & 1]
        reads = [r for rule in chosen for r in rule.reads]
        if any(r.source == "shared" for r in reads):
            reads += self.shared_reads
        if any(r.source == "values" for r in reads):
            return self.reads.setdefault(needs, EVERY)
        found = frozenset(int(r.key) for r in reads if r.source == "value")
        return self.reads.setdefault(needs, found)

    def __repr__(self) -> str:
        return f"Op({self.name!r}, kind={self.kind!r}, operands={self.operands})"


REGISTRY: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add a record to the registry, from which operators, gradients and tests find it.

    Raises:
        ArgumentError: The name is taken.
    """
    if op.name in REGISTRY:
        raise ArgumentError(f"op {op.name!r} is registered already.", "a new name", "Choose another name.")
    REGISTRY[op.name] = op
    return op


def has_its_name(op: Op) -> bool:
    """Whether the op is the registry's of its name: an op of one's own may be called like another one.

    Kernels and their promises are a name's: another op runs its own function, and its rules may keep what
    they get.

    Example:
        >>> import autoq as aq
        >>> softmax = aq.custom_op(lambda x: x, vjp=lambda F, g: g, name="softmax")
        >>> has_its_name(aq.softmax.op), has_its_name(softmax.op)
        (True, False)
    """
    return REGISTRY.get(op.name) is op


def _signature(op: Op) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the operands and of the static arguments."""
    if isinstance(op.forward, np.ufunc):  # its keywords (out, where, ...) are none of ours
        return op.operands, ()
    if op.operands:
        parameters = inspect.signature(op.forward).parameters.values()
        return op.operands, tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    parameters = inspect.signature(op.forward).parameters.values()
    positional = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
    return positional, tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def _defaults(op: Op) -> dict[str, Any]:
    """The static arguments that may be left out, with their values."""
    if not op.statics:
        return {}
    parameters = inspect.signature(op.forward).parameters
    return {
        n: parameters[n].default for n in op.statics if parameters[n].default is not inspect.Parameter.empty
    }


def _optional(op: Op) -> frozenset[str]:
    """The operands that may be None."""
    if isinstance(op.forward, np.ufunc):
        return frozenset()
    parameters = inspect.signature(op.forward).parameters
    return frozenset(n for n in op.operands if n in parameters and parameters[n].default is None)


def _rules(op: Op) -> tuple[Rule | None, ...]:
    """One rule an operand, with what it reads; a variadic op has a single one."""
    if isinstance(op.vjp, str):
        return (None,) * len(op.operands)
    if op.variadic:
        return (Rule(op.vjp["*"], tuple(_reads(op, op.vjp["*"]))),)
    unknown = set(op.vjp) - set(op.operands)
    if unknown:
        raise ArgumentError(
            f"op {op.name}: gradient rules for {sorted(unknown)}.",
            f"operands {op.operands}",
            "Rename the rules.",
        )
    return tuple(
        Rule(op.vjp[name], tuple(_reads(op, op.vjp[name]))) if name in op.vjp else None
        for name in op.operands
    )


def _reads(op: Op, rule: Callable[..., Any], after: int = 2) -> list[Read]:
    """What the rule's parameters after ``F, g`` stand for."""
    names = list(inspect.signature(rule).parameters)[after:]
    shapes = {f"{name}_shape": i for i, name in enumerate(op.operands)}
    reads = []
    for name in names:
        if op.variadic and name in op.operands:
            reads.append(Read("values", None))
        elif name in op.operands:
            reads.append(Read("value", op.operands.index(name)))
        elif name in shapes:
            reads.append(Read("shape", shapes[name]))
        elif op.shared is not None and name == "shared":
            reads.append(Read("shared", name))
        else:
            reads.append(Read("static", name))
    return reads
