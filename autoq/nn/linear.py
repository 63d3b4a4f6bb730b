"""Linear: an affine map whose weight may be trained through a quantization scheme."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.nn.init import uniform
from autoq.nn.weighted import Weighted, check_size, described
from autoq.random import Generator
from autoq.schemes.scheme import QuantScheme
from autoq.tape.apply import apply
from autoq.tape.parameter import Parameter


class Linear(Weighted):
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
        super().__init__(weight_scheme=weight_scheme, rng=rng, out_dtype=out_dtype)
        self.in_features, self.out_features = in_features, out_features
        bound = 1.0 / math.sqrt(in_features)
        self.weight = Parameter(uniform((out_features, in_features), rng, -bound, bound, dtype))
        self.bias = Parameter(uniform((out_features,), rng, -bound, bound, dtype)) if bias else None

    def forward(self, x: Any) -> Any:
        """``x: (..., in_features)`` to ``(..., out_features)``."""
        return apply("linear", x, self._weight(), self.bias, out_dtype=self.out_dtype)

    def describe(self) -> str:
        """Sizes and what differs from the defaults."""
        sizes = f"{self.in_features}, {self.out_features}"
        return described(sizes, "" if self.bias is not None else "bias=False", self.settings())
