"""Kernels of element-wise expressions and of sums: every kind of operand and result, walk and operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from autoq.kernels.cuda.block import quick_encoder
from autoq.kernels.cuda.decode import CONVERTS, decoding
from autoq.kernels.cuda.functions import OPERATIONS
from autoq.kernels.cuda.scatter import add_kernel
from autoq.kernels.cuda.source import map_kernel
from autoq.kernels.cuda.task import Input, Move, Output, Task
from autoq.kernels.cuda.totals import Sum, sum_kernel
from autoq.kernels.cuda.trace import Expression, traced
from autoq.kernels.scalar.rules import divides
from autoq.schemes import CATALOG, scheme
from autoq.storage.plan import codec_of

STILL, STEP = Move(False), Move(True)


def expression(function: Callable[..., Any], kinds: str) -> Expression:
    found = traced(function, kinds)
    assert found is not None
    return found.expression


ADD = expression(np.add, "ff")
ALONE = expression(lambda x: x, "f")


def packed(place: int, name: str, width: int, *moves: Move) -> Input:
    """A packed operand, along the last axis unless other moves are given."""
    chosen = scheme(name)
    extent = chosen.block[-1] if chosen.block else 0
    return Input(place, decoding(codec_of(chosen)), moves or (Move(True, extent, True, True),), width)


def dense(place: int, kind: str, width: int, *moves: Move) -> Input:
    return Input(place, kind, moves or (STEP,), width)


def result(name: str) -> Output:
    chosen = scheme(name)
    return Output(codec_of(chosen), chosen.block[-1] if chosen.block else 0)


def with_library(task: Task) -> Any:
    """A kernel that calls the compiler's library, which contracts where it says so."""
    return map_kernel(task)


def with_angles(task: Task) -> Any:
    """A kernel that takes angles modulo a turn."""
    return map_kernel(task)


def with_remainders(task: Task) -> Any:
    """A kernel that divides many values by one number."""
    return map_kernel(task)


def lanes(what: Expression, inputs: tuple[Input, ...], output: Output, values: int, converts: bool) -> Any:
    task = Task(what, inputs, output, len(inputs[0].moves), values, True, converts)
    needs = any(getattr(each.kind, "element", None) is not None for each in (*inputs, output)) and converts
    return (map_kernel, (task,), CONVERTS) if needs else (map_kernel, (task,))


def ragged(inputs: tuple[Input, ...], output: Output) -> Any:
    """A sum whose lines end anywhere."""
    return map_kernel, (Task(ADD, inputs, output, len(inputs[0].moves), 16, True, False, True),)


def items(what: Expression, inputs: tuple[Input, ...], output: Output) -> Any:
    return map_kernel, (Task(what, inputs, output, len(inputs[0].moves), 0, False, False),)


def same_scheme(name: str, values: int, width: int, converts: bool = True) -> Any:
    """Two operands of a scheme added to a result of the same."""
    entry = lanes(ADD, (packed(0, name, width), packed(1, name, width)), result(name), values, converts)
    codec = codec_of(scheme(name))
    if divides(codec) and quick_encoder(codec, converts) is not None:
        return with_remainders, *entry[1:]
    return entry


def sums(threads: int, kept: int, *inputs: Input, join: str = "add") -> Any:
    task = Task(ALONE, inputs, Output("sum"), len(inputs[0].moves), 0, True, False)
    return sum_kernel, (Sum(task, kept, threads, 64 * max(threads, 1), join),)


LINES, LINES16 = (STEP, Move(True, 32, True, True)), (STEP, Move(True, 16, True, True))
GATE = expression(lambda x, y: x / (1.0 + np.exp(-x)) * y, "ff")
GREATER, WHERE = expression(np.greater, "ff"), expression(np.where, "bff")
SINE = expression(np.sin, "f")
SCALED = expression(lambda x, slope: np.where(x > 0, x, slope * x), "fn")

ROW = packed(0, "mxfp8", 4, *LINES)
ROW6 = packed(0, "mxfp6_e3m2", 0, *LINES)
TILES = packed(0, "nvfp4_2d", 0, Move(True, 16), Move(True, 16, True, True))

