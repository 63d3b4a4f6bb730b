"""From a function of arrays to an expression: it is called once with symbols that note what is done to them.

An expression is a list of steps, each of which names the steps that it works on, so that what is computed
once is written once. It is hashable and depends on no array: kernels are made from it. Python's floats are
kept beside it as *numbers*, the parameters of a kernel, so that another learning rate is no other kernel;
integers and the few floats that formulas are full of (0, 1, 1/2) are part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .functions import NAMES, OPERATIONS

Step = tuple[Any, ...]
# Floats that are written into the code. Each choice here is another kernel.
WRITTEN = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
# NumPy's functions of two truth values that are operations of their own.
OF_TRUTHS = {
    **dict.fromkeys(("add", "maximum", "bitwise_or"), "logical_or"),
    **dict.fromkeys(("multiply", "minimum", "bitwise_and"), "logical_and"),
    **dict.fromkeys(("not_equal", "bitwise_xor"), "logical_xor"),
    "invert": "logical_not",
}


class Expression:
    """Steps from operands and numbers to a result; equal ones are one object.

    Attributes:
        steps: Tuples, in order of computation: ``("operand", i)``, ``("truth", i)`` (an operand of bools),
            ``("number", j)``, ``("constant", value)``, or the name of an operation followed by the steps
            that it takes.
        kind: ``"f"`` if the last step, the result, is a float32, ``"b"`` if it is a truth value.
        numbers: How many numbers it takes.

    Example:
        >>> traced(np.add, "ff").expression
        Expression(operand 0; operand 1; add 0 1)
    """

    __slots__ = ("__weakref__", "kind", "numbers", "steps")
    _made: dict[tuple[Step, ...], Expression] = {}
    steps: tuple[Step, ...]
    kind: str
    numbers: int

    def __new__(cls, steps: tuple[Step, ...]) -> Expression:
        # Constants of equal value and other types are other steps.
        key = tuple(step if step[0] != "constant" else (*step, repr(step[1])) for step in steps)
        made = cls._made.get(key)
        if made is None:
            made = object.__new__(cls)
            made.steps, made.kind = steps, kind_of(steps[-1])
            made.numbers = sum(step[0] == "number" for step in steps)
            made = cls._made.setdefault(key, made)
        return made

    def __repr__(self) -> str:
        return f"Expression({'; '.join(' '.join(map(str, step)) for step in self.steps)})"


class Traced(NamedTuple):
    """An expression and the numbers that one call of it takes."""

    expression: Expression
    numbers: tuple[float, ...]


def kind_of(step: Step) -> str:
    """``"f"`` for a step that gives a float32, ``"b"`` for a truth value."""
    name = step[0]
    if name == "constant":
        return "b" if isinstance(step[1], bool) else "f"
    if name in ("operand", "number"):
        return "f"
    return "b" if name == "truth" else OPERATIONS[name].gives


class Untraceable(TypeError):
    """What was done to a symbol is no step of an expression."""


def traced(
    function: Callable[..., Any], kinds: str | Sequence[str], static: dict[str, Any] | None = None
) -> Traced | None:
    """The expression of a function of NumPy calls and operators; None where it does anything else.

    Args:
        function: Arrays in, one array of their broadcast shape out.
        kinds: Of each operand: ``"f"`` floats, ``"b"`` bools, ``"n"`` one number.
        static: Its keyword arguments.

    Example:
        >>> found = traced(lambda x, slope: np.where(x > 0, x, slope * x), "fn")
        >>> found.expression
        Expression(operand 0; number 0; constant 0.0; greater 0 2; multiply 1 0; where 3 0 4)
        >>> traced(lambda x: x if x.sum() > 0 else -x, "f") is None
        True
    """
    tracer = Tracer()
    operands = [tracer.operand(i, kind) for i, kind in enumerate(kinds)]
    try:
        result = function(*operands, **(static or {}))
        if isinstance(result, np.ndarray) and result.ndim == 0:
            result = result.item()  # what np.array made of a symbol
        return tracer.finished(result)
    except Exception:  # a function may do anything to what isn't an array; then it is none for this
        return None


class Tracer:
    """The steps of one call, each noted once."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.places: dict[tuple[Any, ...], int] = {}
        self.numbers: list[float | None] = []

    def operand(self, i: int, kind: str) -> Symbol:
        """The symbol of an operand; a number's value comes with the call."""
        if kind == "n":
            self.numbers.append(None)
            return Symbol(self, self.add("number", len(self.numbers) - 1))
        return Symbol(self, self.add("truth" if kind == "b" else "operand", i))

    def add(self, name: str, *rest: Any) -> int:
        """The place of a step, which is new or was noted before."""
        key = (name, *rest, *map(type, rest), *map(repr, rest))
        if key not in self.places:
            self.places[key] = len(self.steps)
            self.steps.append((name, *rest))
        return self.places[key]

    def apply(self, name: str, *arguments: Any) -> Symbol:
        """An operation on symbols and numbers."""
        places = [self.place(argument) for argument in arguments]
        kinds = [kind_of(self.steps[place]) for place in places]
        if name == "power" and self.steps[places[-1]][0] in ("number", "constant"):
            name = "power_of_number"
        if name == "where" and kinds[1:] == ["b", "b"]:
            name = "where_truth"
        elif name in OF_TRUTHS and set(kinds) == {"b"}:
            name = OF_TRUTHS[name]
        operation = OPERATIONS.get(name)
        if operation is None or len(operation.takes) != len(places):
            raise Untraceable(name)
        if "f" in operation.takes and "b" not in operation.takes and "f" not in kinds and name != "float":
            raise Untraceable(f"{name} of truth values")
        pairs = zip(places, kinds, operation.takes, strict=True)
        return Symbol(self, self.add(name, *[self.as_kind(*pair) for pair in pairs]))

    def as_kind(self, place: int, kind: str, wanted: str) -> int:
        """A step's value as a number, or as whether it isn't 0."""
        if kind == wanted:
            return place
        return self.add("float" if wanted == "f" else "true", place)

    def place(self, value: Any) -> int:
        """The step of a symbol or of a Python number."""
        if isinstance(value, Symbol):
            return value.place
        if type(value) in (bool, np.bool_):
            return self.add("constant", bool(value))
        if type(value) not in (int, float, np.float32):
            raise Untraceable(type(value).__name__)
        number = float(np.float32(value))
        if type(value) is int or number in WRITTEN or number != number:
            return self.add("constant", number)
        if number not in self.numbers:
            self.numbers.append(number)
        return self.add("number", self.numbers.index(number))

    def finished(self, result: Any) -> Traced:
        """The expression that ends with a symbol, without steps that it doesn't need."""
        if not isinstance(result, Symbol) or result.tracer is not self:
            raise Untraceable("a result that isn't computed from the operands")
        needed = {result.place}
        for place in range(result.place, -1, -1):
            if place in needed and self.steps[place][0] in OPERATIONS:
                needed.update(self.steps[place][1:])
        kept = sorted(needed)
        new = {place: i for i, place in enumerate(kept)}
        steps = []
        for place in kept:
            name, *rest = self.steps[place]
            steps.append((name, *([new[at] for at in rest] if name in OPERATIONS else rest)))
        return Traced(Expression(tuple(steps)), tuple(self.numbers))  # type: ignore[arg-type]


