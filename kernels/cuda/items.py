"""The walk of map kernels by items: a thread takes a value, or a block in a loop, from any strides."""

from __future__ import annotations

from .lines import Lines, called, coordinates, divided, indented, published, single, whole_tensor
from .task import WORD, Task

BLOCK = 32  # values a thread takes of a tensor with one scale


def items_body(task: Task) -> Lines:
    """The body of the kernel."""
    amax = task.output.kind == "amax"
    lines = ["most, highest = ZERO, ZERO"] if amax else []
    lines += whole_tensor(task) if task.output.is_packed else []
    lines += [
        "at = I(cuda.blockIdx.x) * I(cuda.blockDim.x) + I(cuda.threadIdx.x)",
        "step = I(cuda.gridDim.x) * I(cuda.blockDim.x)",
        "while at < count:",
    ]
    body = _block(task) if task.output.is_packed else _one(task)
    lines += indented([*body, "at += step"])
    return [*lines, *published()] if amax else lines


def _value(task: Task, last: str) -> Lines:
    """``y``: the result at the line's coordinates and a place along it."""
    lines = []
    for each in task.inputs:
        lines += single(task, each, last, f"v{each.place}")
    return [*lines, f"y = {called(task, {each.place: f'v{each.place}' for each in task.inputs})}"]


def _one(task: Task) -> Lines:
    """One value of a dense result, which is contiguous."""
    if task.rank == 1:
        lines = ["k = at"]
    else:
        lines = [f"line = {divided(task, 'at', 'last')}", "k = at - line * last", *coordinates(task, "line")]
    lines += _value(task, "k")
    if task.output.kind == "amax":
        return [*lines, "most, highest = note_finite(most, highest, y)"]
    return [*lines, "out[at] = 1 if y else 0" if task.output.kind == "bool" else "write(out, at, y)"]


def _block(task: Task) -> Lines:
    """One block of a packed result: measured, then computed once more and encoded.

    ``last`` is the length of a line, ``per_line`` its blocks. A line is whole words, and so is a block.
    """
    output, bits = task.output, task.output.kind.element.bits
    block = output.block or BLOCK
    lines = [
        f"line = {divided(task, 'at', 'per_line')}",
        "b = at - line * per_line",
        *coordinates(task, "line"),
        f"start = b * {block}",
        f"stop = min(start + {block}, last)",
    ]
    if output.block:
        lines += ["most, highest = ZERO, ZERO", "for k in range(start, stop):"]
        lines += indented([*_value(task, "k"), "most, highest = note(most, highest, y)"])
        lines += [
            "stored, factor, limit = choose(measured(most, highest), NOTHING, p, q, level)",
            "scales[at] = stored",
        ]
    lines += [
        f"here = line * ((last * {bits} + {WORD - 1}) >> 5) + b * {block * bits // WORD}",
        "word, filled = ZERO, 0",
        "for k in range(start, stop):",
        *indented(_value(task, "k")),
        "    code = encode(y, factor, limit, ZERO)",
        "    word = U(word | U(code << U(filled)))",
        f"    filled += {bits}",
        f"    if filled >= {WORD}:",
        "        words[here] = word",
        "        here += 1",
        f"        filled -= {WORD}",
        f"        word = U(code >> U({bits} - filled))",
        "if filled > 0:",
        "    words[here] = word",
    ]
    return lines
