"""Element-wise expressions over packed and float operands, decoded, computed and encoded in one launch.

Values are float32 in between, rounded step by step as written: the result has the bits of decoding every
operand, computing with dense arrays and encoding. Results with one scale for the whole tensor, or with one
over the blocks', take two launches: the largest magnitude first, of values that are then computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...errors import ShapeError
from ..codec import Codec
from .arguments import Pick, addresses_of, arrays_of, picks_of, result_picks
from .axes import Shape, Span, collapse, logical_shape, spans_of
from .block import chunk_codes, needs_more
from .decode import CONVERTS, decoding
from .items import BLOCK
from .launch import SIMULATED, Kernel, current_device, device_capability, grid, library
from .operand import Packed
from .source import map_kernel
from .task import WORD, Input, Output, Task, moves_of, step_arguments
from .trace import Expression

Array = Any
# Threads a block, by the bits of the widest array's elements.
THREADS = dict.fromkeys((32, 16, 8), 32) if SIMULATED else {32: 256, 16: 256, 8: 128}
# Blocks a multiprocessor; 0 gives every lane a thread of its own. A warp that measures ends with an atomic
# maximum in one place, so that few of them should.
WAVES, MEASURING_WAVES = 0, 16
# How many values a lane takes, best first, likewise.
WISHES = {32: (4, 8, 16), 16: (8, 16, 4), 8: (32, 16, 8, 4)}
# The most where an operand is a row of floats: the wider lanes are, the further apart they read in it.
ALONG_ROWS = 16
# Where lines end within a lane or a block: every word is a load of its own.
RAGGED = (16, 8)
MOST_LANES = 32
SMALL = 1 << 31

# Launches by everything that decides them; an entry holds its codecs, whose identity is part of the key.
_launches: dict[tuple[Any, ...], Launches] = {}
LAUNCHES = 4096


class Launch(NamedTuple):
    """A kernel and how it is launched.

    Attributes:
        task: What it computes.
        kernel: It.
        blocks: How many blocks of threads.
        threads: Threads a block.
        integers: What follows the arrays and numbers.
        picks: The operands' arrays that it takes.
        result: Likewise of the result; None where it writes none.
    """

    task: Task
    kernel: Kernel
    blocks: int
    threads: int
    integers: tuple[int, ...]
    picks: tuple[Pick, ...]
    result: tuple[Pick, ...] | None


class Launches(NamedTuple):
    """What one call launches.

    Attributes:
        held: Objects whose identity is part of the key.
        measure: The largest magnitude first, for results that need it.
        write: The result.
    """

    held: tuple[Any, ...]
    measure: Launch | None
    write: Launch


def mapped(expression: Expression, operands: Sequence[Any], numbers: Sequence[float], out: Any) -> None:
    """Compute an expression element by element, in one launch.

    Args:
        expression: Of ``traced``.
        operands: By their numbers in the expression: Packed, or arrays of float32, float16, bfloat16 and
            bool, any strides; they broadcast to the result. None where the expression reads none.
        numbers: By their numbers in the expression.
        out: A contiguous array of float32, float16, bfloat16 or bool, or a Packed with contiguous arrays of
            a codec that ``encodes`` allows. It is written, the tensor scale of two levels too.

    Raises:
        ShapeError: If an operand doesn't broadcast to the result.

    Example:
        >>> from autoq.kernels.cuda.trace import traced
        >>> out = np.zeros(3, np.float32)
        >>> if SIMULATED:
        ...     mapped(traced(np.add, "ff").expression, [out + 1, out + 2], (), out)
    """
    shape = logical_shape(out)
    if not prod(shape):
        return
    key: tuple[Any, ...] = (expression, 0 if SIMULATED else current_device(), signature(out))
    key += tuple([signature(operand) for operand in operands])
    found = _launches.get(key)
    if found is None:
        if len(_launches) >= LAUNCHES:
            _launches.clear()
        found = _launches[key] = planned(expression, operands, out)
    launch(found, operands, out, [numbers[step[1]] for step in expression.steps if step[0] == "number"])


def launch(
    launches: Launches,
    operands: Sequence[Any],
    out: Any,
    numbers: Sequence[float],
    one: Callable[..., None] | None = None,
) -> None:
    """Launch what was planned for operands and a result of these shapes, strides and alignments.

    Args:
        launches: Of ``planned``.
        operands: By their numbers in the expression: arrays, or anything with ``words``, ``scales`` and
            ``tensor_scale``.
        out: Likewise.
        numbers: Those that the expression takes, in its order.
        one: What each is launched by: ``by_addresses``, or ``by_arrays``, the default.
    """
    one, amax = one or by_arrays, None
    if launches.measure is not None:
        amax = library().zeros(2, np.uint32)
        one(launches.measure, operands, out, amax, numbers)
    one(launches.write, operands, out, amax, numbers)


def signature(operand: Any) -> Any:
    """What a launch depends on of an operand or a result."""
    if operand is None:
        return None
    if operand.__class__ is Packed:
        words, scales = operand.words, operand.scales
        return (
            id(operand.codec), operand.extents, operand.shape, operand.order, words.strides, scales.strides,
            scales.dtype.char, alignment(words),
        )  # fmt: skip
    return operand.dtype.char, operand.shape, operand.strides, alignment(operand)


def alignment(array: Array) -> int:
    """Bytes that an array's first element is beyond a multiple of 16."""
    address = array.__array_interface__["data"][0] if SIMULATED else array.data.ptr
    return int(address) & 15


