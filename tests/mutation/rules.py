"""Every gradient rule of every record broken in turn: by what is done to its result, and in its source."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, wraps
from types import CodeType, FunctionType
from typing import Any

from autoq.tape.op import REGISTRY, Op
from tests.mutation import programs, suite
from tests.mutation.mutant import Check, Mutant
from tests.mutation.source import callees, edits, place, returned, with_code
from tests.ops import registry

RESULTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sign flipped": lambda F, g, d: -d,
    "factor 2": lambda F, g, d: 2.0 * d,
    "result dropped": lambda F, g, d: d * 0.0,
    "cotangents added": lambda F, g, d: d + F.sum(g),
}
NEGATIVE = "a slice may count from the end: [-n:] is [len - n:], [:-n] is [:len - n]"
ONE_AXIS = "that branch is of vectors, whose axis -1 is axis 1 of the result"
EQUIVALENT = {
    ("matmul._matmul_b", "sign flipped in F.expand_dims(a, axis=-1)"): ONE_AXIS,
    ("windows._unfold_x", "first term missing in len(x_shape) - len(kernel)"): NEGATIVE,
    ("adaptive_pooling._rule.<locals>.<lambda>", "first term missing in len(x_shape) - rank"): NEGATIVE,
    ("pooling._avg_rule.<locals>.rule", "first term missing in len(x_shape) - rank"): NEGATIVE,
}
ZERO = "0 times what a rule of zeros gives is what it gives"
# The tests of single ops: gradients set by convention, at kinks and zeros, or cut.
TESTS = ("tests/ops", "--ignore=tests/ops/test_registry.py", "--ignore=tests/ops/test_op_docs.py")


def differentiable() -> list[Op]:
    """The records with rules, casts included."""
    return [op for _, op in sorted(REGISTRY.items()) if op.differentiable]


def checks(op: Op) -> list[Check]:
    """What a record's rules are checked by: the registry's loop, or programs for casts."""
    if op.kind == "cast":
        return programs.casts(op.name)
    cases = registry.samples(op.name)
    named = f"{op.name} or {inspect.getmodule(op.sample).__name__.rpartition('.')[2]}"
    return [
        ("gradient", partial(_each, registry.check_gradient, op, cases)),
        ("second gradient", partial(_each, registry.check_second_gradient, op, cases)),
        ("tests of the op", partial(suite.tests, *TESTS, "-k", named)),
    ]


def _each(check: Callable[..., None], op: Op, cases: list[Any], *rest: Any) -> None:
    for operands, static in cases:
        check(op, operands, static, *rest)


def mutants_of_results() -> Iterator[Mutant]:
    """Each rule's result changed, and the rules of two operands exchanged."""
    for op in differentiable():
        assert not isinstance(op.vjp, str)
        for name, rule in op.vjp.items():
            for change, of in RESULTS.items():
                zero = returned(rule) == "g * 0.0" and change != "cotangents added"
                broken = {name: after(rule, of)}
                yield _mutant("rule's result", op, f"d/d{name} {change}", broken, ZERO if zero else "")
        names = list(op.vjp)
        for a, b in zip(names, names[1:], strict=False):
            exchanged = {a: op.vjp[b], b: op.vjp[a]}
            same = _same_program(op.vjp[a], op.vjp[b])
            why = "both rules are the same program" if same else ""
            yield _mutant("rules exchanged", op, f"d/d{a} and d/d{b} exchanged", exchanged, why)


def after(rule: Callable[..., Any], of: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """The rule with something done to its result."""

    @wraps(rule)
    def changed(F: Any, g: Any, *reads: Any) -> Any:  # noqa: N803
        return of(F, g, rule(F, g, *reads))

    changed.__signature__ = inspect.signature(rule)  # type: ignore[attr-defined]
    return changed


def _mutant(kind: str, op: Op, change: str, rules: dict[str, Any], equivalent: str = "") -> Mutant:
    assert not isinstance(op.vjp, str)
    broken = replace(op, vjp={**op.vjp, **rules})
    applied = partial(registered, broken)
    return Mutant(kind, op.name, change, checks(broken), applied, equivalent)


@contextmanager
def registered(op: Op) -> Iterator[None]:
    """A record in place of the one of its name."""
    before = REGISTRY[op.name]
    REGISTRY[op.name] = op
    try:
        yield
    finally:
        REGISTRY[op.name] = before


def _same_program(a: Callable[..., Any], b: Callable[..., Any]) -> bool:
    """Whether two rules read the same and do the same: equal instructions, constants, names and cells."""

    def program(rule: Any) -> tuple[Any, ...]:
        code, cells = rule.__code__, [c.cell_contents for c in rule.__closure__ or ()]
        return code.co_code, code.co_consts, code.co_names, code.co_varnames, cells

    return program(a) == program(b)


def mutants_of_source() -> Iterator[Mutant]:
    """Each sum, sign and product in a rule, or in what it calls, changed; in all closures of one source."""
    used: dict[tuple[str, int], dict[FunctionType, list[Op]]] = defaultdict(lambda: defaultdict(list))
    for op in differentiable():
        assert not isinstance(op.vjp, str)
        rules = [*op.vjp.values(), *filter(None, [op.shared])]
        for function in {f: None for rule in rules for f in callees(rule, "autoq.ops")}:
            used[place(function)][function].append(op)
    for functions in used.values():
        function = next(iter(functions))
        subject = f"{function.__module__.removeprefix('autoq.ops.')}.{function.__qualname__}"
        users = [check for ops in functions.values() for op in ops for check in checks(op)]
        users.sort(key=lambda check: check[0] == "tests of the op")
        for change, code in edits(function):
            why = EQUIVALENT.get((subject, change), "")
            applied = partial(with_codes, list(functions), code)
            yield Mutant("rule's source", subject, change, users, applied, why)


@contextmanager
def with_codes(functions: list[FunctionType], code: CodeType) -> Iterator[None]:
    """Closures of one source, all changed."""
    with ExitStack() as stack:
        for function in functions:
            stack.enter_context(with_code(function, code))
        yield
