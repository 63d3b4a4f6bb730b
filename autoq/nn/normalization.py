"""Normalization over the last axis: single ops that decode once and encode once (S47)."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ShapeError
from autoq.nn.init import ones, zeros
from autoq.nn.module import Module
from autoq.nn.setting import check_size, dtype_setting, setting_text
from autoq.tape.apply import apply
from autoq.tape.parameter import Parameter


def _check_last_axis(owner: str, x: Any, weight: tuple[int, ...]) -> None:
    """Refuse a last axis of another length, along which a weight of length 1 would be repeated."""
    shape = getattr(x, "shape", None)
    if shape is not None and tuple(shape[-1:]) != weight:
        raise ShapeError(
            f"{owner}: x is {tuple(shape)}, the layer's size {weight[0]}.",
            f"x: (..., {weight[0]})",
            "Build the layer for the length of the last axis.",
        )


class LayerNorm(Module):
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axis (Ba, Kiros & Hinton 2016).

    Args:
        size: Length of the last axis, ``x: (..., size)``.
        eps: Added to the variance.
        bias: Whether a trained bias is added.
        signal: Dtype or scheme of the output, as a persistent ``out_dtype`` (S49); None follows the input.
        dtype: Float dtype of the parameters.

    Example:
        >>> import autoq as aq
        >>> LayerNorm(32, signal=aq.mxfp8)
        LayerNorm(32, signal=mxfp8)
        >>> LayerNorm(2)(aq.tensor([[1.0, 3.0]])).numpy().round(3)
        array([[-1.,  1.]], dtype=float32)
    """

    def __init__(
        self, size: int, eps: float = 1e-5, bias: bool = True, *, signal: Any = None, dtype: Any = np.float32
    ) -> None:
        self.eps, self.signal = eps, dtype_setting(signal)
        check_size("LayerNorm", "size", size)
        self.weight = Parameter(ones((size,), dtype))
        self.bias = Parameter(zeros((size,), dtype)) if bias else None

    def forward(self, x: Any) -> Any:
        """``x: (..., size)`` to the same shape."""
        _check_last_axis("LayerNorm", x, self.weight.shape)
        return apply("layer_norm", x, self.weight, self.bias, axis=-1, eps=self.eps, out_dtype=self.signal)

    def describe(self) -> str:
        """The size and the signal."""
        return ", ".join(filter(None, [str(self.weight.shape[0]), setting_text(signal=self.signal)]))


class RMSNorm(Module):
    """``x / sqrt(mean(x²) + eps) * weight`` over the last axis (Zhang & Sennrich 2019).

    Args:
        size: Length of the last axis, ``x: (..., size)``.
        eps: Added to the mean square.
        signal: Dtype or scheme of the output, as a persistent ``out_dtype`` (S49); None follows the input.
        dtype: Float dtype of the parameter.

    Example:
        >>> import autoq as aq
        >>> RMSNorm(2)(aq.tensor([[3.0, 3.0]])).numpy().round(3)
        array([[1., 1.]], dtype=float32)
    """

    def __init__(self, size: int, eps: float = 1e-6, *, signal: Any = None, dtype: Any = np.float32) -> None:
        self.eps, self.signal = eps, dtype_setting(signal)
        check_size("RMSNorm", "size", size)
        self.weight = Parameter(ones((size,), dtype))

    def forward(self, x: Any) -> Any:
        """``x: (..., size)`` to the same shape."""
        _check_last_axis("RMSNorm", x, self.weight.shape)
        return apply("rms_norm", x, self.weight, axis=-1, eps=self.eps, out_dtype=self.signal)

    def describe(self) -> str:
        """The size and the signal."""
        return ", ".join(filter(None, [str(self.weight.shape[0]), setting_text(signal=self.signal)]))
