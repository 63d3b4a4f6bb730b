"""Flatten: one row an example, before a linear layer."""

from __future__ import annotations

import math
from typing import Any

from autoq.errors import ShapeError
from autoq.nn.module import Module
from autoq.tape.tensor import Tensor, tensor


class Flatten(Module):
    """``x`` of shape (n, ...) to (n, m): all axes but the first become one.

    A packed ``x`` stays packed; whether it is a view depends on where the blocks are cut (S34-S36).

    Raises:
        ShapeError: If ``x`` has no axes.

    Example:
        >>> import autoq as aq
        >>> aq.nn.Flatten()(aq.zeros((3, 8, 8))).shape
        (3, 64)
    """

    def forward(self, x: Any) -> Tensor:
        """``x`` of shape (n, ...) to (n, m)."""
        x = x if isinstance(x, Tensor) else tensor(x)
        if not x.ndim:
            raise ShapeError("Flatten of a number.", "one axis or more", "Add an axis with expand_dims.")
        return x.reshape(x.shape[0], math.prod(x.shape[1:]))
