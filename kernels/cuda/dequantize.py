"""Decode packed arrays to float arrays in one launch, from any strides to any strides."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from ...errors import DTypeError, ShapeError
from ..codec import Codec
from .decode import CONVERTS, decoding
from .dequantize_kernels import QUAD, WORD_BITS, flat_kernel, stored_type, strided_kernel, vector_type
from .launch import SIMULATED, Kernel, current_device, device_capability, grid
from .walk import MOST_AXES, Axis, joined, shifts

Array = Any
FLOATS = ("float32", "float16", "bfloat16")
THREADS = 256
# Results larger than this aren't found in the cache again: they leave it first.
CACHED = 32 << 20

# Launches by everything that decides them; an entry holds its codec, whose identity is part of the key.
_launches: dict[tuple[Any, ...], Launch] = {}
LAUNCHES = 4096


class Launch(NamedTuple):
    """A kernel, how it is launched and the numbers that follow the arrays.

    Attributes:
        codec: Held so that nothing else gets its identity.
        kernel: The kernel, None where axes are too many and the first is walked on the host.
        blocks: Blocks to launch.
        numbers: Arguments after the arrays.
        out_type: What the simulator reads the result's memory as.
        threads: Threads a block.
    """

    codec: Codec
    kernel: Kernel | None
    blocks: int
    numbers: tuple[int, ...]
    out_type: str
    threads: int = THREADS


class Way(NamedTuple):
    """How the flat kernel walks: what was fastest of those that benchmarks/gpu/dequantize.py tries.

    Attributes:
        quads: Fours of values a run.
        flight: Runs that a thread reads before it writes the first.
        threads: Threads a block.
        first_out: Whether large results leave the cache first.
    """

    quads: int
    flight: int
    threads: int
    first_out: bool


WIDE, BYTES, PACKED = Way(1, 2, 512, True), Way(1, 4, 256, False), Way(2, 2, 512, True)


def dequantize(
    words: Array,
    scales: Array,
    tensor_scale: Array | None,
    codec: Codec,
    extents: tuple[int, ...],
    out: Array,
) -> None:
    """Decode a packed array: ``out = code * scale``, computed in float32 and rounded to nearest even.

    Args:
        words: uint32, ``out.shape[:-1] + (words a line,)``, any strides.
        scales: Stored scales of the block grid, any strides.
        tensor_scale: 0-d float32 array of two-level codecs, else None.
        codec: What the codes and scales are.
        extents: Block extents of the trailing axes; ``()`` is one block for the whole array.
        out: float32, float16 or bfloat16 array of any strides, in storage order; written.

    Raises:
        DTypeError: If ``out`` is of another dtype.
        ShapeError: If the arrays don't fit each other.
    """
    if not out.size:
        return
    key = (
        id(codec), extents, words.shape, words.strides, scales.shape, scales.strides, out.shape, out.strides,
        out.dtype.char, alignment(words), alignment(out), 0 if SIMULATED else current_device(),
    )  # fmt: skip
    launch = _launches.get(key)
    if launch is None:
        if len(_launches) >= LAUNCHES:
            _launches.clear()
        launch = _launches[key] = plan(words, scales, codec, extents, out)
    if launch.kernel is None:
        _in_parts(words, scales, tensor_scale, codec, extents, out)
        return
    if SIMULATED:
        words, scales, out = words.view("uint32"), _bits(scales), out.view(launch.out_type)
    launch.kernel(launch.blocks, launch.threads, words, scales, tensor_scale, out, *launch.numbers)


def alignment(array: Array) -> int:
    """Bytes that an array's first element is beyond a multiple of 16."""
    address = array.__array_interface__["data"][0] if SIMULATED else array.data.ptr
    return int(address) % 16


def _bits(scales: Array) -> Array:
    return scales.view(f"uint{8 * scales.dtype.itemsize}")


def plan(words: Array, scales: Array, codec: Codec, extents: tuple[int, ...], out: Array) -> Launch:
    """The launch that decodes arrays of these shapes, strides and alignments."""
    if not out.ndim:
        words, out, scales = words.reshape(-1), out.reshape(1), scales.reshape(1)
    blocks = (0,) * out.ndim if not extents else (1,) * (out.ndim - len(extents)) + extents
    _check(words, scales, codec, blocks, out)
    converts = SIMULATED or device_capability(current_device()) >= CONVERTS
    return _flat(words, scales, codec, blocks, out, converts) or _strided(
        words, scales, codec, blocks, out, converts
    )


