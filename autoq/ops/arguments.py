"""Static arguments as the numbers and arrays that an op needs, or an error that names them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.devices import on_gpu
from autoq.errors import ArgumentError, DTypeError


def number(name: str, what: str, value: Any, above: float = -math.inf) -> float:
    """A real number above a bound.

    Args:
        name: The op to name in an error.
        what: The argument.
        value: What was given.
        above: It must be more than this.

    Raises:
        ArgumentError: It is none.

    Example:
        >>> number("huber_loss", "delta", 1, above=0)
        1.0
    """
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not real or not value > above:
        allowed = "a number" if above == -math.inf else f"a number above {above:g}"
        raise ArgumentError(f"{name}: {what}={value!r}.", f"{allowed}.", f"Correct {what}.")
    return float(value)


def whole(name: str, what: str, value: Any, least: float = -math.inf) -> int:
    """An integer of at least a bound.

    Args:
        name: The op to name in an error.
        what: The argument.
        value: What was given.
        least: The smallest that is allowed.

    Raises:
        ArgumentError: It is none.

    Example:
        >>> whole("group_norm", "groups", 2, least=1)
        2
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        allowed = "an integer" if least == -math.inf else f"an integer of at least {least:g}"
        raise ArgumentError(f"{name}: {what}={value!r}.", f"{allowed}.", f"Correct {what}.")
    return int(value)


def array(name: str, what: str, value: Any) -> np.ndarray:
    """An array of numbers or bools; of nothing at all, of integers.

    Args:
        name: The op to name in an error.
        what: The argument.
        value: An array, a number, or nested sequences of one length each.

    Raises:
        DTypeError: Something else.

    Example:
        >>> array("embedding", "indices", []).dtype
        dtype('int64')
    """
    try:
        found = value if on_gpu(value) else np.asarray(value)
    except ValueError:
        raise DTypeError(
            f"{name}: {what} of sequences that differ in length.", "one array.", "Pad the shorter ones."
        ) from None
    if found.dtype.kind not in "biuf":
        raise DTypeError(f"{name}: {what} are {found.dtype}.", "numbers.", "Pass an array of numbers.")
    return found.astype(np.int64) if type(value) in (list, tuple) and not found.size else found
