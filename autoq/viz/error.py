"""How far a packed tensor is from the floats it was made of: one record a tensor."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from autoq.devices import to_host
from autoq.storage.convert import effective_scales
from autoq.storage.qtensor import QTensor
from autoq.tape.tensor import Tensor


class TensorError(NamedTuple):
    """The error of one encoded tensor.

    Attributes:
        name: What the tensor is, for a chart.
        sqnr: Signal to quantization noise, 10 log10(sum x^2 / sum (x - decoded)^2), in dB; inf without error.
        saturated: Share of values beyond what their block can hold, 0 to 1: rounded without an upper
            limit they would exceed the largest code (S20).
        flushed: Share of values that aren't zero and decode to zero, 0 to 1.
    """

    name: str
    sqnr: float
    saturated: float
    flushed: float


def tensor_error(name: str, values: Any, q: QTensor | Any) -> TensorError:
    """Compare ``values`` with ``q``, which encodes them.

    Args:
        name: What the tensor is.
        values: Finite floats of the shape of ``q``: an array or a tensor, on any device.
        q: Their encoding, in storage order; a tensor of a quantized dtype is read as its packed value.

    Example:
        >>> import autoq as aq
        >>> q = aq.QTensor.quantize(np.array([1.0, 0.5, 0.001, 0.0], np.float32), aq.int4)
        >>> error = tensor_error("x", np.array([1.0, 0.5, 0.001, 0.0], np.float32), q)
        >>> round(error.sqnr, 1), error.saturated, error.flushed
        (23.9, 0.0, 0.25)
    """
    exact, q = on_host(values).astype(np.float64), getattr(q, "qtensor", q).to("cpu")
    decoded = q.dequantize().astype(np.float64)
    noise = float(np.sum((exact - decoded) ** 2))
    sqnr = 10 * np.log10(float(np.sum(exact**2)) / noise) if noise else np.inf
    flushed = np.mean((exact != 0) & (decoded == 0))
    return TensorError(name, float(sqnr), float(np.mean(saturated(exact, q))), float(flushed))


def on_host(values: Any) -> np.ndarray:
    """The values of an array or a tensor on any device, as a NumPy array.

    Example:
        >>> on_host([1.0, 2.0])
        array([1., 2.])
    """
    return values.numpy() if isinstance(values, Tensor) else np.asarray(to_host(values))


def saturated(values: Any, q: QTensor) -> np.ndarray:
    """Which values lie beyond what their block can hold: a bool array of the shape of ``q``."""
    element = q.scheme.element_format
    codes = np.unique(element.values[np.isfinite(element.values)])
    top = element.maximum + (element.maximum - codes[codes < element.maximum][-1]) / 2
    bottom = element.minimum - (codes[codes > element.minimum][0] - element.minimum) / 2
    scales = scale_of_each_value(q)
    return (values > top * scales) | (values < bottom * scales)


def scale_of_each_value(q: QTensor) -> np.ndarray:
    """The float32 factor that each value's element is multiplied by, of the shape of ``q``."""
    scales = effective_scales(q.scales, q.tensor_scale, q.scheme)
    for axis, extent in enumerate(q.scheme.extents(q.ndim)):
        repeats = extent or q.shape[axis]
        scales = np.repeat(scales, repeats, axis=axis).take(np.arange(q.shape[axis]), axis=axis)
    return scales
