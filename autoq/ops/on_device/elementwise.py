"""Element-wise ops on GPUs: forward and gradient rules traced to expressions, each computed in one launch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from autoq.context import OBSERVERS, launched
from autoq.devices import SEVERAL
from autoq.kernels.cuda.launch import SIMULATED, current_device, library
from autoq.kernels.cuda.map import Launches, alignment, by_addresses, by_arrays, encodes, launch, planned
from autoq.kernels.cuda.operand import FLOATS, Packed
from autoq.kernels.cuda.trace import Traced, traced
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.storage.allocation import Allocation
from autoq.storage.convert import nearest
from autoq.storage.inputs import converted
from autoq.storage.plan import codec_of
from autoq.storage.qtensor import make_late
from autoq.tape.accelerated import ELEMENTWISE, accelerate, accelerate_rule
from autoq.tape.namespace import Namespace
from autoq.tape.op import REGISTRY, Op, Rule, has_its_name
from autoq.types import float32, float64

make_late()
Key = tuple[Any, ...]
Shape = tuple[int, ...]
NUMBERS = frozenset({float, int, bool})
LAUNCH = by_arrays if SIMULATED else by_addresses
# What static arguments may be, so that two calls with equal ones are the same expression.
PLAIN = (float, int, bool, str, type(None))
# Forwards that look at dtypes in a way that symbols have no answer for.
FORWARDS: dict[str, Callable[..., Any]] = {"where": np.where}
TRACED = Namespace(lambda op: traceable(op))

# What is known of calls by all that decides it; None for those that are left to CuPy.
_known: dict[Key, Any] = {}
UNKNOWN = object()
CALLS = 4096


class Call(NamedTuple):
    """How a function of stored operands is computed.

    Attributes:
        launches: The kernels.
        numbers: What the expression takes: a number, or the position of the operand that is one.
        cast: Positions of arrays of integers, which are converted first.
        result: Makes the array or QTensor to write.
        size: Values of the result.
    """

    launches: Launches
    numbers: tuple[tuple[float | None, int], ...]
    cast: tuple[int, ...]
    result: Callable[[], Any]
    size: int


@accelerate(ELEMENTWISE)
def elementwise(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """The forward of an element-wise op: decoded, computed and encoded in one launch.

    A result whose scheme needs more than its blocks' largest magnitudes is returned as float32.
    """
    if (compute is not float32 and compute != float32) or op.variadic:
        return of_integers(op, values) if np.dtype(compute).kind in "iu" else NotImplemented
    key = plain_key(static) if static else ()
    if key is None:
        return NotImplemented
    if op.kind == "index" and set(kinds_of(values, whole=True) or "") >= {"f", "i"}:
        return op.forward(*[as_float64(x) for x in values])
    return computed((op, key), forward_expression, values, out, whole=op.kind != "index")


def of_integers(op: Op, values: Any) -> Any:
    """What CuPy computes of integers by way of float64, which hasn't room for those of 64 bits."""
    if op.name in ("floor", "ceil", "trunc"):
        return values[0].copy()
    if op.name != "fmod":
        return NotImplemented
    a, b = values
    rest = np.remainder(a, b)  # with the sign of b
    return np.where((rest != 0) & ((rest < 0) != (a < 0)), rest - b, rest)


