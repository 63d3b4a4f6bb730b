"""The context-local settings of the engine: one variable, holding one immutable object (S46)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from autoq.errors import ArgumentError

RESOLUTIONS = ("widen", "strict")


class Context(NamedTuple):
    """What an operation reads once before it runs.

    Attributes:
        grad: Whether operations are recorded.
        resolution: ``"widen"`` or ``"strict"`` (S7, S11).
        exact: Whether products and sums accumulate in float64 (S15).
        device: Where new tensors are made, ``"cpu"``.
    """

    grad: bool = True
    resolution: str = "widen"
    exact: bool = False
    device: str = "cpu"


class _Defaults:
    """What a context that never changed anything sees."""

    context = Context()


_variable: ContextVar[Context | None] = ContextVar("autoq_context", default=None)
_get = _variable.get


def current() -> Context:
    """The settings of the running context.

    Example:
        >>> current().grad
        True
    """
    return _get() or _Defaults.context


@contextmanager
def using(**changes: Any) -> Iterator[None]:
    """Run a block under changed settings and put the old ones back.

    Example:
        >>> with using(grad=False):
        ...     current().grad
        False
    """
    token = _variable.set(current()._replace(**changes))
    try:
        yield
    finally:
        _variable.reset(token)


def check_resolution(policy: str) -> str:
    """Return ``policy`` if it names one, else raise ArgumentError."""
    if policy not in RESOLUTIONS:
        raise ArgumentError(
            f"dtype resolution: {policy!r}.", " or ".join(map(repr, RESOLUTIONS)), "Pass one of these names."
        )
    return policy


def set_default_dtype_resolution(policy: str) -> None:
    """Set the policy that every context starts with: ``"widen"`` or ``"strict"`` (S11).

    Example:
        >>> set_default_dtype_resolution("widen")
    """
    _Defaults.context = _Defaults.context._replace(resolution=check_resolution(policy))
