"""Branches that a forward doesn't show: where equal values may be taken in any order, the rule's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autoq.tape.op import REGISTRY

Array = np.ndarray[Any, np.dtype[Any]]
# From the recorded operands and the static arguments to the smooth forward on their branch.
Branch = Callable[[Sequence[Array], dict[str, Any]], Callable[..., Array]]


def sorted_as(values: Sequence[Array], static: dict[str, Any]) -> Callable[..., Array]:
    """Values in the recorded order, which of equal ones takes those that ``argsort`` takes."""
    axis = static["axis"]
    order = np.asarray(REGISTRY["argsort"].forward(values[0], **static))
    return lambda x: np.take_along_axis(x, order, axis)


BRANCHES: dict[str, Branch] = {"sort": sorted_as}