def encodes(codec: Codec, extents: tuple[int, ...]) -> bool:
    """Whether results can be encoded in the launch that computes them.

    Args:
        codec: Of the result.
        extents: Its block extents; () for the whole tensor.
    """
    if needs_more(codec) or len(extents) > 1 or codec.given or (codec.two_level and not extents):
        return False
    block = extents[0] if extents else BLOCK
    return block * codec.element.bits % WORD == 0 and block <= MOST_LANES * 16


def planned(expression: Expression, operands: Sequence[Any], out: Any) -> Launches:
    """The launches of a call."""
    shape = logical_shape(out)
    chosen = chosen_operands(expression, operands, shape)
    held = tuple(operand.codec for operand in [*chosen.values(), out] if isinstance(operand, Packed))
    if isinstance(out, Packed):
        output = Output(out.codec, out.extents[0] if out.extents else 0)
    else:
        output = Output(out.dtype.name)
    write = _planned(expression, chosen, output, shape, out)
    measure = None
    if output.needs_amax:
        measure = _planned(expression, chosen, Output("amax"), shape, None)
    return Launches(held, measure, write)


def chosen_operands(expression: Expression, operands: Sequence[Any], shape: Shape) -> dict[int, Any]:
    """The operands that an expression reads, by number; ShapeError for one that doesn't broadcast."""
    used = sorted(step[1] for step in expression.steps if step[0] in ("operand", "truth"))
    for i in used:
        _check_broadcast(logical_shape(operands[i]), shape)
    return {i: operands[i] for i in used}


def _check_broadcast(own: Shape, shape: Shape) -> None:
    tail = shape[len(shape) - len(own) :]
    if len(own) > len(shape) or any(n not in (1, m) for n, m in zip(own, tail, strict=True)):
        raise ShapeError(
            f"map: an operand of shape {own} for a result of {shape}",
            "shapes that broadcast to the result's",
            "Pass out of the broadcast shape.",
        )


def _planned(
    expression: Expression, operands: dict[int, Any], output: Output, shape: Shape, out: Any
) -> Launch:
    """One kernel over operands: by lanes where they allow it, else by items."""
    spans = [spans_of(operand, shape) for operand in operands.values()]
    lengths, collapsed = collapse(shape, [*spans, _result_spans(shape, output, out)])
    widest, wishes = _wishes(operands, shape, output)
    if out is not None and alignment(getattr(out, "words", out)):
        wishes = ()
    values, ragged = _lane(wishes, lengths[-1], collapsed, operands, output)
    inputs = tuple(
        input_of(number, operand, own, values, ragged)
        for (number, operand), own in zip(operands.items(), collapsed, strict=False)
    )
    count, integers = _counts(lengths, output, values, ragged)
    converts = SIMULATED or device_capability(current_device()) >= CONVERTS
    small = max(count, lengths[-1]) < SMALL
    task = Task(expression, inputs, output, len(lengths), values, small, converts, ragged)
    integers = [count, *integers, *lengths[1:-1], *step_arguments(task, collapsed)]
    threads, waves = THREADS[widest], MEASURING_WAVES if output.kind == "amax" else WAVES
    blocks = grid(count, threads, waves)
    return Launch(
        task, map_kernel(task), blocks, threads, tuple(integers), picks_of(task), result_picks(task)
    )


def _lane(
    wishes: tuple[int, ...],
    last: int,
    spans: list[list[Span]],
    operands: dict[int, Any],
    output: Output,
) -> tuple[int, bool]:
    """How many values a lane takes, 0 for the walk by items, and whether lines end within one."""
    for ragged, choices in ((False, wishes), (True, RAGGED)):
        for values in choices:
            if _fits(values, last, spans, operands, output, ragged):
                return values, ragged
    return 0, False


