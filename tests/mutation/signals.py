"""Where rounding happens broken in turn: encodes in rules, encodes left out, encodes mixed up."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.tape import apply as applying
from autoq.tape.op import REGISTRY, Op
from autoq.tape.tensor import Tensor
from autoq.testing import evaluate, events
from autoq.types import TensorType, float32
from tests.mutation import programs
from tests.mutation.mutant import Check, Mutant
from tests.mutation.source import returned
from tests.ops import registry

SCHEMES = ("mxfp4", "int8")
# Rules that use the op's output, right while that isn't encoded.
FROM_OUTPUT: dict[str, Callable[[Any, Any], Any]] = {
    "exp": lambda g, y: g * y,
    "exp2": lambda g, y: g * y * math.log(2),
    "expm1": lambda g, y: g * (y + 1),
    "tanh": lambda g, y: g * (1 - y * y),
    "sigmoid": lambda g, y: g * y * (1 - y),
    "sqrt": lambda g, y: g * 0.5 / y,
    "rsqrt": lambda g, y: g * -0.5 * y**3,
    "reciprocal": lambda g, y: -g * y * y,
    "cbrt": lambda g, y: g / (3 * y * y),
    "tan": lambda g, y: g * (1 + y * y),
    "relu": lambda g, y: g * (y > 0),
}
ON_GRID = "its results are values of the operand's grid under scales no larger: none of them rounds to 0"


def mutants() -> Iterator[Mutant]:
    """All of them."""
    yield from encoding_rules()
    yield from reading_rules()
    yield from skipped_encodes()
    yield from broken_replays()


def packed_scheme(values: tuple[Any, ...]) -> QuantScheme | None:
    """The scheme of the packed operands, if there are any."""
    return next((v.scheme for v in values if isinstance(v, QTensor)), None)


def rounded(d: Any, scheme: QuantScheme | None) -> Any:
    """An array encoded and decoded again."""
    if scheme is None or isinstance(d, Tensor) or not np.ndim(d):
        return d
    return QTensor.encode(np.asarray(d), scheme.innermost(np.ndim(d))).dequantize(d.dtype)


def encoding_rules() -> Iterator[Mutant]:
    """Rules that encode their result as the operands are; on dense operands they are right."""
    for _, op in sorted(REGISTRY.items()):
        if isinstance(op.vjp, str) or op.kind in ("cast", "update"):
            continue
        for name, rule in op.vjp.items():
            why = "an encoded 0 is 0" if returned(rule) == "g * 0.0" else ""
            checks = quantized_checks(encoding(op, name))
            yield Mutant("encodes in backward", op.name, f"d/d{name} encoded", checks, equivalent=why)


def encoding(op: Op, name: str) -> Op:
    """The record whose rule for an operand encodes its result."""
    assert not isinstance(op.vjp, str)
    rule, before = op.vjp[name], op.residual
    parameters = list(inspect.signature(rule).parameters.values())

    def encoded(F: Any, g: Any, *reads: Any) -> Any:  # noqa: N803
        return rounded(rule(F, g, *reads[:-1]), reads[-1])

    extra = inspect.Parameter("packed_scheme", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    encoded.__signature__ = inspect.Signature([*parameters, extra])  # type: ignore[attr-defined]

    def residual(values: tuple[Any, ...], static: dict[str, Any]) -> dict[str, Any]:
        kept = {} if before is None else before(values, static)
        return {**kept, "packed_scheme": packed_scheme(values)}

    return replace(op, vjp={**op.vjp, name: encoded}, residual=residual)


def quantized_checks(op: Op) -> list[Check]:
    """The registry's check of gradients by packed operands, and the one through rounding."""
    cases = registry.samples(op.name)

    def registry_check() -> None:
        for operands, static in cases:
            for scheme in SCHEMES:
                registry.check_quantized_gradient(op, operands, static, scheme)

    def frozen_check() -> None:
        for operands, static in cases:
            program, inputs = programs.packed(op, operands, static)
            if inputs:
                programs.frozen(program, inputs)

    return [("quantized gradient", registry_check), ("through rounding", frozen_check)]


