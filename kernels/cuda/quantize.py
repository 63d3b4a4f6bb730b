"""Quantize arrays on the device: one launch, after one for the tensor's magnitude where the scheme needs it.

The codes, the scales and the tensor scale are the CPU's, bit for bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ..codec import Codec
from .launch import SIMULATED, library, processors
from .measure import mean_measured, measured
from .operand import float_bits, float_kind, scale_bits
from .quantize_axes import WORD_BITS, Axis, five_axes, patch_of, too_many_axes
from .quantize_patches import patches_kernel
from .random import draw_arguments, is_keyed

NO_DRAW = (0, 0)
WAVES = 32
MOST_THREADS = 32 if SIMULATED else 256


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
    if codec.rounding != "nearest" and draw is None:
        raise ArgumentError(
            f"rounding {codec.rounding!r} without random numbers",
            "draw=(seed, stream) or a key on the device",
            "Pass a draw.",
        )
    if x.size == 0:
        return
    draw = NO_DRAW if codec.rounding == "nearest" else draw
    measure = measure_of(x, codec, extents, given_amax)
    by_patches(x, codec, extents, words, scales, tensor_scale, measure, given, draw)


def measure_of(x: Any, codec: Codec, extents: tuple[int, ...], given_amax: Any) -> tuple[Any, float, int]:
    """What was measured of the whole tensor: an array or None, a number, and which of them counts."""
    if codec.two_level and given_amax is not None:
        if isinstance(given_amax, (int, float, np.floating)):
            return None, float(given_amax), 0
        return given_amax.reshape(1).view(np.uint32), 0.0, 1
    if not extents and codec.calibration == "abs_mean":
        return mean_measured(x), 0.0, 1
    if codec.two_level or not extents:
        return measured(x), 0.0, 1
    return None, 0.0, 0


def by_patches(
    x: Any,
    codec: Codec,
    extents: tuple[int, ...],
    words: Any,
    scales: Any,
    tensor_scale: Any,
    measure: tuple[Any, float, int],
    given: Any,
    draw: Any,
) -> None:
    """Encode an array of any strides by blocks of any extents."""
    bits = codec.element.bits
    axes = five_axes(x, extents, bits)
    if axes is None:
        x = library().ascontiguousarray(x)
        axes = five_axes(x, extents, bits)
    if axes is None:
        raise too_many_axes(extents)
    patch = patch_of(axes, bits, not extents)
    count = math.prod(-(-axis.size // size) for axis, size in zip(axes, patch.sizes, strict=True))
    launch = patches_kernel(codec, float_kind(x), *patch, not extents, is_keyed(draw))
    launch(
        min(count, WAVES * processors()),
        threads_of(patch.sizes, bits),
        float_bits(x),
        words,
        scale_bits(scales),
        tensor_scale if tensor_scale is None or not SIMULATED else tensor_scale.reshape(1),
        *measure,
        given,
        *draw_arguments(draw),
        *sizes_and_strides(axes),
    )


def sizes_and_strides(axes: list[Axis]) -> list[int]:
    """The kernel arguments that describe an array's axes."""
    return [axis.size for axis in axes] + [axis.stride for axis in axes]


def threads_of(sizes: tuple[int, ...], bits: int) -> int:
    """Threads of a block: one a word of the patch, in whole warps."""
    words = math.prod(sizes) * bits // WORD_BITS
    return max(32, min(MOST_THREADS, 1 << (words - 1).bit_length()))
