"""The walk of map kernels by lanes: a thread takes neighbours with wide loads, threads share a block."""

from __future__ import annotations

from .encode_text import encoded, stored
from .lines import (
    Lines,
    called,
    coordinates,
    divided,
    indented,
    place,
    published,
    scale_number,
    single,
    whole_tensor,
)
from .octets import chunk_decoder
from .task import HALVES, WORD, Input, Output, Task


def lanes_body(task: Task) -> Lines:
    """The body of the kernel: every thread walks lanes, all threads of a block of threads together."""
    amax = task.output.kind == "amax"
    lines = ["most, highest = ZERO, ZERO"] if amax else []
    lines += whole_tensor(task) if task.output.is_packed else []
    lines += [
        "first = I(cuda.blockIdx.x) * I(cuda.blockDim.x)",
        "step = I(cuda.gridDim.x) * I(cuda.blockDim.x)",
        "while first < count:",
        "    lane = first + I(cuda.threadIdx.x)",
        "    active = lane < count",
        "    at = lane if active else I(0)",
    ]
    body = _located(task)
    for each in task.inputs:
        body += _loaded(task, each)
    for each in task.inputs:
        body += _decoded(task, each)
    body += [f"y{k} = {called(task, _names(task, k))}" for k in range(task.values)]
    if task.ragged:
        body.append(f"if left < {task.values}:")
        body += [f"    y{k} = y{k} if left > {k} else NOTHING" for k in range(task.values)]
    body += _written(task)
    lines += indented([*body, "first += step"])
    return [*lines, *published()] if amax else lines


def _located(task: Task) -> Lines:
    """``col``: the lane's number in its line, and the line's coordinates."""
    if task.ragged:
        line = divided(task, "at", "per_line")
        return [
            *[f"line = {line}", "col = at - line * per_line", *coordinates(task, "line")],
            # Lanes of a block that lie after the line read what the line's last one does.
            f"inside = min(col, ({divided(task, '(last - 1)', task.values)}))",
            f"left = last - col * {task.values}",
        ]
    if task.rank == 1:
        return ["col = at"]
    return [f"line = {divided(task, 'at', 'last')}", "col = at - line * last", *coordinates(task, "line")]


def _names(task: Task, k: int) -> dict[int, str]:
    return {each.place: f"v{each.place}" if each.repeats else f"v{each.place}_{k}" for each in task.inputs}


def _loaded(task: Task, each: Input) -> Lines:
    """The loads of an operand, before anything waits for them."""
    at = each.place
    if each.repeats:
        return single(task, each, "I(0)", f"v{at}")
    base = place(task, each)
    if task.ragged:
        return _loaded_one_by_one(task, each, base)
    if not each.width:
        return [f"o{at} = {base} + col * {task.values}"] + [
            f"v{at}_{k} = read{at}(x{at}, o{at} + {k})" for k in range(task.values)
        ]
    share = {"float16": 2, "bfloat16": 2, "bool": 4}.get(each.kind, 1)
    count = words_a_lane(each, task.values)
    start = base if share == 1 else f"(({base}) >> {share.bit_length() - 1})"
    pointer = f"w{at}" if each.is_packed else f"x{at}"
    lines = [f"o{at} = {start} + col * {count}"]
    for k in range(0, count, each.width):
        names = ", ".join(f"r{at}_{k + i}" for i in range(each.width))
        load = f"load{each.width}({pointer}, o{at} + {k})" if each.width > 1 else f"{pointer}[o{at} + {k}]"
        lines.append(f"{names} = {load}")
    return lines + (_scales(task, each) if each.is_packed else [])


def _loaded_one_by_one(task: Task, each: Input, base: str) -> Lines:
    """The loads of an operand whose lines end anywhere: none beyond the end."""
    at, values = each.place, task.values
    if not each.is_packed:
        lines = [f"o{at} = {base}"]
        place = "min(inside * {} + {}, last - 1)"
        return lines + [
            f"v{at}_{k} = read{at}(x{at}, o{at} + {place.format(values, k)})" for k in range(values)
        ]
    bits, count = each.kind.element.bits, words_a_lane(each, values)
    lines = [f"o{at} = {base}", f"end{at} = (last * {bits} - 1) >> 5"]
    for k in range(count):
        lines.append(f"r{at}_{k} = w{at}[o{at} + min(inside * {count} + {k}, end{at})]")
    return lines + _scales(task, each)


