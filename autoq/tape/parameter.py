"""Parameters: leaf tensors that ask for a gradient and whose dtype doesn't vote (S3, S9)."""

from __future__ import annotations

from typing import Any

from autoq.tape.node import LEAF
from autoq.tape.stored import on_host
from autoq.tape.tensor import AutodiffQTensor, AutodiffTensor, Tensor, tensor


class Parameter(AutodiffTensor):
    """A tensor that a module trains: it asks for a gradient, and its dtype inhibits.

    Args:
        data: As for ``aq.tensor``; copied. Of packed data the result is a ``QParameter``.
        dtype: Cast to this dtype first.
        requires_grad: False freezes it.
        device: Where it is to be, as for ``aq.tensor``.

    Example:
        >>> import autoq as aq
        >>> w = Parameter([1.0, 2.0])
        >>> (aq.tensor([1.0, 1.0], dtype=aq.float16) * w).dtype
        dtype('float16')
    """

    __slots__ = ()

    def __new__(
        cls, data: Any = None, dtype: Any = None, requires_grad: bool = True, device: str | None = None
    ) -> Any:
        made = tensor(data, dtype, device=device)
        kind = QParameter if isinstance(made, AutodiffQTensor) else Parameter
        out = Tensor.__new__(kind)
        Tensor.__init__(out, made._value, made.inhibit()._type, None)
        if requires_grad:
            out.requires_grad = True
        return out

    def __init__(
        self, data: Any = None, dtype: Any = None, requires_grad: bool = True, device: str | None = None
    ) -> None:
        """Everything is done in ``__new__``, which chooses the class."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt_parameter, (on_host(self._value), self._node is LEAF, self.grad)


class QParameter(AutodiffQTensor):
    """A parameter of packed values: part of a module's state, but not trained in place."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt_parameter, (on_host(self._value), self._node is LEAF, self.grad)


def _rebuilt_parameter(value: Any, requires_grad: bool, grad: Any) -> Any:
    out = Parameter(value, requires_grad=requires_grad, device="cpu")
    out.grad = grad
    return out
