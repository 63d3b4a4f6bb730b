"""Lines of Python text that the walks of map kernels share: coordinates, places, scales."""

from __future__ import annotations

from .task import Input, Task

Lines = list[str]


def indented(lines: Lines, by: int = 1) -> Lines:
    """Lines further to the right."""
    return ["    " * by + line for line in lines]


def divided(task: Task, a: str, b: str | int) -> str:
    """``a // b`` of numbers that aren't negative, in 32 bits where they fit."""
    if isinstance(b, int) and b & (b - 1) == 0:
        return a if b == 1 else f"{a} >> {b.bit_length() - 1}"
    kind = "U" if task.small else "W"
    return f"I({kind}({a}) // {kind}({b}))"


def coordinates(task: Task, index: str, first: int = 0, stop: int | None = None) -> Lines:
    """``c0``, ``c1``, …: where an index is along some axes, by default those before the last."""
    stop = task.rank - 1 if stop is None else stop
    if stop <= first:
        return []
    lines = [f"rest = {index}"]
    for axis in range(stop - 1, first, -1):
        lines += [
            f"above = {divided(task, 'rest', f'n{axis}')}",
            f"c{axis} = rest - above * n{axis}",
            "rest = above",
        ]
    return [*lines, f"c{first} = rest"]


def place(task: Task, each: Input, last: str = "0") -> str:
    """Where an operand's value, or the line of words that holds it, begins: elements or words.

    ``last`` is the place along the last axis, where the step along it is a parameter.
    """
    names = [f"c{axis}" for axis in range(task.rank - 1)] + [last]
    terms = [
        f"{name} * a{each.place}_{axis}"
        for axis, name in enumerate(names)
        if each.passes_step(axis) and name != "0"
    ]
    return " + ".join(terms) or "I(0)"


def code_number(task: Task, each: Input, last: str) -> str:
    """Which code of its line a packed operand's value is."""
    names = [f"c{axis}" for axis in range(task.rank - 1)] + [last]
    return next((name for name, move in zip(names, each.moves, strict=True) if move.line), "I(0)")


def scale_number(task: Task, each: Input, last: str) -> str:
    """Which scale a packed operand's value has."""
    names = [f"c{axis}" for axis in range(task.rank - 1)] + [last]
    terms = []
    for axis, (name, move) in enumerate(zip(names, each.moves, strict=True)):
        if move.extent:
            block = f"({divided(task, name, move.extent)})"
            terms.append(block if move.near else f"{block} * b{each.place}_{axis}")
    return " + ".join(terms) or "I(0)"


def single(task: Task, each: Input, last: str, name: str) -> Lines:
    """Read one value of an operand: ``name = …``."""
    at = each.place
    if not each.is_packed:
        return [f"{name} = read{at}(x{at}, {place(task, each, last)})"]
    level = f"t{at}" if each.kind.two_level else f"s{at}"
    where = f"{place(task, each, last)}, {code_number(task, each, last)}"
    return [
        f"z = scale{at}(s{at}, {scale_number(task, each, last)}, {level})",
        f"{name} = decode{at}(code{at}(w{at}, {where}), z)",
    ]


def called(task: Task, names: dict[int, str]) -> str:
    """The expression of values by their operands' numbers."""
    numbers = [f"p{step[1]}" for step in task.expression.steps if step[0] == "number"]
    text = f"compute({', '.join([names[each.place] for each in task.inputs] + numbers)})"
    if task.expression.kind == "b" and task.output.kind != "bool":
        return f"as_float({text})"
    return f"({text}) != NOTHING" if task.expression.kind == "f" and task.output.kind == "bool" else text


def whole_tensor(task: Task) -> Lines:
    """What encoding asks of the tensor: once a thread."""
    if not task.output.needs_amax:
        return ["p, q, level = UNIT, UNIT, UNIT"]
    lines = ["p, q, level, whole = factors(real(amax[0]))"]
    if task.output.kind.two_level:
        lines += ["if cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:", "    level_out[0] = level"]
    if not task.output.block:
        lines += [
            "found = all_measured(amax[0], amax[1])",
            "all_stored, factor, limit = choose(found, NOTHING, p, q, level)",
        ]
        lines += ["if cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:", "    scales[0] = all_stored"]
    return lines


def published() -> Lines:
    """Make ``amax`` at least a warp's largest magnitudes: the finite ones, and all."""
    lines = []
    for distance in (16, 8, 4, 2, 1):
        lines += [
            f"most = max(most, shuffle_xor(most, {distance}))",
            f"highest = max(highest, shuffle_xor(highest, {distance}))",
        ]
    return [
        *lines,
        "if cuda.threadIdx.x % 32 == 0:",
        "    atomic_max(amax, 0, most)",
        "    if highest >= INFINITY:",
        "        atomic_max(amax, 1, highest)",
    ]
