"""Element-wise ops on GPUs: forward and gradient rules traced to expressions, each computed in one launch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from autoq.context import OBSERVERS, launched
from autoq.kernels.cuda.launch import SIMULATED, empty
from autoq.kernels.cuda.map import encodes, mapped
from autoq.kernels.cuda.operand import FLOATS, Packed
from autoq.kernels.cuda.trace import Traced, traced
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.storage.convert import nearest
from autoq.storage.layout import grid_shape, words_shape
from autoq.storage.plan import codec_of, plan_of
from autoq.tape.accelerated import ELEMENTWISE, accelerate, accelerate_rule
from autoq.tape.namespace import Namespace
from autoq.tape.op import REGISTRY, Op, Rule
from autoq.types import float32

NUMBERS = (float, int, bool)
# What static arguments may be, so that two calls with equal ones are the same expression.
PLAIN = (float, int, bool, str, type(None))
# Forwards that look at dtypes in a way that symbols have no answer for.
FORWARDS: dict[str, Callable[..., Any]] = {"where": np.where}
TRACED = Namespace(lambda op: traceable(op))


@accelerate(ELEMENTWISE)
def elementwise(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """The forward of an element-wise op: decoded, computed and encoded in one launch.

    A result whose scheme needs more than its blocks' largest magnitudes is returned as float32.
    """
    if compute != float32 or op.variadic:
        return NotImplemented
    kinds = kinds_of(values, whole=op.kind != "index")
    key = plain_key(static)
    if kinds is None or key is None or (op.kind == "index" and "f" not in kinds):
        return NotImplemented
    found = forward_expression(op, kinds, key)
    return NotImplemented if found is None else computed(found, values, kinds, out)


def kinds_of(values: Any, whole: bool) -> str | None:
    """One letter an operand, as ``traced`` takes them; None for what no kernel reads.

    ``whole`` lets arrays of integers pass as floats.
    """
    kinds = ""
    for x in values:
        if x.__class__ in NUMBERS:
            kinds += "n"
            continue
        dtype = getattr(x, "dtype", None)
        if dtype is None or (x.__class__ is np.ndarray and not SIMULATED):
            return None
        if x.__class__ is QTensor or dtype.name in FLOATS:
            kinds += "f"
        elif dtype.kind == "b":
            kinds += "b"
        elif dtype.kind in "iu" and whole:
            kinds += "i"
        else:
            return None
    return kinds


def plain_key(static: dict[str, Any]) -> tuple[Any, ...] | None:
    """Static arguments as a key that tells 1 from 1.0 and 0.0 from -0.0; None if they aren't plain."""
    if not static:
        return ()
    if any(type(value) not in PLAIN for value in static.values()):
        return None
    return tuple((name, value, repr(value)) for name, value in static.items())


def traceable(op: Op) -> Callable[..., Any]:
    """An op's forward without a look at what comes out, which custom ops take."""
    return FORWARDS.get(op.name) or inspect.unwrap(op.forward)


@lru_cache(maxsize=1024)
def forward_expression(op: Op, kinds: str, key: tuple[Any, ...]) -> Traced | None:
    """The expression of an op's forward; None where it has none."""
    return traced(traceable(op), kinds.replace("i", "f"), {name: value for name, value, _ in key})


def computed(found: Traced, values: Any, kinds: str, out: Any) -> Any:
    """An expression of stored operands, in ``out`` or, where that can't be encoded at once, in float32."""
    expression, numbers = found
    if "n" in kinds:
        given = iter([float(x) for x, kind in zip(values, kinds, strict=True) if kind == "n"])
        numbers = tuple([next(given) if number is None else number for number in numbers])
    if "i" in kinds:
        values = [x.astype(float32) if kind == "i" else x for x, kind in zip(values, kinds, strict=True)]
    operands = [None if kind == "n" else as_operand(x) for x, kind in zip(values, kinds, strict=True)]
    try:
        shape = np.broadcast_shapes(*[getattr(x, "shape", ()) for x in values])
    except ValueError:
        return NotImplemented  # the op's own forward says what is wrong
    result = new_result(out, shape, expression.kind)
    if result is None:
        return NotImplemented
    target = as_operand(result)
    mapped(expression, operands, numbers, target)
    if OBSERVERS:
        launched("map", result.size)
    return result


def as_operand(x: Any) -> Any:
    """A stored value as kernels take it."""
    if x.__class__ is not QTensor:
        return x
    scheme, layout = x.scheme, x.layout
    order = None if layout.is_identity else layout.order
    return Packed(
        x.words,
        x.scales,
        x.tensor_scale,
        codec_of(nearest(scheme)),
        scheme.block or (),
        x.storage_shape,
        order,
    )


def new_result(out: Any, shape: tuple[int, ...], kind: str) -> Any:
    """Where a result goes: a QTensor or an array whose values aren't written yet; None for an empty one."""
    if 0 in shape:
        return None
    if isinstance(out, QuantScheme):
        packed = new_packed(out, shape)
        return empty(shape, float32) if packed is None else packed
    if out.kind == "b":
        return empty(shape, np.bool_) if kind == "b" else None
    return empty(shape, out if out.name in FLOATS else float32)


def new_packed(scheme: QuantScheme, shape: tuple[int, ...]) -> QTensor | None:
    """A QTensor to encode into; None where that takes more than the launch that computes it."""
    if not shape or scheme.nonfinite == "raise":
        return None
    scheme = scheme.innermost(len(shape))
    if not encodes(codec_of(nearest(scheme)), scheme.block or ()):
        return None
    plan = plan_of(scheme)
    return QTensor.make(
        empty(words_shape(shape, plan.bits), np.uint32),
        empty(grid_shape(shape, scheme.extents(len(shape))), plan.scale_dtype),
        empty((), float32) if scheme.tensor_scale else None,
        scheme,
        shape,
    )


@lru_cache(maxsize=1024)
def rule_expression(rule: Rule, kinds: str, key: tuple[Any, ...]) -> Traced | None:
    """The expression of a gradient rule: the cotangent is operand 0, what it reads are the others."""
    given = {at: value for at, value, _ in key}

    def function(g: Any, *read: Any) -> Any:
        arguments = [given[at] if at in given else read[at] for at in range(len(read))]
        return rule.function(TRACED, g, *arguments)

    return traced(function, "f" + kinds.replace("i", "f"))


def by_rule(rule: Rule) -> Callable[..., Any]:
    """A gradient rule computed in one launch, on operands as they are stored."""
    shapes = any(read.source not in ("value", "static") for read in rule.reads)

    def function(g: Any, *read: Any) -> Any:
        if g.dtype != float32 or shapes:
            return NotImplemented
        fixed = {at: x for at, x in enumerate(read) if type(x) in PLAIN}
        arrays = [x for at, x in enumerate(read) if at not in fixed]
        kinds = kinds_of(arrays, whole=True)
        key = plain_key(fixed)  # type: ignore[arg-type]
        if kinds is None or key is None:
            return NotImplemented
        places = iter(kinds)
        letters = "".join("n" if at in fixed else next(places) for at in range(len(read)))
        found = rule_expression(rule, letters, key)
        if found is None:
            return NotImplemented
        if found.expression.steps == (("operand", 0),):
            return g  # the cotangent passes as it is
        return computed(
            found, (g, *[0.0 if at in fixed else x for at, x in enumerate(read)]), "f" + letters, float32
        )

    return function


for _op in REGISTRY.values():
    if _op.elementwise and _op.differentiable:
        for _name, _rule in zip(_op.operands, _op.rules, strict=True):
            if _rule is not None:
                accelerate_rule(_op.name, _name)(by_rule(_rule))