def reading_rules() -> Iterator[Mutant]:
    """Rules that read the output as it was encoded, where they should compute it from the operand."""
    for name, formula in FROM_OUTPUT.items():
        op = REGISTRY[name]
        assert not isinstance(op.vjp, str)
        for encode, what in ((False, "reads the output"), (True, "reads the encoded output")):
            made = reading(op, formula, encode)
            if encode:
                why = ON_GRID if name == "relu" else ""
                yield Mutant("reads the encoded output", name, what, quantized_checks(made), equivalent=why)
            else:
                for operands, static in registry.samples(name):
                    registry.check_gradient(made, operands, static)


def reading(op: Op, formula: Callable[[Any, Any], Any], encode: bool) -> Op:
    """The unary record with a rule made of its output."""

    def residual(values: tuple[Any, ...], static: dict[str, Any]) -> dict[str, Any]:
        x = values[0].dequantize() if isinstance(values[0], QTensor) else values[0]
        y = np.asarray(op.forward(np.asarray(x), **static))
        return {"output": rounded(y, packed_scheme(values)) if encode else y}

    return replace(op, vjp={op.operands[0]: lambda F, g, output: formula(g, output)}, residual=residual)


def skipped_encodes() -> Iterator[Mutant]:
    """An op on packed operands that leaves its result in float32; each op of kind float, and casts."""
    for _, op in sorted(REGISTRY.items()):
        if op.kind == "float":
            cases = registry.samples(op.name)

            checks = [("quantized operands", partial(quantized_operands, op, cases))]
            yield Mutant(
                "encode skipped", op.name, "result left in float32", checks, partial(left_dense, op.name)
            )
    for name, cast in (("quantize", programs.quantized), ("propagated", programs.layers)):
        checks = [
            (
                "production",
                partial(programs.production, cast, programs.arrays(1 if name == "quantize" else 2)),
            )
        ]
        yield Mutant("encode skipped", name, "not in the float64 run", checks, event_skipped)


def quantized_operands(op: Op, cases: list[Any]) -> None:
    """The registry's check of what packed operands give."""
    for operands, static in cases:
        for scheme in SCHEMES:
            registry.check_quantized_operands(op, operands, static, scheme)


@contextmanager
def left_dense(name: str) -> Iterator[None]:
    """Results of one op aren't encoded."""
    encoded, run = applying.encoded, applying._RUN["float"]

    def skipped(value: Any, out_type: TensorType, reduced_last: bool = False) -> Any:
        if not isinstance(out_type.dtype, QuantScheme):
            return encoded(value, out_type, reduced_last)
        return value.astype(float32, copy=False), TensorType(float32, out_type.propagation)

    def run_float(op: Op, *rest: Any) -> Any:
        applying.encoded = skipped if op.name == name else encoded
        return run(op, *rest)

    applying._RUN["float"] = run_float
    try:
        yield
    finally:
        applying.encoded, applying._RUN["float"] = encoded, run


@contextmanager
def event_skipped() -> Iterator[None]:
    """The float64 run forgets its first encode."""
    encode, skipped = evaluate.Evaluated.encode, []

    def forgetful(self: Any, call: Any) -> None:
        if skipped or self.encoder is None:
            encode(self, call)
        else:
            skipped.append(call)
            call.value = np.asarray(call.dense)

    evaluate.Evaluated.encode = forgetful
    try:
        yield
    finally:
        evaluate.Evaluated.encode = encode


def broken_replays() -> Iterator[Mutant]:
    """Replays with the events of two encodes exchanged, or one left out."""
    for first, second in ((0, 1), (1, 2), (0, 2), (2, 3)):
        check = partial(programs.frozen, programs.layers, programs.arrays(2))
        change = f"encodes {first} and {second} exchanged"
        yield Mutant(
            "events swapped", "replay", change, [("through rounding", check)], partial(swapped, first, second)
        )


@contextmanager
def swapped(first: int, second: int) -> Iterator[None]:
    """Replays that take each other's values of two encodes."""
    rewind = events.Calls.rewind

    def exchange(self: Any) -> None:
        rewind(self)
        if not hasattr(self, "exchanged"):
            self.exchanged = True
            encodes = [c for c in self.made if c.event is not None]
            a, b = encodes[first], encodes[second]
            a.event, b.event = b.event, a.event

    events.Calls.rewind = exchange
    try:
        yield
    finally:
        events.Calls.rewind = rewind
