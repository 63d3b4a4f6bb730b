"""The context-local settings of the engine: one variable, holding one immutable object (S46)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from autoq.errors import ArgumentError

RESOLUTIONS = ("widen", "strict")
# Observers at work in any context. Empty nearly always: what ops look at before they look for their own.
OBSERVERS: list[Observer] = []


class Observer:
    """Is told of operations, gradient steps and kernels while a block runs under ``observing``.

    ``op`` and ``step`` stand around what they watch and may change it; the others are notices.

    Attributes:
        keeps_gradients: Whether ``step`` may keep the cotangents that it gets: they aren't written over then.
    """

    keeps_gradients = True

    def op(self, proceed: Any, op: Any, operands: Any, static: dict[str, Any], out_dtype: Any) -> Any:
        """An operation: ``proceed(op, operands, static, out_dtype)`` runs it and returns the tensor."""
        return proceed(op, operands, static, out_dtype)

    def step(self, proceed: Any, node: Any, g: Any, grads: Any, owned: Any) -> None:
        """A node's gradient rules: ``proceed(node, g, grads, owned)`` runs them."""
        proceed(node, g, grads, owned)

    def moved(self, how: str) -> None:
        """A layout op moved packed values by ``"view"``, ``"copy"`` or ``"decode"`` (S34-S36)."""

    def changed(self, tensor: Any) -> None:
        """A tensor is about to be changed in place."""

    def met(self, tensor: Any, gradient: bool = False) -> None:
        """A tensor's values are taken by no operation; with ``gradient``, it is about to get a gradient."""

    def noted(self, what: str, values: tuple[Any, ...]) -> None:
        """What is no operation got values, such as the limit of a norm."""

    def launched(self, kernel: str, values: int) -> None:
        """A kernel of that name ran over so many values."""


class Context(NamedTuple):
    """What an operation reads once before it runs.

    Attributes:
        grad: Whether operations are recorded.
        resolution: ``"widen"`` or ``"strict"`` (S7, S11).
        exact: Whether products and sums accumulate in float64 (S15).
        device: Where new tensors are made: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
        observer: Who is told of every operation, or None.
        products: How a GPU multiplies matrices of float32: ``"highest"``, ``"tf32"`` or ``"bf16"``.
    """

    grad: bool = True
    resolution: str = "widen"
    exact: bool = False
    device: str = "cpu"
    observer: Observer | None = None
    products: str = "highest"


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


@contextmanager
def observing(observer: Observer) -> Iterator[Observer]:
    """Run a block with an observer; an inner one takes the place of an outer one.

    Example:
        >>> with observing(Observer()) as observer:
        ...     current().observer is observer
        True
    """
    OBSERVERS.append(observer)
    try:
        with using(observer=observer):
            yield observer
    finally:
        OBSERVERS.remove(observer)


def changed(tensor: Any) -> None:
    """Tell the context's observer of a change in place; call it only where ``OBSERVERS`` isn't empty."""
    observer = current().observer
    if observer is not None:
        observer.changed(tensor)


def met(tensor: Any, gradient: bool = False) -> None:
    """Tell the context's observer of a tensor; call it only where ``OBSERVERS`` isn't empty."""
    observer = current().observer
    if observer is not None:
        observer.met(tensor, gradient)


def noted(what: str, *values: Any) -> None:
    """Tell the context's observer of values; call it only where ``OBSERVERS`` isn't empty."""
    observer = current().observer
    if observer is not None:
        observer.noted(what, values)


def launched(kernel: str, values: int) -> None:
    """Tell the context's observer of a kernel; call it only where ``OBSERVERS`` isn't empty."""
    observer = current().observer
    if observer is not None:
        observer.launched(kernel, values)


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
    set_default(resolution=check_resolution(policy))


def set_default(**changes: Any) -> None:
    """Change the settings that every context starts with.

    Example:
        >>> set_default(device="cpu")
    """
    _Defaults.context = _Defaults.context._replace(**changes)
