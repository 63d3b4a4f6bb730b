"""Results of a captured step: copies without a tape, of nests of tensors, arrays, numbers and the like."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Iterator
from typing import Any

import numpy as np

from autoq import devices
from autoq.captured_memory import copied
from autoq.errors import CaptureError
from autoq.storage import QTensor
from autoq.tape.tensor import Tensor
from autoq.tape.trees import leaves, mapped


def own(result: Any) -> Any:
    """What a call returns that ran the step: tensors with memory of their own, off the tape.

    Raises:
        CaptureError: A result that is no nest, but holds tensors.

    Example:
        >>> own({"rows": 3, "sum": np.zeros(())})
        {'rows': 3, 'sum': array(0.)}
    """
    return mapped(result, _own)


def detached(x: Any) -> Any:
    """A returned tensor off the tape; what holds tensors unseen is refused, as no replay would copy it."""
    if isinstance(x, Tensor):
        return x.detach()
    if _hides_tensors(x):
        raise _unseen(x)
    return x


def fresh(cupy: Any, result: Any) -> Any:
    """What a replay returns: copies of what lies in the graph's memory, and the rest as recorded."""

    def one(x: Any) -> Any:
        value = x._value if isinstance(x, Tensor) else x
        if devices.on_gpu(value):
            value = copied(cupy, value)
        elif devices.is_array(value) or type(value) is QTensor:
            value = value.copy()
        return x.__class__(value, x._type) if isinstance(x, Tensor) else value

    return mapped(result, one)


def constants(result: Any) -> list[str]:
    """The numbers, strings and NumPy arrays of a result, which replays return as they were when recorded.

    Example:
        >>> constants([np.zeros(2), {"rate": 0.5, "name": "a"}, None])
        ['array([0., 0.])', '0.5', "'a'", 'None']
    """
    kinds = int | float | str | bytes | np.generic | np.ndarray | None
    return [_text(x) for x in leaves(result) if isinstance(x, kinds)]


def _text(x: Any) -> str:
    """What two results are compared by: of an array that isn't shown whole, a hash of its bytes too."""
    text = repr(x)
    return f"{text} ({hash(x.tobytes())})" if isinstance(x, np.ndarray) and "..." in text else text


def check_constants(before: list[str], now: list[str]) -> None:
    """Raise CaptureError unless the warm-up and the recording call returned the same numbers."""
    for old, new in zip(before, now, strict=False):
        if old != new:
            raise CaptureError(
                f"a captured step returned {old} in its warm-up and then {new}.",
                "tensors, which are computed anew, and what is the same in each call",
                "Read it outside of the step, as schedule.lr, or return it as a tensor.",
            )


def _own(x: Any) -> Any:
    x = detached(x)
    if not isinstance(x, Tensor):
        return x.copy() if devices.is_array(x) or isinstance(x, QTensor) else x
    x._value, x._version = x._value.copy(), [0]
    return x


def _hides_tensors(x: Any) -> bool:
    """Whether tensors may be in something that isn't walked through: a set, an object, a generator."""
    if devices.is_array(x) or type(x) is QTensor:
        return False
    if isinstance(x, Iterator | Awaitable):
        return True
    within = x if isinstance(x, set | frozenset | deque) else getattr(x, "__dict__", {}).values()
    return any(isinstance(value, Tensor | QTensor) or devices.is_array(value) for value in list(within))


def _unseen(x: Any) -> CaptureError:
    return CaptureError(
        f"a captured step returned a {type(x).__name__} with tensors in it.",
        "tensors, arrays, numbers, and lists, tuples (named ones too) and dicts of them",
        "Return the tensors in a tuple or a dict, and build the other object outside of the step.",
    )
