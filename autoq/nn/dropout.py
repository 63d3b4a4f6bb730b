"""Dropout with a generator of its own, so that a replayed run drops the same values."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ArgumentError
from autoq.nn.init import checked_generator
from autoq.nn.module import Module
from autoq.ops.public import dropout
from autoq.random import Generator


class Dropout(Module):
    """Zero each value with probability ``rate`` in training and scale the rest by 1 / (1 - rate).

    Source: Srivastava et al. 2014. In ``eval()`` the input passes unchanged.

    Args:
        rate: Probability in [0, 1).
        rng: The generator to draw from (S41); give each module its own, or share one.

    Raises:
        ArgumentError: Without a generator, or for a rate outside [0, 1).

    Example:
        >>> import autoq as aq
        >>> layer = Dropout(0.5, aq.Generator(0))
        >>> layer
        Dropout(0.5)
        >>> bool((layer.eval()(aq.tensor([1.0] * 4)).numpy() == 1).all())
        True
    """

    def __init__(self, rate: float = 0.5, rng: Generator | None = None) -> None:
        if not isinstance(rate, int | float | np.number) or not 0 <= rate < 1:
            raise ArgumentError(
                f"Dropout: rate is {rate!r}.", "0 <= rate < 1", "Pass the probability of a zero."
            )
        self.rate, self.rng = rate, checked_generator("Dropout", rng)

    def forward(self, x: Any) -> Any:
        """``x`` of any shape to the same shape and dtype."""
        if not self.training or self.rate == 0:
            return x
        return dropout(x, self.rate, rng=self.rng)

    def describe(self) -> str:
        """The rate."""
        return str(self.rate)
