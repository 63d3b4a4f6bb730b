"""What a user hangs on a gradient: hooks that see or replace it, ``.grad``, and keeping it on non-leaves."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autoq.context import OBSERVERS, met
from autoq.errors import ArgumentError, DTypeError, GradientError, ShapeError
from autoq.tape.inplace import InPlace
from autoq.tape.node import LEAF
from autoq.types import dtype_name

if TYPE_CHECKING:
    from autoq.tape.tensor import Tensor

Hook = Callable[[Any], Any]


class Hooks:
    """The hooks of one place on the tape, and the tensors that keep its gradient.

    Attributes:
        functions: By handle, in the order of registration.
        keepers: Weak references to the tensors whose ``.grad`` is filled, without their keeping the tape.
    """

    __slots__ = ("functions", "keepers")

    def __init__(self) -> None:
        self.functions: dict[Handle, Hook] = {}
        self.keepers: list[weakref.ref[Any]] = []


class Handle:
    """What ``register_hook`` returns: ``remove()`` takes the hook off again; as a context, at its end."""

    __slots__ = ("_hooks",)

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def remove(self) -> None:
        """Take the hook off; a second time does nothing."""
        self._hooks.functions.pop(self, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.remove()


class Hooked(InPlace):
    """The gradient side of a tensor: ``grad``, ``register_hook`` and ``retain_grad``."""

    __slots__ = ("_grad", "_hooks")

    _node: Any
    _grad: Tensor | None
    _hooks: Hooks | None

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward passes added up, a dense float tensor; None before the first.

        Settable: to None, or to floats of the tensor's shape.
        """
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        checked = None if value is None else _checked(self, value)
        if OBSERVERS and checked is not None and self._grad is None:
            met(self, gradient=True)
        self._grad = checked

    def register_hook(self, hook: Hook) -> Handle:
        """Call a function with this tensor's gradient in every backward pass that reaches it.

        Hooks run in the order of registration, once a pass, when the gradient is complete: in passes through
        gradients, under ``create_graph``, as well.

        Args:
            hook: Gets the gradient, a dense float tensor of this shape, and returns what takes its place, of
                the same shape, or None to leave it.

        Returns:
            A handle; ``handle.remove()`` takes the hook off.

        Raises:
            GradientError: No gradient reaches the tensor.
            ArgumentError: A hook that can't be called.

        Example:
            >>> import autoq as aq
            >>> x = aq.tensor([1.0, -2.0], requires_grad=True)
            >>> handle = x.register_hook(lambda g: g.clip(-1.0, 1.0))
            >>> (x * 10).sum().backward()
            >>> x.grad
            tensor([1. 1.], float32)
        """
        if not callable(hook):
            raise ArgumentError(
                f"register_hook({hook!r}).", "a function of the gradient", "Pass a function of one tensor."
            )
        hooks = _hooks_of(self, "register_hook")
        handle = Handle(hooks)
        hooks.functions[handle] = hook
        return handle

    def retain_grad(self) -> None:
        """Fill ``.grad`` of this tensor too, though an op made it; of a leaf that happens anyway.

        Raises:
            GradientError: No gradient reaches the tensor.

        Example:
            >>> import autoq as aq
            >>> x = aq.tensor([1.0, 2.0], requires_grad=True)
            >>> y = x * 3
            >>> y.retain_grad()
            >>> (y * y).sum().backward()
            >>> y.grad, x.grad
            (tensor([ 6. 12.], float32), tensor([18. 36.], float32))
        """
        hooks = _hooks_of(self, "retain_grad")
        if self._node is not LEAF and not any(ref() is self for ref in hooks.keepers):
            hooks.keepers.append(weakref.ref(self))


def _hooks_of(x: Any, what: str) -> Hooks:
    """The hooks of a leaf, or of the node that made the tensor."""
    if x._node is None:
        raise GradientError(
            f"{what} of an untracked tensor of shape {x.shape}.",
            "tensors that a gradient reaches",
            "Set requires_grad=True on it or on an input; under aq.no_grad() nothing is recorded.",
        )
    if x._node is LEAF:
        found = x._hooks = x._hooks or Hooks()
    else:
        found = x._node.hooks = x._node.hooks or Hooks()
    return found


def _checked(x: Any, value: Any) -> Any:
    """What may stand in ``x.grad``: a dense float tensor of its shape."""
    from autoq.tape.beside import check_beside
    from autoq.tape.tensor import tensor

    check_beside("x.grad", x, value, names=("x", "the gradient"))
    g = value if isinstance(value, Hooked) else tensor(value, device=x.device)
    found: Any = g
    if not found._type.is_float or found._type.is_quantized:
        raise DTypeError(
            f"x.grad set to a {dtype_name(found._type.dtype)} tensor.",
            "dense floats (S23)",
            "Decode it with .dequantize(), or cast it with .astype(aq.float32).",
        )
    if found.shape != x.shape:
        raise ShapeError(
            f"x.grad of shape {found.shape} for a tensor of shape {x.shape}.",
            "the tensor's own shape",
            "Reshape the gradient, or sum it over the axes that the tensor doesn't have.",
        )
    return found