class Symbol(NDArrayOperatorsMixin):
    """Stands for an array in a traced function: NumPy's functions and operators on it become steps.

    Values can't be read: no truth value, no shape, no conversion to an array.
    """

    __array_priority__ = 1000.0
    __hash__ = object.__hash__

    def __init__(self, tracer: Tracer, place: int) -> None:
        self.tracer, self.place = tracer, place

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or bool."""
        return np.dtype(np.float32 if kind_of(self.tracer.steps[self.place]) == "f" else np.bool_)

    def astype(self, dtype: Any, copy: bool = True) -> Symbol:
        """As float32 or bool."""
        wanted = {np.dtype(np.float32): "f", np.dtype(np.bool_): "b"}.get(np.dtype(dtype))
        if wanted is None:
            raise Untraceable(f"astype({dtype})")
        kind = "f" if self.dtype == np.float32 else "b"
        return Symbol(self.tracer, self.tracer.as_kind(self.place, kind, wanted))

    def copy(self) -> Symbol:
        """Itself under another name."""
        return Symbol(self.tracer, self.place)

    def erf(self) -> Symbol:
        """The error function, which NumPy doesn't have."""
        return self.tracer.apply("erf", self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **other: Any) -> Any:
        if method != "__call__" or other or any(not isinstance(x, Symbol) for x in out):
            raise Untraceable(f"{ufunc.__name__}.{method}")
        result = self.copy() if ufunc is np.positive else self.tracer.apply(ufunc.__name__, *inputs)
        for target in out:  # in place: whoever holds the symbol sees the new value
            target.place = result.place
            return target
        return result

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        made = _FUNCTIONS.get(function)
        if made is None:
            raise Untraceable(function.__name__)
        return made(self.tracer, *args, **kwargs)

    def __bool__(self) -> bool:
        raise Untraceable("the truth value of an array")

    def __len__(self) -> int:
        raise Untraceable("the length of an array")