def _counts(lengths: Shape, output: Output, values: int, ragged: bool) -> tuple[int, list[int]]:
    """How many lanes or items there are, and the lengths of a line that the kernel takes."""
    last, lines = lengths[-1], prod(lengths[:-1])
    if ragged:
        unit = output.block or values
        per_line = -(-last // unit) * (unit // values)
        return lines * per_line, [last, per_line]
    if values:
        return lines * last // values, [last // values]
    if output.is_packed:
        per_line = -(-last // (output.block or BLOCK))
        return lines * per_line, [last, per_line]
    return lines * last, [last]


def _result_spans(shape: Shape, output: Output, out: Any) -> list[Span]:
    """The result along its axes: contiguous, whatever its kind; it keeps packed lines whole."""
    if isinstance(out, Packed):
        return spans_of(out, shape)
    return [Span(prod(shape[axis + 1 :])) for axis in range(len(shape))]


def _wishes(operands: dict[int, Any], shape: Shape, output: Output) -> tuple[int, tuple[int, ...]]:
    """Bits of the widest array's elements, and how many values a lane should take, best first.

    Operands that are broadcast are in the cache: the others decide, if there are any.
    """
    size = prod(shape)
    small = [x for x in operands.values() if prod(logical_shape(x)) < size]
    whole = [x for x in operands.values() if prod(logical_shape(x)) == size] or small
    widest = max(8, *(_bits(operand) for operand in whole))
    if output.is_packed:
        widest = min(widest, 16)
    elif output.kind != "amax":
        widest = max(widest, {"float32": 32, "bool": 8}.get(output.kind, 16))
    rows = any(not isinstance(x, Packed) and x.shape and x.shape[-1] != 1 for x in small)
    return widest, tuple([v for v in WISHES[widest] if v <= ALONG_ROWS or not rows])


def _bits(operand: Any) -> int:
    if isinstance(operand, Packed):
        return operand.codec.element.bits
    return int(operand.itemsize) * 8


def _fits(
    values: int,
    last: int,
    spans: list[list[Span]],
    operands: dict[int, Any],
    output: Output,
    ragged: bool,
) -> bool:
    """Whether lanes of so many values work: whole blocks, whole words, operands along the last axis.

    With ``ragged`` lines may end within a lane.
    """
    if last % values and not ragged:
        return False
    if output.is_packed:
        if not _fits_result(values, last, output, ragged):
            return False
    elif ragged and output.kind != "amax":
        return False
    for operand, own in zip(operands.values(), spans, strict=False):
        end = own[-1]
        if isinstance(operand, Packed):
            bits = operand.codec.element.bits
            along = end.step == bits and values * bits % WORD == 0
            whole = not end.scale or end.extent % values == 0 or (values % end.extent == 0 and not ragged)
            if not (along and whole) and (end.step or end.scale):
                return False
        elif end.step not in (0, 1):
            return False
    return True


def _fits_result(values: int, last: int, output: Output, ragged: bool) -> bool:
    """Whether lanes of so many values write whole words, and are whole blocks or a few share one."""
    element, block = output.kind.element, output.block
    if values * element.bits % WORD or (
        not ragged and (last * element.bits % WORD or (block and last % block))
    ):
        return False
    if ragged and (element.kind == "table" or (element.kind == "minifloat" and element.mantissa == 0)):
        return False  # the code of 0, with which the last word is filled, may be another than 0
    if not block or (values % block == 0 and block % chunk_codes(output.kind) == 0 and not ragged):
        return True
    lanes, over = divmod(block, values)
    return not over and 0 < lanes <= MOST_LANES and lanes & (lanes - 1) == 0


def input_of(number: int, operand: Any, spans: list[Span], values: int = 0, ragged: bool = False) -> Input:
    """An operand as the kernel reads it: by lanes of so many values, or one by one."""
    if isinstance(operand, Packed):
        bits = operand.codec.element.bits
        moves = moves_of(spans, bits)
        units, count = [span.step // WORD for span in spans[:-1]], values * bits // WORD
        width = _width(count, units, operand.words) if values and moves[-1].step else 0
        width = min(width, 1) if ragged else width
        return Input(number, decoding(operand.codec), moves, width)
    name, share = operand.dtype.name, 4 // operand.itemsize
    moves = moves_of(spans)
    steps = [span.step for span in spans[:-1]]
    if (
        ragged
        or not values
        or not moves[-1].step
        or any(step % share for step in steps)
        or alignment(operand) % 4
    ):
        return Input(number, name, moves)
    return Input(number, name, moves, _width(values // share, [step // share for step in steps], operand))


def _width(count: int, steps: Sequence[int], array: Array) -> int:
    """Words of a load: what a lane's words, the steps between lines and the first address allow."""
    at = alignment(array) // 4
    return next(w for w in (4, 2, 1) if count % w == 0 and at % w == 0 and all(s % w == 0 for s in steps))


def by_arrays(one: Launch, operands: Sequence[Any], out: Any, amax: Array, numbers: Sequence[float]) -> None:
    """One launch by its arrays."""
    arguments = arrays_of(one.picks, operands)
    if one.result is not None:
        arguments += arrays_of(one.result, (out,))
    if amax is not None:
        arguments.append(amax)
    one.kernel(one.blocks, one.threads, *arguments, *numbers, *one.integers)


def by_addresses(
    one: Launch, operands: Sequence[Any], out: Any, amax: Array, numbers: Sequence[float]
) -> None:
    """The same by addresses: packed operands and results give theirs as ``addresses``, and make no arrays."""
    _, kernel, blocks, threads, integers, picks, result = one
    values = addresses_of(picks, operands)
    if result is not None:
        values += out.addresses if result[0].packed else (out.data.ptr,)
    if amax is not None:
        values.append(amax.data.ptr)
    values += numbers
    values += integers
    kernel.start(blocks, threads, values)
