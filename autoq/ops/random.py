"""Ops that draw: the draw is an argument, so that a rule repeats it instead of saving what it gave (S41)."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.devices import beside
from autoq.errors import ArgumentError
from autoq.ops.axes import number
from autoq.ops.samples import moved
from autoq.random import Draw, uniform01
from autoq.tape.op import Op, register


def dropout(x: Any, *, rate: float, draw: Draw) -> Any:
    """Each value set to 0 with probability `rate`, the others divided by 1 - rate.

    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", 2014.

    Args:
        x: Any shape.
        rate: The probability, 0 to 1.
        draw: Which values: element i in row-major order stays where the draw's i-th uniform number is at
            least `rate`.

    Raises:
        ArgumentError: A rate outside 0 to 1.
    """
    if not 0.0 <= number("dropout", "rate", rate) <= 1.0:
        raise ArgumentError(f"dropout: rate={rate}.", "0 to 1.", "Pass a probability.")
    if rate == 1.0:
        return np.zeros_like(x)
    drawn = uniform01(draw, x.size).reshape(x.shape)
    kept = beside(drawn, x) >= np.float32(rate)
    return x * (1.0 / (1.0 - float(rate))) * kept


register(
    Op(
        "dropout",
        dropout,
        {"x": lambda F, g, rate, draw: F.dropout(g, rate=rate, draw=draw)},
        sample=moved(
            (3, 4),
            {"rate": 0.4, "draw": Draw(7, 1)},
            {"rate": 0.0, "draw": Draw(7, 2)},
            {"rate": 1.0, "draw": Draw(7, 3)},
        ),
    )
)
