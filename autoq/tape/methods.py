"""Operators and methods of tensors: one-liners that call ops through the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autoq.devices import is_array, on_gpu, same_memory
from autoq.tape import kinds as kinds  # tells apply how to run them
from autoq.tape.apply import apply, binary
from autoq.tape.arranging import Arranging
from autoq.tape.elementary import Elementary
from autoq.tape.moving import Moving

if TYPE_CHECKING:
    from autoq.tape.tensor import Tensor

Axis = int | tuple[int, ...] | None
NUMERIC = (float, int, bool, np.ndarray, np.generic)


class Operators:
    """What ``+``, ``@``, ``<``, ``[...]`` and the like mean on a tensor."""

    __slots__ = ()
    __array_ufunc__ = None  # so that `array + tensor` comes to the tensor's __radd__
    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Tensor:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return binary("div", other, self)

    def __pow__(self, other: Any) -> Tensor:
        return binary("pow", self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return binary("pow", other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        return binary("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return binary("floor_divide", other, self)

    def __mod__(self, other: Any) -> Tensor:
        return binary("remainder", self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return binary("remainder", other, self)

    def __and__(self, other: Any) -> Tensor:
        return apply("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Tensor:
        return apply("bitwise_and", other, self)

    def __or__(self, other: Any) -> Tensor:
        return apply("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Tensor:
        return apply("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Tensor:
        return apply("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Tensor:
        return apply("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Tensor:
        return apply("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Any) -> Tensor:
        return apply("bitwise_left_shift", other, self)

    def __rshift__(self, other: Any) -> Tensor:
        return apply("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Any) -> Tensor:
        return apply("bitwise_right_shift", other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return apply("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return apply("matmul", other, self)

    def __neg__(self) -> Tensor:
        return apply("neg", self)

    def __pos__(self) -> Tensor:
        return self  # type: ignore[return-value]

    def __abs__(self) -> Tensor:
        return apply("abs", self)

    def __gt__(self, other: Any) -> Tensor:
        return apply("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return apply("greater_equal", self, other)

    def __lt__(self, other: Any) -> Tensor:
        return apply("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return apply("less_equal", self, other)

    def __eq__(self, other: Any) -> Any:
        return apply("equal", self, other) if _comparable(other) else NotImplemented

    def __ne__(self, other: Any) -> Any:
        return apply("not_equal", self, other) if _comparable(other) else NotImplemented

    def __invert__(self) -> Tensor:
        return apply("bitwise_invert", self)

    def __getitem__(self, index: Any) -> Tensor:
        return apply("getitem", self, index=index)


def _comparable(other: Any) -> bool:
    """Whether ``==`` with it is element-wise; None, strings and the like are merely unequal."""
    return isinstance(other, (*NUMERIC, Operators, list)) or is_array(other)


class Methods(Operators, Elementary, Arranging, Moving):
    """Ops as methods, under the names that NumPy and PyTorch users look for."""

    __slots__ = ()

    def exp(self, **options: Any) -> Tensor:
        """e to the power of each value."""
        return apply("exp", self, **options)

    def log(self, **options: Any) -> Tensor:
        """Natural logarithm of each value."""
        return apply("log", self, **options)

    def sqrt(self, **options: Any) -> Tensor:
        """Square root of each value."""
        return apply("sqrt", self, **options)

    def square(self, **options: Any) -> Tensor:
        """Square of each value."""
        return apply("square", self, **options)

    def abs(self, **options: Any) -> Tensor:
        """Magnitude of each value."""
        return apply("abs", self, **options)

    def sin(self, **options: Any) -> Tensor:
        """Sine of each value, in radians."""
        return apply("sin", self, **options)

    def cos(self, **options: Any) -> Tensor:
        """Cosine of each value, in radians."""
        return apply("cos", self, **options)

    def tanh(self, **options: Any) -> Tensor:
        """Hyperbolic tangent of each value."""
        return apply("tanh", self, **options)

    def sigmoid(self, **options: Any) -> Tensor:
        """1 / (1 + e^-x) of each value."""
        return apply("sigmoid", self, **options)

    def relu(self, **options: Any) -> Tensor:
        """Each value, or 0 where it is negative."""
        return apply("relu", self, **options)

    def gelu(self, **options: Any) -> Tensor:
        """x · Φ(x) of each value, exact (by erf)."""
        return apply("gelu", self, **options)

    def silu(self, **options: Any) -> Tensor:
        """x · sigmoid(x) of each value."""
        return apply("silu", self, **options)

    def clip(self, min: float | None = None, max: float | None = None, **options: Any) -> Tensor:
        """Each value limited to [min, max]."""
        return apply("clip", self, min=min, max=max, **options)

    def sum(self, axis: Axis = None, keepdims: bool = False, **options: Any) -> Tensor:
        """Sum over the axes, all of them by default."""
        return apply("sum", self, axis=axis, keepdims=keepdims, **options)

    def mean(self, axis: Axis = None, keepdims: bool = False, **options: Any) -> Tensor:
        """Mean over the axes, all of them by default."""
        return apply("mean", self, axis=axis, keepdims=keepdims, **options)

    def max(self, axis: Axis = None, keepdims: bool = False, **options: Any) -> Tensor:
        """Largest value over the axes, all of them by default."""
        return apply("max", self, axis=axis, keepdims=keepdims, **options)

    def min(self, axis: Axis = None, keepdims: bool = False, **options: Any) -> Tensor:
        """Smallest value over the axes, all of them by default."""
        return apply("min", self, axis=axis, keepdims=keepdims, **options)

    def var(self, axis: Axis = None, correction: float = 0, keepdims: bool = False, **options: Any) -> Tensor:
        """Variance over the axes; divides by n - correction."""
        return apply("var", self, axis=axis, correction=correction, keepdims=keepdims, **options)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Index of the largest value along the axis, or in the flattened tensor."""
        return apply("argmax", self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Index of the smallest value along the axis, or in the flattened tensor."""
        return apply("argmin", self, axis=axis, keepdims=keepdims)

    def softmax(self, axis: int = -1, **options: Any) -> Tensor:
        """Exponentials divided by their sum along the axis."""
        return apply("softmax", self, axis=axis, **options)

    def log_softmax(self, axis: int = -1, **options: Any) -> Tensor:
        """Logarithm of the softmax along the axis."""
        return apply("log_softmax", self, axis=axis, **options)

    def reshape(self, *shape: Any) -> Tensor:
        """The same values in another shape, given as integers or as one tuple; -1 is worked out."""
        return apply("reshape", self, shape=_flat(shape))

    def permute_dims(self, *axes: Any) -> Tensor:
        """The axes in another order, given as integers or as one tuple."""
        return apply("permute_dims", self, axes=_flat(axes))

    def transpose(self, *axes: Any) -> Tensor:
        """The axes in reverse, or in the order given."""
        return apply("transpose", self, axes=_flat(axes) or None)

    @property
    def T(self) -> Tensor:
        """The axes in reverse."""
        return apply("transpose", self, axes=None)

    @property
    def mT(self) -> Tensor:
        """The last two axes swapped."""
        return apply("matrix_transpose", self)

    def expand_dims(self, axis: int = 0) -> Tensor:
        """A new axis of length 1 at that position."""
        return apply("expand_dims", self, axis=axis)

    def squeeze(self, axis: Axis = None) -> Tensor:
        """Without the given axes of length 1, all of them by default."""
        return apply("squeeze", self, axis=axis)

    def broadcast_to(self, *shape: Any) -> Tensor:
        """Repeated without a copy to a larger shape."""
        return apply("broadcast_to", self, shape=_flat(shape))

    def flip(self, axis: Axis = None) -> Tensor:
        """The order reversed along the axes, all of them by default."""
        return apply("flip", self, axis=axis)

    def shares_memory(self: Any, other: Any) -> bool:
        """Whether the values of both lie in the same memory, as those of a view and its source do (S34).

        Example:
            >>> import autoq as aq
            >>> q = aq.tensor([[1.0] * 64] * 2).quantize(aq.mxfp8)
            >>> q.T.shares_memory(q), q[:, 2:9].shares_memory(q)
            (True, False)
        """
        stored = [getattr(x, "_value", x) for x in (self, other)]
        a, b = (getattr(value, "words", value) for value in stored)
        return same_memory(a, b) if on_gpu(a) or on_gpu(b) else bool(np.shares_memory(a, b))

    @property
    def is_contiguous(self: Any) -> bool:
        """Whether the values lie in memory in the order of the axes; of packed ones see ``QTensor``."""
        value = self._value
        return bool(value.flags.c_contiguous if is_array(value) else value.is_contiguous)

    def take(self, indices: Any, axis: int = 0, **options: Any) -> Tensor:
        """The entries at integer positions along an axis."""
        return apply("take", self, indices=indices, axis=axis, **options)


def _flat(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """``f(2, 3)`` and ``f((2, 3))`` alike."""
    if len(arguments) == 1 and isinstance(arguments[0], tuple | list):
        return tuple(arguments[0])
    return arguments
