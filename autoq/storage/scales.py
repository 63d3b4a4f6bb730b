"""Scales of blocks and of the tensor as numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..schemes import QuantScheme
from ..schemes.scale import NVFP4_RULES
from .layout import Array

SMALLEST_NORMAL = np.float32(2.0**-126)


def effective_scales(scales: Array, tensor_scale: np.float32 | None, scheme: QuantScheme) -> Array:
    """float32 factor of each block: its scale times the tensor's.

    Example:
        >>> from autoq.schemes import scheme
        >>> effective_scales(np.array([128], np.uint8), None, scheme("mxfp8")).tolist()
        [2.0]
    """
    values: Array = scheme.scale_format.decode(scales)
    return values if tensor_scale is None else values * tensor_scale


def tensor_scale_rule(scheme: QuantScheme) -> Callable[[float], np.float32] | None:
    """What gives the stored tensor scale for a tensor's magnitude; None under single-level schemes.

    ``amax / (6 * 448)`` where the rule derives block scales from it; otherwise the largest raw block scale
    over the scale format's maximum, at least the smallest normal float32.

    Source: NVIDIA TransformerEngine, NVFP4 reference quantizer; torchao, nvfp4 per-tensor scale.

    Example:
        >>> from autoq.schemes import scheme
        >>> float(tensor_scale_rule(scheme("nvfp4"))(2688.0))
        1.0
    """
    if not scheme.tensor_scale:
        return None
    element, scale = scheme.element_format, scheme.scale_format
    if scheme.scale_rule in NVFP4_RULES:
        whole = np.float32(element.maximum * scale.maximum)
        return lambda amax: np.float32(np.float32(amax) / whole)
    half_range, maximum = np.float32(element.half_range), np.float32(scale.maximum)
    return lambda amax: np.float32(max(np.float32(amax) / half_range / maximum, SMALLEST_NORMAL))
