"""Random programs: graphs of operations on matrices of mixed types, which run, print as code, and shrink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import autoq as aq
from autoq.testing.strategies.numbers import Strategy, lifted
from autoq.testing.strategies.packed import schemes as schemes_of

Shape = tuple[int, int]
UNARY = ("tanh", "sin", "relu", "sigmoid", "abs", "square", "gelu", "silu", "softplus", "neg")
BINARY = ("mul", "add", "sub", "maximum", "minimum")
ROWWISE = ("softmax", "rms_norm", "layer_norm")
INPUTS, STEPS = st.integers(1, 2), st.integers(2, 7)
BOUND = 16.0  # squares and products of more than this become tanh, so that nothing overflows


@dataclass(frozen=True)
class Step:
    """One line of a program.

    Attributes:
        code: The line with ``{0}``, ``{1}`` for its operands.
        operands: The numbers of the values that it takes.
        shape: The shape of what it gives.
        bound: About how large its values may be.
    """

    code: str
    operands: tuple[int, ...]
    shape: Shape
    bound: float = 4.0


@dataclass(frozen=True, eq=False)
class Program:
    """A function of matrices that returns all values which nothing else takes.

    Attributes:
        inputs: Float64 arrays to call it with.
        steps: Its lines.

    Example:
        >>> program = Program([np.ones((1, 2))], [Step("aq.tanh({0})", (0,), (1, 2))])
        >>> print(program)
        def program(x0):
            v1 = aq.tanh(x0)
            return v1
        >>> program(aq.tensor([[0.0, 1.0]]))
        (tensor([[0. 0.7615...]], float32),)
    """

    inputs: list[np.ndarray]
    steps: list[Step]

    __name__ = "program"

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The values that no step takes, in order."""
        values = list(inputs)
        for step in self.steps:
            names = {f"a{k}": values[i] for k, i in enumerate(step.operands)}
            values.append(eval(_compiled(step), {"aq": aq}, names))
        return tuple(values[i] for i in self.results)

    @property
    def results(self) -> list[int]:
        """The numbers of the values that no step takes."""
        taken = {i for step in self.steps for i in step.operands}
        count = len(self.inputs) + len(self.steps)
        return [i for i in range(len(self.inputs), count) if i not in taken] or [0]

    def __str__(self) -> str:
        names = [f"x{i}" for i in range(len(self.inputs))]
        lines = [f"def program({', '.join(names)}):"]
        for step in self.steps:
            names.append(f"v{len(names)}")
            lines.append(f"    {names[-1]} = {step.code.format(*[names[i] for i in step.operands])}")
        return "\n".join([*lines, f"    return {', '.join(names[i] for i in self.results)}"])

    def __repr__(self) -> str:
        given = [f"# x{i} = np.{x!r}" for i, x in enumerate(self.inputs)]
        return "\n".join(["", str(self), *given])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis prints it."""
        printer.text(repr(self))


def programs(inputs: Any = INPUTS, steps: Any = STEPS, schemes: Any = None, rows: Any = 2) -> Strategy:
    """Random programs of element-wise ops, products, reductions, layout ops and casts on mixed types.

    Each begins by quantizing its first input; other values are dense, half, packed, inhibiting or not.

    Args:
        inputs: How many matrices it takes.
        steps: How many more lines it has.
        schemes: The schemes it quantizes with; ``schemes()`` by default.
        rows: How many rows its inputs have.

    Example:
        >>> from hypothesis import find
        >>> print(find(programs(inputs=1, steps=1, schemes="mxfp4"), lambda p: True))
        def program(x0):
            v1 = x0.quantize(aq.mxfp4)
            v2 = aq.tanh(v1)
            return v2
    """

    @st.composite
    def drawn(draw: Any) -> Program:
        found = schemes_of() if schemes is None else schemes_of(schemes)
        m, n = draw(lifted(rows)), 8
        count = draw(lifted(inputs))
        taken = [_matrix(draw(st.integers(0, 2**16)), (m, n)) for _ in range(count)]
        made = [Step(f"{{0}}.quantize(aq.{draw(found).name})", (0,), (m, n))]
        shapes, bounds = [(m, n)] * (count + 1), [4.0] * (count + 1)
        for _ in range(draw(lifted(steps))):
            step = draw(_step(shapes, bounds, found))
            made.append(step)
            shapes.append(step.shape)
            bounds.append(step.bound)
        return Program(taken, made)

    return drawn()


def _matrix(seed: int, shape: Shape) -> np.ndarray:
    """Numbers of three decimals, off every grid, so that rounding always rounds."""
    return np.round(np.random.default_rng(seed).uniform(-2, 2, shape), 3)


@st.composite
def _step(draw: Any, shapes: list[Shape], bounds: list[float], found: Strategy) -> Step:
    kind = draw(st.sampled_from(sorted(_KINDS, key=list(_KINDS).index)))
    i = draw(st.integers(0, len(shapes) - 1).map(lambda k: len(shapes) - 1 - k))
    step = _KINDS[kind](draw, i, shapes, bounds, found)
    if step is None or step.bound > BOUND:
        return Step("aq.tanh({0})", (i,), shapes[i], 1.0)
    return step


def _unary(draw: Any, i: int, shapes: Any, bounds: Any, found: Any) -> Step:
    name = draw(st.sampled_from(UNARY))
    bound = bounds[i] ** 2 if name == "square" else 1.0 if name in ("tanh", "sin", "sigmoid") else bounds[i]
    return Step(f"aq.{name}({{0}})", (i,), shapes[i], bound)


def _binary(draw: Any, i: int, shapes: Any, bounds: Any, found: Any) -> Step | None:
    others = [j for j, s in enumerate(shapes) if _broadcast(s, shapes[i]) is not None]
    j = draw(st.sampled_from(others))
    name = draw(st.sampled_from(BINARY))
    bound = bounds[i] * bounds[j] if name == "mul" else bounds[i] + bounds[j]
    shape = _broadcast(shapes[j], shapes[i])
    assert shape is not None
    return Step(f"aq.{name}({{0}}, {{1}})", (i, j), shape, bound)


def _broadcast(a: Shape, b: Shape) -> Shape | None:
    try:
        m, n = np.broadcast_shapes(a, b)
    except ValueError:
        return None
    return m, n


def _product(draw: Any, i: int, shapes: Any, bounds: Any, found: Any) -> Step | None:
    others = [j for j, s in enumerate(shapes) if s[1] == shapes[i][1]]
    j = draw(st.sampled_from(others))
    code, shape = "aq.matmul({0}, {1}.mT) * 0.25", (shapes[i][0], shapes[j][0])
    return Step(code, (i, j), shape, bounds[i] * bounds[j])


def _rowwise(draw: Any, i: int, shapes: Any, bounds: Any, found: Any) -> Step | None:
    if shapes[i][1] < 2:
        return None
    return Step(f"aq.{draw(st.sampled_from(ROWWISE))}({{0}})", (i,), shapes[i], 4.0)


def _reduction(draw: Any, i: int, shapes: Any, bounds: Any, found: Any) -> Step:
    name = draw(st.sampled_from(("mean", "max", "min", "sum")))
    axis = draw(st.integers(0, 1))
    m, n = shapes[i]
    bound = bounds[i] * (shapes[i][axis] if name == "sum" else 1)
    shape = (1, n) if axis == 0 else (m, 1)
    return Step(f"aq.{name}({{0}}, axis={axis}, keepdims=True)", (i,), shape, bound)


def _layout(draw: Any, i: int, shapes: Any, bounds: Any, found: Any) -> Step:
    m, n = shapes[i]
    cut = max(1, n // 2 + 1)
    ways: list[tuple[str, Shape]] = [
        ("{0}.mT", (n, m)),
        (f"aq.flip({{0}}, axis={draw(st.integers(0, 1))})", (m, n)),
        (f"{{0}}[:, {n - cut}:]", (m, cut)),
        (f"{{0}}[::-1, :{cut}]", (m, cut)),
        (f"aq.reshape({{0}}, ({n}, {m}))", (n, m)),
        ("aq.concat([{0}, {0}], axis=1)", (m, 2 * n)),
        (f"aq.take({{0}}, [{m - 1}, 0, 0], axis=0)", (3, n)),
    ]
    code, shape = draw(st.sampled_from(ways if max(m, n) <= 16 else ways[:4]))
    return Step(code, (i,), shape, bounds[i])


def _cast(draw: Any, i: int, shapes: Any, bounds: Any, found: Any) -> Step:
    ways = ("quantize", "clipped", "dequantize", "inhibit", "float16")
    way = draw(st.sampled_from(ways))
    name = draw(found).name if way in ("quantize", "clipped") else ""
    code = {
        "quantize": f"{{0}}.quantize(aq.{name})",
        "clipped": f"{{0}}.quantize(aq.{name}, ste='clip')",
        "dequantize": "{0}.dequantize()",
        "inhibit": "{0}.inhibit()",
        "float16": "{0}.astype(aq.float16)",
    }[way]
    return Step(code, (i,), shapes[i], bounds[i])


_KINDS: dict[str, Callable[..., Step | None]] = {
    "unary": _unary,
    "binary": _binary,
    "cast": _cast,
    "layout": _layout,
    "product": _product,
    "reduction": _reduction,
    "rowwise": _rowwise,
}
_CODE: dict[str, Any] = {}


def _compiled(step: Step) -> Any:
    """The line as an expression of a0, a1, ...; compiled once."""
    if step.code not in _CODE:
        names = [f"a{k}" for k in range(len(step.operands))]
        _CODE[step.code] = compile(step.code.format(*names), "<program>", "eval")
    return _CODE[step.code]
