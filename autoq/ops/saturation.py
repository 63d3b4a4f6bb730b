"""Which values a quantization saturated: the mask of the clip estimator (S20)."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.devices import on_gpu
from autoq.ops.axes import along
from autoq.schemes import ElementFormat, QuantScheme
from autoq.storage import QTensor
from autoq.storage.convert import effective_scales
from autoq.storage.inputs import converted

F = np.float32
EXPONENT_BIAS = 127  # of ue8m0
NVFP4_TOP = F(2688)  # 6 · 448: the largest element times the largest block scale


def saturated(x: Any, packed: QTensor, scales: Any = None) -> Any:
    """Where rounding without the upper limit would give a magnitude above the largest code.

    Args:
        x: What was encoded, floats of shape (...), on any device.
        packed: The encoded tensor, contiguous, of the same shape.
        scales: The given scales, if there were any.

    Returns:
        A bool array of the same shape.

    Example:
        >>> import autoq as aq
        >>> x = np.full((1, 32), 0.5, np.float32)
        >>> x[0, :2] = 15.0, -100.0
        >>> saturated(x, aq.QTensor.quantize(x, aq.int4, scales=np.full((1, 1), 2.0)))[0, :3]
        array([ True,  True, False])
    """
    with np.errstate(all="ignore"):
        quotient = _quotient(converted(x if on_gpu(x) else np.asarray(x), F), packed, scales)
        low, high, low_tie, high_tie = limits(packed.scheme.element_format)
        above = quotient >= high if high_tie else quotient > high
        below = quotient <= low if low_tie else quotient < low
    return above | below


def limits(element: ElementFormat) -> tuple[np.float32, np.float32, bool, bool]:
    """The midpoints beyond the smallest and the largest value, and whether a tie there rounds outwards.

    A tie goes to the even code, so it rounds outwards where the outermost code is odd (formats, A1).

    Example:
        >>> from autoq.schemes import element
        >>> [bool(v) if isinstance(v, bool) else float(v) for v in limits(element("e4m3"))]
        [-464.0, 464.0, False, False]
    """
    values = element.values
    inside = np.unique(
        values[np.isfinite(values) & (values >= element.minimum) & (values <= element.maximum)]
    )
    top, bottom = inside[-1], inside[0]
    code_of = {float(v): c for c, v in enumerate(values)}
    high = F(top + (top - inside[-2]) / 2)
    low = F(bottom - (inside[1] - bottom) / 2)
    return low, high, bool(code_of[float(bottom)] & 1), bool(code_of[float(top)] & 1)


def _quotient(x: Any, packed: QTensor, scales: Any) -> Any:
    """What the element encoder rounds, in the arithmetic of the scheme's rule (formats, A3-A5)."""
    scheme = packed.scheme
    if scheme.scale == "ue8m0":
        return np.ldexp(x, spread(EXPONENT_BIAS - packed.scales.astype(np.int32), x.shape, scheme))
    stored = effective_scales(packed.scales, None, scheme)
    if scheme.tensor_scale and scheme.scale_rule in ("te", "four_over_six"):
        amax = _amax(x) if scales is None else scales[1].astype(F) if on_gpu(scales[1]) else F(scales[1])
        top = np.finfo(F).max
        s = np.where(amax > 0, np.minimum(NVFP4_TOP / amax, top), F(1))
        return x * spread(np.minimum(F(1) / (stored * (F(1) / s)), top), x.shape, scheme)
    if scheme.tensor_scale and scheme.scale_rule == "torchao":
        return x * spread((F(1) / packed.tensor_scale) / stored, x.shape, scheme)
    return x / spread(effective_scales(packed.scales, packed.tensor_scale, scheme), x.shape, scheme)


def _amax(x: Any) -> Any:
    """The largest finite magnitude, 0 without one."""
    return along(np.maximum.reduce, np.where(np.isfinite(x), np.abs(x), F(0)), axis=None, initial=F(0))


def spread(scales: Any, shape: tuple[int, ...], scheme: QuantScheme) -> Any:
    """One scale a value, from one a block.

    Example:
        >>> import autoq as aq
        >>> spread(np.array([1.0, 2.0]), (3,), aq.int8.replace(block=(2,))).tolist()
        [1.0, 1.0, 2.0]
    """
    for axis, extent in enumerate(scheme.extents(len(shape))):
        n = shape[axis]
        scales = np.repeat(scales, extent or n, axis)[(slice(None),) * axis + (slice(n),)]
    return scales