def computed(
    what: tuple[Any, Key],
    trace: Callable[..., Traced | None],
    values: Any,
    out: Any,
    whole: bool = True,
    into: Any = None,
) -> Any:
    """The result of a function of stored operands by kernels, or NotImplemented.

    Args:
        what: The function and its static arguments.
        trace: ``trace(function, kinds, static) -> Traced``, or None where it has no expression.
        values: The operands.
        out: The dtype or scheme wanted.
        whole: Whether arrays of integers pass as floats.
        into: The array to write to, of the result's shape and dtype, C-contiguous and aligned to 16 bytes; an
            operand may be the same array.
    """
    parts = [x.signature if x.__class__ is QTensor else signature(x) for x in values]
    key = (*what, out, current_device() if SEVERAL else 0, *parts)
    call = _known.get(key, UNKNOWN)
    if call is UNKNOWN:
        if len(_known) >= CALLS:
            _known.clear()
        call = _known[key] = prepared(what, trace, values, out, whole)
    if call is None:
        return NotImplemented
    launches, numbers, cast, make, size = call
    if cast:
        values = [x.astype(float32) if i in cast else x for i, x in enumerate(values)]
    result = make() if into is None else into
    if numbers:
        numbers = [float(values[i]) if number is None else number for number, i in numbers]
    launch(launches, values, result, numbers, LAUNCH)
    if OBSERVERS:
        launched("map", size)
    return result


def signature(x: Any) -> Any:
    """What a call depends on of an operand that isn't packed."""
    kind = x.__class__
    if kind in NUMBERS or not hasattr(x, "strides"):
        return kind
    if kind is np.ndarray and not SIMULATED:
        return np.ndarray  # on the host
    return x.dtype.char, x.shape, x.strides, offset(x)


def offset(x: Any) -> int:
    """Bytes that an array's first element is beyond a multiple of 16."""
    return alignment(x) if SIMULATED else x.data.ptr & 15


def prepared(
    what: Any, trace: Callable[..., Traced | None], values: Any, out: Any, whole: bool
) -> Call | None:
    """How it is computed; None for what kernels don't compute, or what the op's forward refuses."""
    kinds = kinds_of(values, whole)
    if kinds is None or not (whole or "f" in kinds):
        return None
    found = trace(*what[:1], kinds, what[1])
    try:
        shape = np.broadcast_shapes(*[getattr(x, "shape", ()) for x in values])
    except ValueError:
        return None
    make = None if found is None or 0 in shape else maker(out, shape, found.expression.kind)
    if found is None or make is None:
        return None
    cast = tuple(i for i, kind in enumerate(kinds) if kind == "i")
    operands = [as_operand(x.astype(float32) if i in cast else x) for i, x in enumerate(values)]
    places = iter([i for i, kind in enumerate(kinds) if kind == "n"])
    numbers = [(number, next(places) if number is None else -1) for number in found.numbers]
    used = tuple(numbers[step[1]] for step in found.expression.steps if step[0] == "number")
    launches = planned(found.expression, operands, as_operand(make()))
    return Call(launches, used, cast, make, int(np.prod(shape)))


def as_float64(x: Any) -> Any:
    """Floats beside integers, with which CuPy would compare float32's subnormals as zeros."""
    x = x.dequantize() if x.__class__ is QTensor else x
    return converted(x, float64) if x.dtype.name in FLOATS else x


def kinds_of(values: Any, whole: bool) -> str | None:
    """One letter an operand, as ``traced`` takes them; None for what no kernel reads.

    ``whole`` lets arrays of integers pass as floats, as ``"i"``.
    """
    kinds = ""
    for x in values:
        dtype = getattr(x, "dtype", None)
        if x.__class__ in NUMBERS:
            kinds += "n"
        elif dtype is None or (x.__class__ is np.ndarray and not SIMULATED):
            return None
        elif x.__class__ is QTensor or dtype.name in FLOATS:
            kinds += "f"
        elif dtype.kind == "b":
            kinds += "b"
        elif dtype.kind in "iu" and whole:
            kinds += "i"
        else:
            return None
    return kinds


def plain_key(static: dict[Any, Any]) -> Key | None:
    """Static arguments as a key that tells 1 from 1.0 and 0.0 from -0.0; None if they aren't plain."""
    if any(type(value) not in PLAIN for value in static.values()):
        return None
    return tuple((name, value, repr(value)) for name, value in static.items())


