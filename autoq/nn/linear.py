"""Linear: an affine map whose weight may be trained through a quantization scheme."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from autoq.context import using
from autoq.errors import ArgumentError
from autoq.nn.init import checked_generator, uniform
from autoq.nn.module import Module
from autoq.nn.setting import check_size, dtype_setting, scheme_setting, setting_text
from autoq.random import Generator
from autoq.schemes.scheme import QuantScheme
from autoq.storage.qtensor import QTensor
from autoq.tape.apply import apply
from autoq.tape.parameter import Parameter
from autoq.types import dtype_name


class Linear(Module):
    """``x @ weight.mT + bias``: one op, which decodes once and encodes once.

    With ``weight_scheme=`` the weight is fake-quantized: a float master weight is trained, every forward
    quantizes it and computes with exactly the numbers of :meth:`packed_weight`; the gradient passes straight
    through the rounding to the master (S20). The blocks run along ``in_features``, the contracted axis.

    Args:
        in_features: Last axis of the input, ``x: (..., in_features)``.
        out_features: Last axis of the output.
        bias: Whether a trained bias is added.
        weight_scheme: Scheme of the weight in the forward, or None for the float weight itself.
        rng: Generator of the starting values, uniform in ±1/√in_features; also of the draws of a scheme
            that rounds stochastically.
        out_dtype: Dtype or scheme of the output; None follows the input (S5–S9).
        dtype: Float dtype of the parameters.

    Raises:
        ArgumentError: Without a generator, or for a size below 1.

    Example:
        >>> import autoq as aq
        >>> layer = aq.nn.Linear(64, 10, weight_scheme=aq.nvfp4, rng=aq.Generator(0))
        >>> layer
        Linear(64, 10, weight_scheme=nvfp4)
        >>> layer(aq.tensor([[0.5] * 64])).shape
        (1, 10)
        >>> layer.packed_weight().bits_per_value < 5
        True
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        weight_scheme: QuantScheme | None = None,
        rng: Generator | None = None,
        out_dtype: Any = None,
        dtype: Any = np.float32,
    ) -> None:
        check_size("Linear", "in_features", in_features)
        check_size("Linear", "out_features", out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight_scheme = scheme_setting("Linear: weight_scheme", weight_scheme)
        self.out_dtype = dtype_setting(out_dtype)
        self.rng = checked_generator("Linear", rng)
        bound = 1.0 / math.sqrt(in_features)
        self.weight = Parameter(uniform((out_features, in_features), rng, -bound, bound, dtype))
        self.bias = Parameter(uniform((out_features,), rng, -bound, bound, dtype)) if bias else None

    def forward(self, x: Any) -> Any:
        """``x: (..., in_features)`` to ``(..., out_features)``."""
        return apply("linear", x, self._weight(), self.bias, out_dtype=self.out_dtype)

    def packed_weight(self) -> QTensor:
        """The weight as the forward uses it, ``(out_features, in_features)``.

        Raises:
            ArgumentError: If the layer has no ``weight_scheme`` and its weight isn't packed.
        """
        with using(grad=False):
            value = self._weight().value
        if not isinstance(value, QTensor):
            raise ArgumentError(
                f"Linear.packed_weight: the weight is {dtype_name(value.dtype)}.",
                "a layer with a weight_scheme",
                "Build it with weight_scheme=, or set layer.weight_scheme = aq.mxfp8.",
            )
        return value

    def pack(self) -> Linear:
        """A copy of the layer for inference: its weight is the packed one alone, the bias is shared.

        Raises:
            ArgumentError: If the layer has no ``weight_scheme``.

        Example:
            >>> import autoq as aq
            >>> layer = aq.nn.Linear(64, 10, weight_scheme=aq.int4, rng=aq.Generator(0)).pack()
            >>> layer, layer.weight.dtype == aq.int4
            (Linear(64, 10, weight=int4), True)
        """
        packed = copy.copy(self)
        packed.weight, packed.weight_scheme = Parameter(self.packed_weight()), None
        return packed

    def describe(self) -> str:
        """Sizes and what differs from the defaults."""
        packed = self.weight.dtype if isinstance(self.weight.value, QTensor) else None
        settings = setting_text(weight=packed, weight_scheme=self.weight_scheme, out_dtype=self.out_dtype)
        sizes = f"{self.in_features}, {self.out_features}" + ("" if self.bias is not None else ", bias=False")
        return ", ".join(filter(None, [sizes, settings]))

    def _weight(self) -> Any:
        scheme = self.weight_scheme
        if scheme is None:
            return self.weight
        return self.weight.quantize(scheme_setting("Linear: weight_scheme", scheme), rng=self.rng)