REPRESENTATIVES = [
    same_scheme("mxfp8", 32, 4),
    same_scheme("mxfp8", 16, 4, converts=False),
    same_scheme("mxfp8_e5m2", 16, 4),
    same_scheme("mxfp6_e3m2", 32, 2),
    same_scheme("mxfp4", 32, 4),
    same_scheme("nvfp4", 32, 4),
    same_scheme("int8", 32, 4),
    same_scheme("int4", 32, 4),
    same_scheme("fp8_e4m3", 32, 4),
    lanes(ADD, (dense(0, "float32", 4), dense(1, "float32", 4)), Output("float32"), 4, True),
    lanes(ADD, (dense(0, "float16", 4), dense(1, "bfloat16", 4)), Output("bfloat16"), 8, True),
    lanes(SCALED, (packed(0, "mxfp4", 1),), Output("float16"), 8, True),
    lanes(GREATER, (dense(0, "float32", 4), dense(1, "float32", 0)), Output("bool"), 4, True),
    lanes(
        WHERE,
        (dense(0, "bool", 1), dense(1, "float32", 4), packed(2, "mxfp8", 1)),
        Output("float32"),
        4,
        True,
    ),
    lanes(ADD, (packed(0, "nvfp4", 2), dense(1, "float32", 4)), Output("amax"), 16, True),
    ragged((packed(0, "mxfp8", 1, *LINES), packed(1, "nvfp4", 1, *LINES16)), result("mxfp8")),
    ragged((packed(0, "mxfp6_e3m2", 1, *LINES), dense(1, "float16", 0, STILL, STEP)), result("nvfp4")),
    ragged((packed(0, "mxfp8", 1, *LINES), dense(1, "float32", 0, STEP, STILL)), Output("amax")),
    items(ADD, (ROW6, dense(1, "float32", 0, STEP, STILL)), result("mxfp6_e3m2")),
    items(ADD, (TILES, dense(1, "bfloat16", 0, STEP, STEP)), Output("float16")),
    (with_library, *lanes(GATE, (ROW, dense(1, "float32", 0, STILL, STEP)), result("mxfp8"), 16, True)[1:]),
    (with_angles, *items(SINE, (dense(0, "float32", 0),), Output("float32"))[1:]),
    sums(8, 1, dense(0, "float32", 0, STEP, STEP)),
    sums(256, 1, packed(0, "mxfp8", 0, *LINES)),
    sums(0, 1, dense(0, "bfloat16", 0, STEP, STEP, STEP)),
    sums(256, 1, dense(0, "float32", 0, STEP, STEP), join="maximum"),
    sums(0, 1, dense(0, "float32", 0, STEP, STEP), join="minimum"),
    (add_kernel, ()),
]

_LIBRARY = "functions of the compiler's library contract where they say so"
_ANGLES = "the library's way of taking large angles modulo a turn"
ALLOWED = {
    "with_library": {"fma.": _LIBRARY},
    "with_remainders": {"fma.": "exact remainders of quotients"},
    "with_angles": {"fma.": _LIBRARY, ".f64": _ANGLES, ".local": _ANGLES},
}


def every() -> Iterator[tuple[Any, ...]]:
    """Every operation; every named scheme to itself, by lanes and by items."""
    for name, operation in OPERATIONS.items():
        factory = with_angles if name in ("sin", "cos", "tan") else with_library
        yield factory, *items(*alone(name, operation))[1:]
    for name in CATALOG:
        chosen = scheme(name)
        if chosen.block is not None and len(chosen.block) > 1:
            continue
        if codec_of(chosen).rule != "four_over_six":
            for converts in (False, True):
                yield same_scheme(name, 16, 1, converts)
            yield items(ADD, (packed(0, name, 0, *LINES), dense(1, "float32", 0, STILL, STEP)), result(name))


def alone(name: str, operation: Any) -> tuple[Expression, tuple[Input, ...], Output]:
    """An operation of dense operands."""
    leaves = tuple(("operand" if kind == "f" else "truth", i) for i, kind in enumerate(operation.takes))
    kinds = ["float32" if kind == "f" else "bool" for kind in operation.takes]
    inputs = tuple(dense(i, kind, 0) for i, kind in enumerate(kinds))
    made = Expression((*leaves, (name, *range(len(leaves)))))
    return made, inputs, Output("float32" if operation.gives == "f" else "bool")
