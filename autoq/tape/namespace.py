"""The namespace F of gradient rules: every op by name, on raw arrays or recorded (S27)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from autoq.tape.apply import apply
from autoq.tape.op import REGISTRY


class Namespace:
    """Ops as attributes: ``F.exp(x)``, ``F.sum(x, axis=0, keepdims=True)``.

    Example:
        >>> import autoq, numpy as np
        >>> float(RAW.exp(np.float32(0)))
        1.0
    """

    def __init__(self, lookup: Callable[[str], Callable[..., Any]]) -> None:
        self._lookup = lookup

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in REGISTRY:
            raise AttributeError(f"no op {name!r} is registered")
        found = self._lookup(name)
        setattr(self, name, found)
        return found


def _recorded(name: str) -> Callable[..., Any]:
    op = REGISTRY[name]
    if op.variadic:
        return lambda operands, **static: apply(op, *operands, **static)
    return partial(apply, op)


RAW = Namespace(lambda name: REGISTRY[name].forward)
RECORDED = Namespace(_recorded)
