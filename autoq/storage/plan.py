"""What encoding and decoding need of a scheme, worked out once a scheme."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..schemes import QuantScheme
from .scales import tensor_scale_rule

if TYPE_CHECKING:
    from ..kernels.codec import Codec

Array = np.ndarray[Any, np.dtype[Any]]


class Kernels(NamedTuple):
    """The compiled functions that storage calls, imported on first use: they bring Numba along."""

    quantize_lines: Any
    quantize_blocks: Any
    dequantize_lines: Any
    pack_lines: Any
    unpack_lines: Any
    amax: Any
    first_nonfinite: Any


@lru_cache(maxsize=1)
def kernels() -> Kernels:
    """The kernels of the CPU."""
    from ..kernels.cpu import dequantize, quantize, reduce, slice

    return Kernels(
        quantize.quantize_lines,
        quantize.quantize_blocks,
        dequantize.dequantize_lines,
        slice.pack_lines,
        slice.unpack_lines,
        reduce.amax,
        reduce.first_nonfinite,
    )


@lru_cache(maxsize=1024)
def codec_of(scheme: QuantScheme, given: bool = False) -> Codec:
    """The plain record that kernels are compiled for.

    Args:
        scheme: The scheme; its non-finite policy ``raise`` is enforced before kernels run.
        given: Whether the scales are given rather than calibrated.

    Example:
        >>> from autoq.schemes import scheme
        >>> codec_of(scheme("mxfp8")).rule
        'round_up'
    """
    from ..kernels.codec import Codec, ElementCodec

    element = scheme.element_format
    values = tuple(element.values.tolist()) if element.kind == "table" else None
    nan_code = -1 if element.nan_code is None else element.nan_code
    max_code = int(np.flatnonzero(element.values == element.maximum)[0])
    nonfinite = "propagate" if scheme.nonfinite == "raise" else scheme.nonfinite
    return Codec(
        ElementCodec(
            element.name,
            element.kind,
            element.bits,
            element.mantissa_bits,
            element.bias,
            element.maximum,
            element.minimum,
            element.step,
            max_code,
            element.has_inf,
            nan_code,
            values,
        ),
        scheme.scale,
        scheme.scale_rule,
        scheme.tensor_scale,
        scheme.rounding,
        nonfinite,
        scheme.calibration,
        given,
    )


class Plan(NamedTuple):
    """One scheme's constants.

    Attributes:
        codec: For encoding and decoding.
        bits: Bits a code.
        block: Block extent along the last axis; 0 is the whole tensor.
        extents: Block extents of the trailing axes; none for the whole tensor.
        scale_dtype: NumPy dtype of a stored scale.
        direct: Whether a line is encoded by one kernel call with nothing else to do: an innermost
            block, no draws, nothing to refuse.
        lines: Whether blocks lie within lines (block of one axis).
        quantize_lines, dequantize_lines, amax: The kernels.
        tensor_scale: From a magnitude to the stored tensor scale, under two levels.
    """

    codec: Codec
    bits: int
    block: int
    extents: tuple[int, ...]
    scale_dtype: np.dtype[Any]
    direct: bool
    lines: bool
    quantize_lines: Any
    dequantize_lines: Any
    amax: Any
    tensor_scale: Callable[[Any], Any] | None


@lru_cache(maxsize=1024)
def plan_of(scheme: QuantScheme) -> Plan:
    """The plan of ``scheme``."""
    block = scheme.block
    lines = block is not None and len(block) == 1
    direct = lines and scheme.rounding == "nearest" and scheme.nonfinite != "raise"
    return Plan(
        codec_of(scheme),
        scheme.element_bits,
        block[-1] if block else 0,
        block or (),
        scheme.scale_format.stored_dtype,
        direct,
        lines,
        kernels().quantize_lines,
        kernels().dequantize_lines,
        kernels().amax,
        tensor_scale_rule(scheme),
    )
