"""Scales of blocks and of the tensor as numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ..devices import device_of, is_array, on_gpu, to_device
from ..schemes import QuantScheme
from ..schemes.scale import NVFP4_RULES
from .layout import Array

SMALLEST_NORMAL = np.float32(2.0**-126)


def effective_scales(scales: Array, tensor_scale: Any, scheme: QuantScheme) -> Array:
    """float32 factor of each block: its scale times the tensor's.

    Example:
        >>> from autoq.schemes import scheme
        >>> effective_scales(np.array([128], np.uint8), None, scheme("mxfp8")).tolist()
        [2.0]
    """
    values: Array = scheme.scale_format.decode(scales) if not on_gpu(scales) else _decoded(scales, scheme)
    if tensor_scale is None:
        return values
    if not on_gpu(values):
        return values * tensor_scale
    from .inputs import converted

    # In float64 the product is exact; in float32 CuPy would make subnormal ones 0.
    exact = converted(values, np.float64) * converted(tensor_scale, np.float64)
    return converted(exact, np.float32)


def _decoded(scales: Array, scheme: QuantScheme) -> Array:
    """float32 values of stored scales on a GPU."""
    if not scheme.scale_format.coded:
        from .inputs import converted

        return converted(scales, np.float32, copy=True)
    return _values_on(scheme, device_of(scales))[scales]


@lru_cache(maxsize=64)
def _values_on(scheme: QuantScheme, device: str) -> Any:
    """The value of every code of the scales, kept on a device."""
    return to_device(scheme.scale_format.values, device)


def tensor_scale_rule(scheme: QuantScheme) -> Callable[[Any], Any] | None:
    """What gives the stored tensor scale for a tensor's magnitude, or an array of them; None under one level.

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
        return lambda amax: _float32(amax) / whole
    half_range, maximum = np.float32(element.half_range), np.float32(scale.maximum)
    return lambda amax: np.maximum(_float32(amax) / half_range / maximum, SMALLEST_NORMAL)


def _float32(amax: Any) -> Any:
    """A magnitude as a NumPy float32; an array of them as it is."""
    return amax if is_array(amax) else np.float32(amax)
