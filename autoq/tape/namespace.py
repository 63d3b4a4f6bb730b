"""The namespace F of gradient rules: every op by name, on raw arrays or recorded (S27)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from autoq.tape.accelerated import raw_on_device
from autoq.tape.apply import apply
from autoq.tape.op import REGISTRY, Op


class Namespace:
    """Ops as attributes: ``F.exp(x)``, ``F.sum(x, axis=0, keepdims=True)``; ``F(op)`` is a custom op's.

    Example:
        >>> import autoq as aq, numpy as np
        >>> float(RAW.exp(np.float32(0))), float(RAW(aq.exp)(np.float32(0)))
        (1.0, 1.0)
    """

    def __init__(self, lookup: Callable[[Op], Callable[..., Any]]) -> None:
        self._lookup = lookup

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._lookup(function.op)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in REGISTRY:
            raise AttributeError(f"no op {name!r} is registered")
        found = self._lookup(REGISTRY[name])
        setattr(self, name, found)
        return found


def _recorded(op: Op) -> Callable[..., Any]:
    if op.variadic:
        return lambda operands, **static: apply(op, *operands, **static)
    return partial(apply, op)


RAW = Namespace(lambda op: op.forward)
RAW_ON_DEVICE = Namespace(lambda op: partial(raw_on_device, op))
RECORDED = Namespace(_recorded)
