"""What a gradient through rounding is declared to be: the linear map E of each operation that encodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
# From what went in at recording, the static arguments and what backward saves, to the map E of differences.
Estimator = Callable[[Sequence[Array], dict[str, Any], dict[str, Any]], Callable[..., Array]]


def straight_through(
    values: Sequence[Array], static: dict[str, Any], saved: dict[str, Any]
) -> Callable[..., Array]:
    """The identity; under ``ste="clip"`` 0 where the value saturated (S20)."""
    kept = saved.get("kept")
    if kept is None:
        return lambda change, *rest: change
    mask = np.unpackbits(kept, count=values[0].size).reshape(values[0].shape).astype(np.float64)
    return lambda change, *rest: mask * change


ESTIMATORS: dict[str, Estimator] = {"quantize": straight_through}


def declare(name: str, estimator: Estimator) -> None:
    """Say what the gradient of an operation that encodes is declared to be.

    Args:
        name: The name of an op record of kind ``"cast"`` that returns packed values, or of one that rounds
            in its forward.
        estimator: ``estimator(values, static, saved)`` gives ``E``: the recorded operands, static arguments
            and residuals in; a linear function of the operands' changes out. For a learned step it is the
            estimator's own Jacobian.

    Example:
        >>> declare("my_cast", straight_through)
        >>> del ESTIMATORS["my_cast"]
    """
    ESTIMATORS[name] = estimator