def traceable(op: Op) -> Callable[..., Any]:
    """An op's forward without a look at what comes out, which custom ops take."""
    return (FORWARDS.get(op.name) if has_its_name(op) else None) or inspect.unwrap(op.forward)


@lru_cache(maxsize=1024)
def forward_expression(op: Op, kinds: str, key: Key) -> Traced | None:
    """The expression of an op's forward; None where it has none."""
    if op.name == "where" and kinds[0] != "b" and has_its_name(op):
        return None  # refused by the forward
    return traced(traceable(op), kinds.replace("i", "f"), {name: value for name, value, _ in key})


def as_operand(x: Any) -> Any:
    """A stored value as kernels take it; of a number None."""
    if x.__class__ is not QTensor:
        return None if x.__class__ in NUMBERS else x
    scheme, layout = x.scheme, x.layout
    order = None if layout.is_identity else layout.order
    codec, extents = codec_of(nearest(scheme)), scheme.block or ()
    return Packed(x.words, x.scales, x.tensor_scale, codec, extents, x.storage_shape, order)


def maker(out: Any, shape: Shape, kind: str) -> Callable[[], Any] | None:
    """What makes the QTensor or array that a result is written into; None for what kernels don't give."""
    if isinstance(out, QuantScheme):
        return packed_maker(out, shape) or partial(library().ndarray, shape, float32)
    if out.kind == "b":
        return partial(library().ndarray, shape, np.bool_) if kind == "b" else None
    return partial(library().ndarray, shape, out if out.name in FLOATS else float32)


def new_packed(scheme: QuantScheme, shape: Shape) -> QTensor | None:
    """A QTensor to encode into, whose arrays nothing has written yet; None where a launch can't."""
    make = packed_maker(scheme, shape)
    return None if make is None else make()


@lru_cache(maxsize=1024)
def packed_maker(scheme: QuantScheme, shape: Shape) -> Callable[[], QTensor] | None:
    """What makes a QTensor to encode into; None where that takes more than the launch that computes it."""
    if not shape or scheme.nonfinite == "raise":
        return None
    scheme = scheme.innermost(len(shape))
    if not encodes(codec_of(nearest(scheme)), scheme.block or ()):
        return None
    return partial(QTensor.within, Allocation(scheme, shape, library()))


@lru_cache(maxsize=1024)
def rule_expression(rule: Rule, kinds: str, key: Key) -> Traced | None:
    """The expression of a gradient rule: the cotangent is operand 0, what it reads are the others."""
    given = {at: value for at, value, _ in key}

    def function(g: Any, *read: Any) -> Any:
        arguments = [given[at] if at in given else read[at] for at in range(len(read))]
        return rule.function(TRACED, g, *arguments)

    return traced(function, kinds.replace("i", "f"))


def by_rule(rule: Rule) -> Callable[..., Any]:
    """A gradient rule computed in one launch, on operands as they are stored."""
    shapes = any(read.source not in ("value", "static") for read in rule.reads)
    passes = rule_expression(rule, "f", ()) if not rule.reads else None
    alone = passes is not None and passes.expression.steps == (("operand", 0),)

    def function(g: Any, *read: Any, over: bool = False) -> Any:
        if alone:
            return g  # the cotangent as it is
        if shapes or g.dtype != float32:
            return NotImplemented
        fixed = {at: x for at, x in enumerate(read) if x.__class__ in PLAIN}
        key = plain_key(fixed)
        if key is None:
            return NotImplemented
        values = (g, *[0.0 if at in fixed else x for at, x in enumerate(read)]) if fixed else (g, *read)
        into = g if over and g.flags.c_contiguous and not offset(g) else None
        return computed((rule, key), rule_expression, values, float32, into=into)

    return function


for _op in REGISTRY.values():
    if _op.elementwise and _op.differentiable:
        for _name, _rule in zip(_op.operands, _op.rules, strict=True):
            if _rule is not None:
                accelerate_rule(_op.name, _name, over=True)(by_rule(_rule))
