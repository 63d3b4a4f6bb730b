"""The text that writes a packed result of a lane: blocks measured, scales chosen, codes packed and stored."""

from __future__ import annotations

from ..scalar.rules import divides
from .block import chunk_codes, quick_encoder
from .lines import Lines, divided, indented
from .task import WORD, Output, Task


def encoded(task: Task) -> Lines:
    """Write the values ``y0``, ``y1``, … of a lane: part of a block, or a few blocks."""
    output = task.output
    groups = max(1, task.values // output.block) if output.block else 1
    lines: Lines = []
    for group in range(groups):
        if output.block:
            lines += _chosen(task, group, groups)
        lines += _codes(task, group, groups)
    words = _packed(task.output, task.values)
    lines += [f"o{k} = {word}" for k, word in enumerate(words)]
    if task.ragged:
        return lines + _stored_to_the_end(task, len(words))
    lines += stored(task, [f"o{k}" for k in range(len(words))], "words")
    if output.block:
        lanes = output.block // task.values
        first = f" and at & {lanes - 1} == 0" if lanes > 1 else ""
        number = divided(task, "at", max(lanes, 1))
        lines.append(f"if active{first}:")
        if groups == 1:
            return [*lines, f"    scales[{number}] = stored0"]
        lines += [f"    scales[at * {groups} + {k}] = stored{k}" for k in range(groups)]
    return lines


def stored(task: Task, names: list[str], pointer: str) -> Lines:
    """Store words next to each other, as many at a time as can be."""
    count = len(names)
    width = next(width for width in (4, 2, 1) if count % width == 0)
    lines = ["if active:", f"    here = at * {count}"]
    for k in range(0, count, width):
        values = ", ".join(names[k : k + width])
        target = f"{pointer}, here + {k}, {values}"
        lines.append(f"    store{width}({target})" if width > 1 else f"    {pointer}[here + {k}] = {values}")
    return lines


def _stored_to_the_end(task: Task, count: int) -> Lines:
    """Store the words of a lane that its line has, and the scale of the block that it is the first of."""
    output = task.output
    lines = [
        f"end = (last * {output.kind.element.bits} + {WORD - 1}) >> 5",
        f"here = line * end + col * {count}",
    ]
    for k in range(count):
        lines += [f"if active and col * {count} + {k} < end:", f"    words[here + {k}] = o{k}"]
    if output.block:
        lanes = output.block // task.values
        # Lanes of a line are whole blocks.
        lines += [
            f"if active and col & {lanes - 1} == 0:",
            f"    scales[{divided(task, 'at', lanes)}] = stored0",
        ]
    return lines


def _chosen(task: Task, group: int, groups: int) -> Lines:
    """``stored…``, ``factor``, ``limit``: the scale of a block, of which a lane may have a part."""
    output, count = task.output, task.values // groups
    lines = ["most, highest = ZERO, ZERO"]
    lines += [f"most, highest = note(most, highest, y{group * count + k})" for k in range(count)]
    distance = 1
    while distance * task.values < output.block:
        lines.append(f"most = max(most, shuffle_xor(most, {distance}))")
        if output.kind.nonfinite == "saturate":
            lines.append(f"highest = max(highest, shuffle_xor(highest, {distance}))")
        distance *= 2
    return [
        *lines,
        "found = measured(most, highest)",
        f"stored{group}, factor, limit = choose(found, NOTHING, p, q, level)",
    ]


def _codes(task: Task, group: int, groups: int) -> Lines:
    """``d0``, ``d1``, …: the chunks of codes of a block's values."""
    codec, each = task.output.kind, chunk_codes(task.output.kind)
    count = task.values // groups
    chunks = range(group * count // each, (group + 1) * count // each)

    def listed(name: str, chunk: int) -> str:
        return f"({', '.join(f'{name}{chunk * each + k}' for k in range(each))})"

    by_value = [f"d{chunk} = encode_chunk({listed('y', chunk)}, factor, limit)" for chunk in chunks]
    if quick_encoder(codec, task.converts) is None:
        return by_value
    values = range(group * count, (group + 1) * count)
    if divides(codec):
        quick = ["inverse, rest = reciprocal(factor)"]
        quick += [f"q{k} = over(y{k}, factor, inverse, rest)" for k in values]
    else:
        quick = [f"q{k} = scaled(y{k}, factor)" for k in values]
    quick += [f"d{chunk} = encode_quick({listed('q', chunk)})" for chunk in chunks]
    lines = ["if quickly(found, factor, limit):", *indented(quick)]
    if codec.nonfinite == "propagate":
        lines += ["elif limit == ZERO:", *[f"    d{chunk} = ZERO" for chunk in chunks]]
    return [*lines, "else:", *indented(by_value)]


def _packed(output: Output, values: int) -> list[str]:
    """The words of a lane's codes, of the chunks in ``d0``, ``d1``, …"""
    bits, each = output.kind.element.bits, chunk_codes(output.kind)
    words: list[list[str]] = [[] for _ in range(values * bits // WORD)]
    for chunk in range(values // each):
        word, shift = divmod(chunk * each * bits, WORD)
        words[word].append(f"U(d{chunk} << U({shift}))" if shift else f"d{chunk}")
        if shift + each * bits > WORD:
            words[word + 1].append(f"U(d{chunk} >> U({WORD - shift}))")
    return [f"U({' | '.join(parts)})" for parts in words]
