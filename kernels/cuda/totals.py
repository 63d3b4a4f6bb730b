"""The text of kernels that sum an expression over axes, in an order that depends on shapes alone.

Extrema are taken by the same kernels. Sums are float32. A thread adds up to 16 values into each of four
totals; totals are added in pairs, those of a warp by shuffles and those of warps in the order of their
numbers. Longer sums are parts, summed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..bind import scalar
from ..scalar.bits import F, bits
from .compile import uses_cuda
from .functions import maximum, minimum
from .launch import kernel
from .lines import Lines, called, coordinates, divided, indented, single
from .source import names_of
from .task import Task, array_parameters, step_parameters
from .trace import source_of

WARP = 32
TOTALS = 4
# What a total is before the first value.
STARTS = {"add": "NOTHING", "maximum": "LOWEST", "minimum": "HIGHEST"}
EXTREMA = {"maximum": maximum, "minimum": minimum, "LOWEST": F(-np.inf), "HIGHEST": F(np.inf)}


class Sum(NamedTuple):
    """A sum over the last axes.

    Attributes:
        task: What is summed; its axes are those that stay, then those that are summed.
        kept: How many stay.
        threads: Threads that share one result, a part of a warp or more; 0 where each has its own.
        part: Values along the summed axes that one result takes.
        join: ``"add"``, or ``"maximum"`` or ``"minimum"`` for extrema in place of sums.
    """

    task: Task
    kept: int
    threads: int
    part: int
    join: str = "add"

    def joined(self, a: str, b: str) -> str:
        """The text of two totals as one."""
        return f"F({a} + {b})" if self.join == "add" else f"{self.join}({a}, {b})"

    @property
    def result(self) -> str:
        """The text of what is stored: a sum over a divisor, an extremum and where it starts."""
        return "F(total / divisor)" if self.join == "add" else self.joined("total", "divisor")


@kernel
def sum_kernel(what: Sum) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The kernel of a sum: ``(operands…, out, numbers…, divisor, count, parts, length, n…, steps…)``."""
    text, names = source_of(what.task.expression)
    names |= names_of(what.task)
    names |= EXTREMA | {"bits": bits}
    parameters = parameters_of(what)
    body = _shared(what) if what.threads else _alone(what)
    lines = [text, "", f"def summed({', '.join(name for name, _ in parameters)}):", *indented(body)]
    uses_cuda(names)
    exec(compile("\n".join(lines) + "\n", "<sum kernel>", "exec"), names)
    scalar(names["compute"])
    return names["summed"], tuple(kind for _, kind in parameters)


def parameters_of(what: Sum) -> list[tuple[str, str]]:
    """Names and types of the parameters.

    ``count`` is the number of results, parts included; ``parts`` that of a sum, or of its kept places where
    each thread has its own; ``length`` the values of a sum.
    """
    numbers = [(f"p{step[1]}", "float32") for step in what.task.expression.steps if step[0] == "number"]
    integers = ["count", "parts", "length", *(f"n{axis}" for axis in range(what.task.rank))]
    return [
        *array_parameters(what.task),
        ("out", "float32*"),
        *numbers,
        ("divisor", "float32"),
        *((name, "int64") for name in integers),
        *step_parameters(what.task),
    ]


def _value(what: Sum, index: str, name: str) -> Lines:
    """``name = …``: the value at a place along the summed axes."""
    task, last = what.task, index
    lines = []
    if task.rank - what.kept > 1:
        last = "k"
        lines = [f"up = {divided(task, index, f'n{task.rank - 1}')}", f"k = {index} - up * n{task.rank - 1}"]
        lines += coordinates(task, "up", what.kept)
    for each in task.inputs:
        lines += single(task, each, last, f"v{each.place}")
    return [*lines, f"{name} = {called(task, {each.place: f'v{each.place}' for each in task.inputs})}"]


def _added(what: Sum, first: str, step: int) -> Lines:
    """``total``: the sum of a thread's values, from ``first`` on, ``step`` apart."""
    lines = [f"total{i} = {STARTS[what.join]}" for i in range(TOTALS)]
    lines += [f"j = {first}", f"while j + {(TOTALS - 1) * step} < stop:"]
    for i in range(TOTALS):
        lines += indented(_value(what, f"(j + {i * step})" if i else "j", f"y{i}"))
    lines += indented([f"total{i} = {what.joined(f'total{i}', f'y{i}')}" for i in range(TOTALS)])
    lines += [f"    j += {TOTALS * step}", "while j < stop:"]
    lines += indented([*_value(what, "j", "y"), f"total0 = {what.joined('total0', 'y')}", f"j += {step}"])
    pairs = what.joined("total0", "total1"), what.joined("total2", "total3")
    return [*lines, f"total = {what.joined(*pairs)}"]


def _shared(what: Sum) -> Lines:
    """Threads next to each other share a sum, whose values lie next to each other."""
    threads = what.threads
    lines = [
        "thread = I(cuda.threadIdx.x)",
        f"mine = I(cuda.blockIdx.x) * (I(cuda.blockDim.x) // {threads}) + thread // {threads}",
        "at = mine if mine < count else I(0)",
        f"row = {divided(what.task, 'at', 'parts')}",
        f"start = (at - row * parts) * {what.part}",
        f"stop = min(start + {what.part}, length)",
        *coordinates(what.task, "row", 0, what.kept),
        *_added(what, f"start + thread % {threads}", threads),
    ]
    distances = [d for d in (16, 8, 4, 2, 1) if d < threads]
    lines += [f"total = {what.joined('total', f'real(shuffle_xor(bits(total), {d}))')}" for d in distances]
    if threads > WARP:
        lines += [
            f"held = cuda.shared.array({threads // WARP}, F)",
            f"if thread % {WARP} == 0:",
            f"    held[thread // {WARP}] = total",
            "cuda.syncthreads()",
            "total = held[0]",
            *[f"total = {what.joined('total', f'held[{i}]')}" for i in range(1, threads // WARP)],
        ]
    return [*lines, f"if mine < count and thread % {threads} == 0:", f"    out[at] = {what.result}"]


def _alone(what: Sum) -> Lines:
    """Each thread sums on its own; neighbours' values lie next to each other."""
    lines = [
        "at = I(cuda.blockIdx.x) * I(cuda.blockDim.x) + I(cuda.threadIdx.x)",
        "if at < count:",
    ]
    body = [
        f"part = {divided(what.task, 'at', 'parts')}",
        "place = at - part * parts",
        f"start = part * {what.part}",
        f"stop = min(start + {what.part}, length)",
        *coordinates(what.task, "place", 0, what.kept),
        *_added(what, "start", 1),
        f"out[at] = {what.result}",
    ]
    return [*lines, *indented(body)]
