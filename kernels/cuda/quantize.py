"""Quantize arrays on the device: one launch, after one for the tensor's magnitude where the scheme needs it.

The codes, the scales and the tensor scale are the CPU's, bit for bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...errors import ArgumentError
from ..codec import Codec
from .launch import MOST_BLOCKS, SIMULATED, Kernel, current_device, device_capability, processors
from .measure import contiguous, mean_measured, measured
from .operand import float_bits, float_kind, is_aligned, scale_bits
from .quantize_axes import WORD_BITS, Axis, five_axes, patch_of, too_many_axes
from .quantize_columns import GROUP, RUN, columns_kernel
from .quantize_encode import CONVERTS, is_converted
from .quantize_lanes import Lanes, lanes_kernel
from .quantize_patches import patches_kernel
from .quantize_tiles import Strip, tiles_kernel
from .quantize_writers import is_storable
from .random import draw_arguments, is_keyed

NO_DRAW = (0, 0)
WARP = 32
# Thread blocks a multiprocessor that walk an array of patches, and one of lanes where that is quicker.
PATCH_WAVES, WAVES = 32, 32
MOST_THREADS = 32 if SIMULATED else 256
MOST_TILE_ROWS, MOST_TILE_THREADS = 128, 1024
# Plans are found by the identity of a codec, which spares hashing its fields; an entry holds it.
PLANS = 1024
_plans: dict[tuple[Any, ...], tuple[Codec, Plan | None]] = {}


class Plan(NamedTuple):
    """A launch: the kernel, thread blocks, threads, and the arguments that say how the array lies."""

    kernel: Kernel
    blocks: int
    threads: int
    layout: tuple[int, ...]
    by_words: bool


def quantize(
    x: Any,
    codec: Codec,
    extents: tuple[int, ...],
    words: Any,
    scales: Any,
    tensor_scale: Any = None,
    given: Any = None,
    given_amax: Any = None,
    draw: Any = None,
) -> None:
    """Encode an array. Nothing is read back; an array without values launches nothing.

    Args:
        x: float32, float16 or bfloat16, any shape and strides.
        codec: What to encode in; ``codec.given`` where scales are given.
        extents: Block extents of the trailing axes; () for the whole tensor.
        words: uint32 ``x.shape[:-1] + (words a line,)``, C-contiguous, written.
        scales: Stored scales of the block grid's shape, C-contiguous, written.
        tensor_scale: float32 of no axes, written under two levels.
        given: float32 scales of the grid's shape, C-contiguous.
        given_amax: What the tensor scale is taken of in place of the measured magnitude: a number, or a
            float32 array of no axes.
        draw: ``(seed, stream)`` or a uint32 (4,) array, for stochastic rounding.

    Raises:
        ArgumentError: If stochastic rounding has no draw.
        ShapeError: If blocks span more axes than kernels walk.
    """
    if codec.rounding == "nearest":
        draw = NO_DRAW
    elif draw is None:
        raise no_draw(codec)
    if x.size == 0:
        return
    keyed, aligned = is_keyed(draw), is_aligned(x) and is_aligned(words)
    plan = plan_of(x, codec, extents, aligned, keyed)
    if plan is None:
        x = contiguous(x)
        plan = plan_of(x, codec, extents, aligned, keyed)
    if plan is None:
        raise too_many_axes(extents)
    run(plan, x, words, scales, tensor_scale, measure_of(x, codec, extents, given_amax), given, draw)


def no_draw(codec: Codec) -> ArgumentError:
    """The error for stochastic rounding without random numbers."""
    return ArgumentError(
        f"rounding {codec.rounding!r} without random numbers",
        "draw=(seed, stream) or a key on the device",
        "Pass a draw.",
    )


def run(
    plan: Plan,
    x: Any,
    words: Any,
    scales: Any,
    tensor_scale: Any,
    measure: tuple[Any, float, int],
    given: Any,
    draw: Any,
) -> None:
    """Launch a plan."""
    if SIMULATED:
        # The simulator takes arrays for what they are; a device is passed their addresses.
        x, words = (as_words(x, words, plan.kernel)) if plan.by_words else (float_bits(x), words)
        scales = scale_bits(scales)
    plan.kernel(
        plan.blocks,
        plan.threads,
        x,
        words,
        scales,
        tensor_scale,
        *measure,
        given,
        *draw_arguments(draw),
        *plan.layout,
    )


def as_words(x: Any, words: Any, kernel: Kernel) -> tuple[Any, Any]:
    """Values as uint32, and words as what the kernel stores at once, for the simulator."""
    x = x.reshape(-1) if x.flags.c_contiguous else x
    return x.view(np.uint32), words.reshape(-1).view(kernel.source.signature[1][:-1])


def measure_of(x: Any, codec: Codec, extents: tuple[int, ...], given_amax: Any) -> tuple[Any, float, int]:
    """What was measured of the whole tensor: an array or None, a number, and which of them counts."""
    if codec.two_level and given_amax is not None:
        if isinstance(given_amax, (int, float, np.floating)):
            return None, float(given_amax), 0
        return given_amax.view(np.uint32) if SIMULATED else given_amax, 0.0, 1
    if not extents and codec.calibration == "abs_mean":
        return mean_measured(x), 0.0, 1
    if codec.two_level or not extents:
        return measured(x), 0.0, 1
    return None, 0.0, 0


def plan_of(x: Any, codec: Codec, extents: tuple[int, ...], aligned: bool, keyed: bool) -> Plan | None:
    """How to encode such an array; None where it must be made contiguous first."""
    device = 0 if SIMULATED else current_device()
    key = (id(codec), extents, x.shape, x.strides, x.dtype, aligned, keyed, device)
    found = _plans.get(key)
    if found is None:
        if len(_plans) >= PLANS:
            _plans.clear()
        found = _plans[key] = codec, make_plan(x, codec, extents, aligned, keyed)
    return found[1]


def make_plan(x: Any, codec: Codec, extents: tuple[int, ...], aligned: bool, keyed: bool) -> Plan | None:
    """By lanes where the values of blocks are neighbours, by strips of tiles or columns, else by patches."""
    axes, kind = five_axes(x, extents, codec.element.bits), float_kind(x)
    if axes is None:
        return None
    lanes = lanes_of(codec, kind, axes, extents) if aligned else None
    if lanes is not None:
        line = axes[-1] if extents else axes[-1]._replace(extent=0)
        return lanes_plan(codec, kind, line, lanes, keyed, waves_of(codec, kind, extents))
    found = None
    if extents and aligned and not is_in_order(codec) and axes[0].size == axes[1].size == 1:
        found = tiles_plan(codec, kind, axes[2:], keyed) or columns_plan(codec, kind, axes[2:], keyed)
    return found or patches_plan(kind, codec, axes, extents, keyed)


def is_in_order(codec: Codec) -> bool:
    """Whether the scale of a block needs more of it than its largest magnitude."""
    return codec.calibration == "abs_mean" or (codec.rule == "four_over_six" and not codec.given)


def lanes_of(codec: Codec, kind: str | None, axes: list[Axis], extents: tuple[int, ...]) -> Lanes | None:
    """How lanes share the blocks of an array; None where they can't."""
    size, bits = axes[-1].size, codec.element.bits
    is_line = axes[-1].stride == 1 and all(axis.size == 1 for axis in axes[:-1])
    if len(extents) > 1 or not is_line or size * bits % WORD_BITS:
        return None
    counts = [count for count in counts_of(codec, kind) if is_storable(bits, count) and size % count == 0]
    if extents:
        block = axes[-1].extent
        if is_in_order(codec) or size % block or block & (block - 1):
            return None
        counts = [count for count in counts if block % count == 0 and block // count <= WARP]
    return Lanes(counts[0]) if counts else None


def tiles_plan(codec: Codec, kind: str | None, axes: list[Axis], keyed: bool) -> Plan | None:
    """The launch of the kernel of tiles, None for matrices that it isn't for."""
    matrix, row, column = axes
    share, bits = 4 if kind == "float32" else 2, codec.element.bits
    apart = [axis.stride for axis in (matrix, row) if axis.size > 1]
    if matrix.extent != 1 or column.stride != 1 or column.size * bits % WORD_BITS:
        return None
    if any(stride * share % 16 for stride in apart):
        return None
    strip = strip_of(codec, kind, row.extent, column)
    if strip is None:
        return None
    runs = column.size // strip.values
    turns = matrix.size * -(-row.size // strip.rows) * -(-runs // strip.lanes)
    if turns > MOST_BLOCKS:
        return None
    kernel = tiles_kernel(codec, kind, strip, converts(), keyed)
    layout = matrix.size, row.size, runs, matrix.stride * share // 4, row.stride * share // 4
    return Plan(kernel, turns, strip.threads, layout, True)


def strip_of(codec: Codec, kind: str | None, rows: int, column: Axis) -> Strip | None:
    """How a thread block spreads over a strip of tiles; None where its threads aren't of use.

    Example:
        >>> from autoq.schemes import scheme
        >>> from autoq.storage.plan import codec_of
        >>> strip_of(codec_of(scheme("mxfp8_2d")), "float32", 32, Axis(4096, 1, 32))
        Strip(rows=32, columns=32, values=16, lanes=8)
    """
    block = column.extent
    if block & (block - 1) or rows & (rows - 1) or rows > MOST_TILE_ROWS:
        return None
    for values in counts_of(codec, kind):
        share = block // values
        if column.size % values or not is_storable(codec.element.bits, values) or not 0 < share <= WARP:
            continue
        runs = column.size // values
        most = MOST_THREADS if rows == 1 else min(WARP, max(1, MOST_THREADS // rows))
        lanes = max(share, WARP // rows, min(most, 1 << (runs - 1).bit_length()))
        if rows * lanes <= MOST_TILE_THREADS and (rows == 1 or lanes <= WARP):
            return Strip(rows, block, values, lanes)
    return None


def columns_plan(codec: Codec, kind: str | None, axes: list[Axis], keyed: bool) -> Plan | None:
    """The launch of the kernel of columns, None for matrices that it isn't for."""
    matrix, row, column = axes
    fits = column.extent in (RUN, GROUP) and column.size % RUN == 0 and is_storable(codec.element.bits, RUN)
    if not fits or row.stride != 1 or row.extent != 1 or matrix.extent != 1 or codec.nonfinite == "saturate":
        return None
    threads = min(MOST_THREADS, max(WARP, 1 << (row.size - 1).bit_length()))
    turns = matrix.size * -(-row.size // threads) * -(-column.size // GROUP)
    if column.size * codec.element.bits % WORD_BITS or turns > MOST_BLOCKS:
        return None
    kernel = columns_kernel(codec, kind, column.extent, converts(), keyed)
    layout = matrix.size, row.size, column.size // RUN, matrix.stride, row.stride, column.stride
    return Plan(kernel, turns, threads, layout, False)


def converts() -> bool:
    """Whether the device converts to eight-bit floats."""
    return SIMULATED or device_capability(current_device()) >= CONVERTS


def counts_of(codec: Codec, kind: str | None) -> tuple[int, ...]:
    """Values a lane, the best first. Draws come in groups of eight, 16-bit floats eight a load."""
    return (16, 8, 4) if kind == "float32" and codec.rounding == "nearest" else (16, 8)


def waves_of(codec: Codec, kind: str | None, extents: tuple[int, ...]) -> int:
    """Thread blocks a multiprocessor that stay, 0 for one pass.

    They spare what every thread works out beforehand, where memory isn't what all wait for: 16-bit floats
    that the device doesn't convert, and random numbers.
    """
    if codec.rounding == "nearest" and kind == "float32":
        return 0
    by_device = codec.rounding == "nearest" and is_converted(codec.element) and converts()
    return WAVES if codec.two_level or not extents or not by_device else 0


def lanes_plan(codec: Codec, kind: str | None, line: Axis, lanes: Lanes, keyed: bool, waves: int) -> Plan:
    """The launch of the kernel of lanes on one long line; in one pass unless ``waves`` says how many stay."""
    count, threads = line.size // lanes.values, MOST_THREADS
    blocks = -(-count // (threads * lanes.items))
    kernel = lanes_kernel(codec, kind, line.extent, lanes, converts(), keyed)
    return Plan(kernel, min(blocks, waves * processors()) if waves else blocks, threads, (count,), True)


def patches_plan(
    kind: str | None, codec: Codec, axes: list[Axis], extents: tuple[int, ...], keyed: bool
) -> Plan:
    """The launch of the kernel of patches."""
    bits = codec.element.bits
    patch = patch_of(axes, bits, not extents)
    count = math.prod(-(-axis.size // size) for axis, size in zip(axes, patch.sizes, strict=True))
    words = math.prod(patch.sizes) * bits // WORD_BITS
    threads = max(WARP, min(MOST_THREADS, 1 << (words - 1).bit_length()))
    layout = (*[axis.size for axis in axes], *[axis.stride for axis in axes])
    kernel = patches_kernel(codec, kind, *patch, not extents, keyed)
    return Plan(kernel, min(count, PATCH_WAVES * processors()), threads, layout, False)