def _scales(task: Task, each: Input) -> Lines:
    """The effective scales of a lane's values."""
    at = each.place
    level = f"t{at}" if each.kind.two_level else f"s{at}"
    return [
        f"z{at}_{group} = scale{at}(s{at}, {_lane_scale(task, each, group)}, {level})"
        for group in range(_groups(task, each))
    ]


def _groups(task: Task, each: Input) -> int:
    """Blocks of a packed operand in a lane: one, of which it may be a part, or a few."""
    extent = each.moves[-1].extent
    return max(1, task.values // extent) if extent else 1


def _lane_scale(task: Task, each: Input, group: int) -> str:
    """The number of a scale of a lane's values."""
    groups = _groups(task, each)
    extent = max(each.moves[-1].extent // task.values, 1) if each.moves[-1].extent else 0
    lanes = each._replace(moves=(*each.moves[:-1], each.moves[-1]._replace(extent=extent)))
    col = "inside" if task.ragged else "col"
    return scale_number(task, lanes, col if groups == 1 else f"({col} * {groups} + {group})")


def words_a_lane(each: Input | Output, values: int) -> int:
    """32-bit words of an operand's values, or of a result's."""
    bits = each.kind.element.bits if each.is_packed else {"float32": 32, "bool": 8}.get(each.kind, 16)
    return int(values * bits // WORD)


def _decoded(task: Task, each: Input) -> Lines:
    """The values of what was loaded."""
    at, lines = each.place, []
    if each.repeats or not each.width:
        return []
    if each.kind == "float32":
        return [f"v{at}_{k} = r{at}_{k}" for k in range(task.values)]
    if each.kind == "bool":
        return [
            f"v{at}_{k} = U(r{at}_{k // 4} & U({0xFF << 8 * (k % 4)})) != ZERO" for k in range(task.values)
        ]
    if each.kind in HALVES:
        for k in range(0, task.values, 2):
            lines.append(f"v{at}_{k}, v{at}_{k + 1} = pair{at}(r{at}_{k // 2})")
        return lines
    bits = each.kind.element.bits
    codes, _ = chunk_decoder(each.kind.element, task.converts)
    share = task.values // _groups(task, each)
    for k in range(0, task.values, codes):
        names = ", ".join(f"q{at}_{k + i}" for i in range(codes))
        lines.append(f"{names} = chunk{at}({_chunk(f'r{at}', k * bits, codes * bits)})")
        lines += [f"v{at}_{k + i} = F(q{at}_{k + i} * z{at}_{(k + i) // share})" for i in range(codes)]
    return lines


def _chunk(words: str, first: int, bits: int) -> str:
    """``bits`` bits from bit ``first`` on of a lane's words, in the low bits of a word."""
    word, shift = divmod(first, WORD)
    low = f"{words}_{word}" if not shift else f"U({words}_{word} >> U({shift}))"
    if shift + bits <= WORD:
        return low
    return f"U({low} | U({words}_{word + 1} << U({WORD - shift})))"


def _written(task: Task) -> Lines:
    """Write the values ``y0``, ``y1``, … of a lane."""
    output = task.output
    if output.kind == "amax":
        return _measured(task.values)
    if output.is_packed:
        return encoded(task)
    if output.kind == "float32":
        return stored(task, [f"y{k}" for k in range(task.values)], "out")
    if output.kind == "bool":
        lines = [
            f"o{k} = {' | '.join(f'(U({1 << 8 * i}) if y{4 * k + i} else ZERO)' for i in range(4))}"
            for k in range(task.values // 4)
        ]
    else:
        lines = [f"o{k} = to_pair(y{2 * k}, y{2 * k + 1})" for k in range(task.values // 2)]
    return lines + stored(task, [f"o{k}" for k in range(len(lines))], "out")


def _measured(values: int) -> Lines:
    """The largest magnitudes: where all of a lane are finite, as nearly always, one comparison a value.

    Lanes beyond the last hold the first one's values, which don't change the maximum.
    """
    lines = ["peak = NOTHING", *[f"peak = larger_magnitude(peak, y{k})" for k in range(values)]]
    lines += ["if bits(peak) < INFINITY:", "    most = max(most, bits(peak))", "else:"]
    return lines + [f"    most, highest = note_finite(most, highest, y{k})" for k in range(values)]