def _where(tracer: Tracer, condition: Any, x: Any, y: Any) -> Symbol:
    return tracer.apply("where", condition, x, y)


def _clip(tracer: Tracer, x: Any, a_min: Any = None, a_max: Any = None, **bounds: Any) -> Symbol:
    low, high = bounds.pop("min", a_min), bounds.pop("max", a_max)
    if bounds:
        raise Untraceable(f"clip({', '.join(bounds)})")
    x = x if low is None else tracer.apply("maximum", low, x)
    return x if high is None else tracer.apply("minimum", high, x)


def _round(tracer: Tracer, x: Any, decimals: int = 0) -> Symbol:
    """As NumPy: scaled by a power of ten, rounded to even, scaled back."""
    if decimals == 0:
        return tracer.apply("rint", x)
    scale = 10.0 ** abs(decimals)
    there, back = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    return tracer.apply(back, tracer.apply("rint", tracer.apply(there, x, scale)), scale)


def _filled(value: float) -> Callable[..., Symbol]:
    return lambda tracer, x: Symbol(tracer, tracer.add("constant", value))


_FUNCTIONS: dict[Any, Callable[..., Symbol]] = {
    np.where: _where,
    np.clip: _clip,
    np.round: _round,
    np.around: _round,
    np.zeros_like: _filled(0.0),
    np.ones_like: _filled(1.0),
}


def source_of(expression: Expression, name: str = "compute") -> tuple[str, dict[str, Any]]:
    """Python of a function that computes an expression, and the names that it uses.

    It takes the operands that the expression names, by number, then the numbers.

    Example:
        >>> print(source_of(traced(lambda x: 1 / (1 + np.exp(-x)), "f").expression)[0])
        def compute(x0):
            v1 = negative(x0)
            v2 = exp(v1)
            v4 = F(F(1.0) + v2)
            return F(F(1.0) / v4)
    """
    names, values, lines = dict(NAMES), [], []
    for i, (step, *rest) in enumerate(expression.steps):
        operation = OPERATIONS.get(step)
        if operation is None:
            values.append(_leaf(step, rest[0]))
            continue
        arguments = [values[place] for place in rest]
        if operation.text is None:
            function = operation.function
            names[step] = function
            text = f"{step}({', '.join(arguments)})"
        else:
            text = operation.text.format(*arguments)
        values.append(f"v{i}")
        lines.append(f"v{i} = {text}")
    if lines and values[-1] == f"v{len(values) - 1}":
        lines[-1] = f"return {lines[-1].partition(' = ')[2]}"
    else:
        lines.append(f"return {values[-1]}")
    body = "\n".join(f"    {line}" for line in lines)
    return f"def {name}({', '.join(parameters_of(expression))}):\n{body}", names


def parameters_of(expression: Expression) -> list[str]:
    """What the function of an expression takes: ``x0``, ``x1``, … for operands, ``p0``, … for numbers."""
    operands = sorted(step[1] for step in expression.steps if step[0] in ("operand", "truth"))
    numbers = sorted(step[1] for step in expression.steps if step[0] == "number")
    return [f"x{i}" for i in operands] + [f"p{j}" for j in numbers]


def _leaf(step: str, value: Any) -> str:
    if step in ("operand", "truth"):
        return f"x{value}"
    if step == "number":
        return f"p{value}"
    if isinstance(value, bool):
        return str(value)
    number = float(value)
    if number != number:
        return "UNDEFINED"
    return f"F({number!r})" if abs(number) != np.inf else f"F({str(number)!r})"