def _check(words: Array, scales: Array, codec: Codec, blocks: tuple[int, ...], out: Array) -> None:
    if out.dtype.name not in FLOATS or words.dtype.name != "uint32":
        raise DTypeError(
            f"dequantize: {words.dtype} words to {out.dtype}",
            f"uint32 words to {', '.join(FLOATS)}",
            "Decode to a float, then convert.",
        )
    grid_shape = tuple(-(-n // b) if b else 1 for n, b in zip(out.shape, blocks, strict=False))
    if (
        words.shape[:-1] != out.shape[:-1]
        or words.shape[-1] * WORD_BITS < out.shape[-1] * codec.element.bits
        or scales.shape != grid_shape
        or len(blocks) != out.ndim
    ):
        raise ShapeError(
            f"dequantize: words {words.shape}, scales {scales.shape}, blocks {blocks}, out {out.shape}",
            "as many lines in each, room for every code, a scale a block",
            "Allocate out in the shape that was quantized.",
        )


def _flat(
    words: Array, scales: Array, codec: Codec, blocks: tuple[int, ...], out: Array, converts: bool
) -> Launch | None:
    """The launch for contiguous arrays whose lines are whole words and blocks; None for others."""
    n, bits, block = out.shape[-1], codec.element.bits, blocks[-1]
    contiguous = words.flags.c_contiguous and scales.flags.c_contiguous and out.flags.c_contiguous
    whole_lines = words.shape[-1] * WORD_BITS == n * bits and (not block or n % block == 0)
    if not contiguous or block & (block - 1) or not (whole_lines or out.size == n):
        return None
    tiles = any(b > 1 for b in blocks[:-1])
    if tiles and not _are_flat_tiles(blocks, out):
        return None
    way = WIDE if out.dtype.itemsize == 4 else BYTES if bits == 8 else PACKED
    if not _fits(way.quads, block, out):
        way = WIDE
        if not _fits(way.quads, block, out):
            return None
    run, first_out = way.quads * QUAD, way.first_out and out.nbytes > CACHED
    runs = out.size // run
    kernel = flat_kernel(decoding(codec), out.dtype.name, converts, way.quads, way.flight, tiles, first_out)
    rows = (n // run, shifts(blocks[-2]), scales.shape[-1]) if tiles else (0, 0, 0)
    numbers = (shifts(block) - (run.bit_length() - 1), runs, *rows)
    launched = grid(runs, way.threads * way.flight)
    return Launch(codec, kernel, launched, numbers, vector_type(out.dtype.name), way.threads)


def _are_flat_tiles(blocks: tuple[int, ...], out: Array) -> bool:
    """Whether tiles are of two axes, a power of two of whole lines."""
    lines = blocks[-2]
    if any(b > 1 for b in blocks[:-2]) or lines & (lines - 1):
        return False
    # Lines are numbered through: a partial tile may only come last.
    return out.size == out.shape[-1] * out.shape[-2] or out.shape[-2] % lines == 0


def _fits(quads: int, block: int, out: Array) -> bool:
    """Whether runs of so many fours are whole, within one block and aligned."""
    run = quads * QUAD
    return not (out.size % run or block % run or alignment(out) % min(run * out.dtype.itemsize, 16))


def _strided(
    words: Array, scales: Array, codec: Codec, blocks: tuple[int, ...], out: Array, converts: bool
) -> Launch:
    """The launch for any arrays: items along the axis that the result is densest in are neighbours."""
    n, last = out.shape[-1], blocks[-1]
    axes = joined(_axes(words, scales, blocks, out))
    if len(axes) > MOST_AXES:
        return Launch(codec, None, 0, (), "")
    run = QUAD if last % QUAD == 0 or last >= n else 1
    axes = sorted(axes, key=lambda axis: abs(axis.out), reverse=True)
    (line,) = (i for i, axis in enumerate(axes) if axis.line)
    powers = all(axis.block & (axis.block - 1) == 0 for axis in axes)
    vector = run == QUAD and _is_aligned(axes, out)
    kernel = strided_kernel(decoding(codec), out.dtype.name, converts, len(axes), line, run, powers, vector)
    step = words.strides[-1] // 4
    axes[line] = axes[line]._replace(size=-(-n // run))
    items = prod(axis.size for axis in axes)
    padded = axes + [Axis(1, 0, 0, 0, 0)] * (MOST_AXES - len(axes))
    numbers: tuple[int, ...] = (
        *(axis.size for axis in padded),
        *(axis.words for axis in padded),
        *(axis.out for axis in padded),
        *(axis.scales for axis in padded),
        *(shifts(axis.block) if powers else axis.block or 1 << 62 for axis in padded),
    )
    return Launch(
        codec, kernel, grid(items, THREADS), (items, n, step, *numbers), stored_type(out.dtype.name)
    )


def _axes(words: Array, scales: Array, blocks: tuple[int, ...], out: Array) -> list[Axis]:
    size, last = out.dtype.itemsize, out.ndim - 1
    return [
        Axis(
            out.shape[i],
            blocks[i],
            words.strides[i] // 4,
            scales.strides[i] // scales.dtype.itemsize if blocks[i] else 0,
            out.strides[i] // size,
            i == last,
        )
        for i in range(out.ndim)
    ]


def _is_aligned(axes: list[Axis], out: Array) -> bool:
    """Whether every four codes of a line are written to neighbours that one store covers."""
    line = axes[-1]
    whole = line.line and line.out == 1 and all(axis.out % QUAD == 0 for axis in axes[:-1])
    return whole and alignment(out) % (QUAD * out.dtype.itemsize) == 0


def _in_parts(
    words: Array,
    scales: Array,
    tensor_scale: Array | None,
    codec: Codec,
    extents: tuple[int, ...],
    out: Array,
) -> None:
    """A launch for each place of the first axis."""
    covers = len(extents) == out.ndim
    block = extents[0] if covers else 1 if extents else out.shape[0]
    inner = extents[1:] if covers else extents
    for i in range(out.shape[0]):
        dequantize(words[i], scales[i // block], tensor_scale, codec, inner, out[i])
