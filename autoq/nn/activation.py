"""Activation modules: one op each, with the persistent output dtype ``signal=``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from autoq.errors import ArgumentError
from autoq.nn.module import Module
from autoq.nn.setting import dtype_setting, setting_text
from autoq.tape.apply import apply


class Activation(Module):
    """Base of the activations: a named op, applied element by element.

    Args:
        signal: Dtype or scheme of the output, as a persistent ``out_dtype`` (S49); None follows the input.

    Example:
        >>> import autoq as aq
        >>> aq.nn.ReLU(signal=aq.mxfp8)(aq.tensor([[0.0] * 32])).dtype.name
        'mxfp8'
    """

    op: ClassVar[str]

    def __init__(self, *, signal: Any = None) -> None:
        self.signal = dtype_setting(signal)

    def forward(self, x: Any) -> Any:
        """``x`` of any shape to the same shape."""
        return apply(self.op, x, out_dtype=self.signal)

    def describe(self) -> str:
        """The signal, if there is one."""
        return setting_text(signal=self.signal)


class ReLU(Activation):
    """``max(x, 0)``.

    Example:
        >>> import autoq as aq
        >>> ReLU()(aq.tensor([-1.0, 2.0])).numpy()
        array([0., 2.], dtype=float32)
    """

    op = "relu"


class LeakyReLU(Activation):
    """``x`` where positive, ``slope * x`` elsewhere.

    Args:
        slope: Factor of negative values.
        signal: As for :class:`Activation`.

    Example:
        >>> import autoq as aq
        >>> LeakyReLU(0.5)(aq.tensor([-1.0, 2.0])).numpy()
        array([-0.5,  2. ], dtype=float32)
    """

    op = "leaky_relu"

    def __init__(self, slope: float = 0.01, *, signal: Any = None) -> None:
        super().__init__(signal=signal)
        if not isinstance(slope, int | float | np.number):
            raise ArgumentError(f"LeakyReLU: slope is {slope!r}.", "a number", "Pass the slope below 0.")
        self.slope = slope

    def forward(self, x: Any) -> Any:
        """``x`` of any shape to the same shape."""
        return apply(self.op, x, negative_slope=self.slope, out_dtype=self.signal)

    def describe(self) -> str:
        """The slope and the signal."""
        return ", ".join(filter(None, [str(self.slope), setting_text(signal=self.signal)]))


class GELU(Activation):
    """``x · Φ(x)`` with the exact normal distribution function Φ (Hendrycks & Gimpel 2016).

    Example:
        >>> import autoq as aq
        >>> GELU()(aq.tensor([0.0])).numpy()
        array([0.], dtype=float32)
    """

    op = "gelu"


class SiLU(Activation):
    """``x · sigmoid(x)`` (Elfwing et al. 2018).

    Example:
        >>> import autoq as aq
        >>> SiLU()(aq.tensor([0.0])).numpy()
        array([0.], dtype=float32)
    """

    op = "silu"


class Tanh(Activation):
    """The hyperbolic tangent.

    Example:
        >>> import autoq as aq
        >>> Tanh()(aq.tensor([0.0])).numpy()
        array([0.], dtype=float32)
    """

    op = "tanh"


class Sigmoid(Activation):
    """``1 / (1 + exp(-x))``.

    Example:
        >>> import autoq as aq
        >>> Sigmoid()(aq.tensor([0.0])).numpy()
        array([0.5], dtype=float32)
    """

    op = "sigmoid"


class Softplus(Activation):
    """``log(1 + exp(x))``.

    Example:
        >>> import autoq as aq
        >>> Softplus()(aq.tensor([0.0])).numpy().round(3)
        array([0.693], dtype=float32)
    """

    op = "softplus"
