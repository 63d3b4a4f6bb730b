"""Embedding: a table of vectors, looked up by number."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ArgumentError
from autoq.nn.init import normal
from autoq.nn.weighted import Weighted, check_size, described
from autoq.ops.embedding import embedding
from autoq.random import Generator
from autoq.schemes.scheme import QuantScheme
from autoq.tape.parameter import Parameter


class Embedding(Weighted):
    """Rows of a trained table: ``weight[indices]``, which is an activation and propagates (S10).

    The output has the dtype of the weight as it is looked up: with ``weight_scheme=`` the rows come out
    packed, copied and not decoded, and ``out_dtype=`` turns them into another dtype.

    Args:
        count: How many vectors.
        features: Length of a vector.
        padding_idx: A row that starts at 0 and gets no gradient, or None.
        weight_scheme: Scheme of the weight in the forward, or None for the float weight itself.
        rng: Generator of the starting values, normal with standard deviation 1; also of the draws of a
            scheme that rounds stochastically.
        out_dtype: Dtype or scheme of the output; None is that of the weight.
        dtype: Float dtype of the parameter.

    Raises:
        ArgumentError: Without a generator, for a size below 1, or a padding_idx that is no row.

    Example:
        >>> import autoq as aq
        >>> layer = aq.nn.Embedding(100, 32, weight_scheme=aq.mxfp8, rng=aq.Generator(0))
        >>> layer
        Embedding(100, 32, weight_scheme=mxfp8)
        >>> layer([[3, 14, 15]]).shape, layer([3]).dtype.name
        ((1, 3, 32), 'mxfp8')
    """

    def __init__(
        self, count: int, features: int, padding_idx: int | None = None, *,
        weight_scheme: QuantScheme | None = None, rng: Generator | None = None, out_dtype: Any = None,
        dtype: Any = np.float32,
    ) -> None:  # fmt: skip
        check_size("Embedding", "count", count)
        check_size("Embedding", "features", features)
        if padding_idx is not None and not 0 <= padding_idx < count:
            raise ArgumentError(
                f"Embedding: padding_idx={padding_idx} of {count} rows.",
                f"None, or 0 to {count - 1}",
                "Name the row that stands for padding.",
            )
        super().__init__(weight_scheme=weight_scheme, rng=rng, out_dtype=out_dtype)
        self.padding_idx = padding_idx
        values = normal((count, features), rng, dtype=dtype)
        if padding_idx is not None:
            values[padding_idx] = 0
        self.weight = Parameter(values)

    def forward(self, indices: Any) -> Any:
        """Integers of any shape to ``(*shape, features)``."""
        return embedding(self._weight(), indices, self.padding_idx, out_dtype=self.out_dtype)

    def describe(self) -> str:
        """Sizes and what differs from the defaults."""
        count, features = self.weight.shape
        padding = "" if self.padding_idx is None else f"padding_idx={self.padding_idx}"
        return described(f"{count}, {features}", padding, self.settings())
