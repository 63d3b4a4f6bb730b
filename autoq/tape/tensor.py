"""Tensors: a stored value, its type, and the tape node through which gradients reach it (S1-S4, S19)."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from autoq import devices
from autoq.context import OBSERVERS, current, met
from autoq.errors import DTypeError, GradientError, ShapeError
from autoq.memory import within_memory
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.storage.interop import summary
from autoq.tape.apply import apply, bind, plain
from autoq.tape.hooks import Hooked
from autoq.tape.node import LEAF, Node
from autoq.tape.standard import Standard
from autoq.tape.stored import check_on_host, copied, on_host
from autoq.types import (
    INHIBIT,
    PROPAGATE,
    Propagation,
    TensorType,
    as_dtype,
    bool_,
    dtype_name,
    float32,
)

if TYPE_CHECKING:
    from autoq.types import DType


class Tensor(Hooked):
    """Values with a dtype that travels: the base of AutodiffTensor (dense) and AutodiffQTensor (packed).

    Make one with ``aq.tensor``, ``aq.quantize`` or ``aq.Parameter``; ops make the others.
    """

    __slots__ = ("__weakref__", "_node", "_type", "_value", "_version")

    _value: Any
    _type: TensorType
    _node: Any
    _version: list[int]

    def __init__(self, value: Any, tensor_type: TensorType, node: Any = None) -> None:
        self._value = value
        self._type = tensor_type
        self._node = node
        self._version = [0]
        self._grad = None
        self._hooks = None

    @property
    def value(self) -> Any:
        """The stored value, an array of NumPy or CuPy, or a QTensor."""
        return self._value

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._value.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._value.shape)

    @property
    def size(self) -> int:
        """The number of values."""
        return int(self._value.size)

    @property
    def dtype(self) -> DType:
        """A NumPy dtype, or the QuantScheme of packed values (S1)."""
        return self._type.dtype

    @property
    def tensor_type(self) -> TensorType:
        """The dtype with its propagation flag (S2)."""
        return self._type

    @property
    def propagation(self) -> Propagation:
        """Whether the dtype votes on the dtypes of results (S2)."""
        return self._type.propagation

    @property
    def device(self) -> str:
        """The device that holds the values: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``."""
        value = self._value
        return devices.device_of(value.words if type(value) is QTensor else value)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored values, scales included."""
        return int(self._value.nbytes)

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded op made it."""
        return type(self._node) is not Node

    @property
    def requires_grad(self) -> bool:
        """Whether backward carries a gradient to it. Settable on leaves."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if type(self._node) is Node:
            raise GradientError(
                f"requires_grad set on the result of {self._node.op.name}.",
                "leaf tensors",
                "Set it on the input, or call .detach() for a new leaf.",
            )
        if wanted and not self._type.is_float:
            raise GradientError(
                f"requires_grad=True on a {dtype_name(self.dtype)} tensor.",
                "float and quantized dtypes",
                "Cast it with .astype(aq.float32) first.",
            )
        self._node = LEAF if wanted else None

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError(
                "len() of a tensor without axes.", "at least one axis", "Use .item() for its value."
            )
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self._type.is_float:
            raise DTypeError(
                f"a {dtype_name(self.dtype)} tensor as an index.", "integer tensors", "Cast it with int()."
            )
        return int(self.item())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        check_on_host("a NumPy array", self)
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy functions take untracked tensors as arrays; of tracked ones they lose the gradient."""
        given = [*args, *kwargs.values()]
        if function not in _ABOUT_SHAPES and any(x._node is not None for x in _tensors_in(given)):
            raise GradientError(
                f"numpy.{function.__name__} of a tracked tensor, whose gradient would be lost.",
                "functions of autoq and methods of tensors",
                f"Use autoq's own {function.__name__} where it has one, or pass x.detach() or x.numpy().",
            )
        if function not in _ABOUT_SHAPES:
            check_on_host(f"numpy.{function.__name__}", *_tensors_in(given))
        return function(*plain(args), **{name: plain(value) for name, value in kwargs.items()})

    def __repr__(self) -> str:
        if type(self._value) is QTensor:
            where = "" if self.device == "cpu" else f" on {self.device}"
            return f"<{type(self).__name__} {self.shape} {dtype_name(self.dtype)}{where}{_marks(self)}>"
        text = np.array2string(devices.to_host(self._value), separator=" ", prefix="tensor(")
        where = "" if self.device == "cpu" else f", {self.device}"
        return f"tensor({text}, {dtype_name(self.dtype)}{where}{_marks(self)})"

    def __str__(self) -> str:
        return f"{self!r}\n{summary(self.numpy())}" if type(self._value) is QTensor else repr(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        if type(self._node) is Node:
            raise _on_a_tape(self._node)
        return _rebuilt, (type(self), on_host(self._value), self._type, self._node, self._grad)

    @within_memory("a copy")
    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if type(self._node) is Node:
            raise _on_a_tape(self._node)
        made: Tensor = object.__new__(type(self))
        Tensor.__init__(made, deepcopy(self._value, memo), self._type, self._node)
        made._grad = deepcopy(self._grad, memo)
        return made

    def numpy(self) -> np.ndarray:
        """The values as a read-only NumPy array; packed ones decoded to float32, those on a GPU copied.

        Example:
            >>> import autoq as aq
            >>> aq.tensor([1.0, 2.0]).numpy()
            array([1., 2.], dtype=float32)
        """
        value = self._value
        view = devices.to_host(value.dequantize() if type(value) is QTensor else value.view())
        view.flags.writeable = False
        return view

    def item(self) -> Any:
        """The only value as a Python number.

        Raises:
            ShapeError: There is not exactly one.
        """
        if self.size != 1:
            raise ShapeError(
                f"item() of shape {self.shape}.", "tensors of one value", "Index or reduce it first."
            )
        return self.numpy().item()

    def tolist(self) -> Any:
        """The values as nested lists."""
        return self.numpy().tolist()

    def detach(self) -> Tensor:
        """The same values off the tape (S4)."""
        if OBSERVERS:
            met(self)
        out = _wrapped(self._value, self._type)
        out._version = self._version
        return out

    def _placed(self, node: Any) -> Tensor:
        """The same values at another place of the tape: a node, a leaf of its own, or None."""
        out = _wrapped(self._value, self._type, node)
        out._version = self._version
        return out

    def propagate(self) -> Tensor:
        """The same values, with a dtype that votes (S3)."""
        return _flagged(self, PROPAGATE)

    def inhibit(self) -> Tensor:
        """The same values, with a dtype that doesn't vote (S3)."""
        return _flagged(self, INHIBIT)

    def quantize(self, scheme: Any, **options: Any) -> AutodiffQTensor:
        """Encode with a scheme; the gradient passes straight through (S20). Options as in ``aq.quantize``."""
        return _quantize(self, scheme, **options)

    def dequantize(self, dtype: Any = float32) -> AutodiffTensor:
        """Decode packed values to a float dtype; the gradient passes straight through (S20)."""
        return apply("dequantize", self, dtype=as_dtype(dtype))  # type: ignore[return-value]

    def astype(self, dtype: Any) -> Tensor:
        """Cast to a NumPy dtype or encode with a QuantScheme (S3)."""
        dtype = as_dtype(dtype)
        if isinstance(dtype, QuantScheme):
            return _quantize(self, dtype)
        return apply("dequantize" if self._type.is_quantized else "astype", self, dtype=dtype)

    def backward(
        self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False
    ) -> None:
        """Fill ``.grad`` of the leaves this was computed from; see ``autoq.tape.gradient.backward``."""
        from autoq.tape.gradient import backward

        backward(self, gradient, retain_graph=retain_graph, create_graph=create_graph)


class AutodiffTensor(Standard, Tensor):
    """A dense tensor: an array of NumPy or CuPy with a type and a tape node."""

    __slots__ = ()


class AutodiffQTensor(Tensor):
    """A packed tensor: values and block scales as a QTensor, with a type and a tape node (S19)."""

    __slots__ = ()

    @property
    def qtensor(self) -> QTensor:
        """The packed values and scales."""
        return self._value

    @property
    def scheme(self) -> QuantScheme:
        """The scheme, which is the dtype."""
        return self._value.scheme

    def _repr_html_(self) -> str:
        return self._value._repr_html_()


def tensor(data: Any, dtype: Any = None, requires_grad: bool = False, device: str | None = None) -> Tensor:
    """A tensor with its own copy of the data.

    Args:
        data: Numbers, nested lists, an array of NumPy or CuPy, a Tensor or a QTensor. Python numbers become
            float32 (bool and integers stay), arrays keep their dtype.
        dtype: Cast to this NumPy dtype, or encode with this QuantScheme.
        requires_grad: Make it a leaf that backward fills a gradient for.
        device: Where it is to be; by default where the data is, and for numbers and NumPy arrays the default
            device.

    Raises:
        DTypeError: Complex or object data.
        DeviceError: A device that can't be used.
        ArgumentError: Nested lists of unequal lengths.
        GradientError: requires_grad of an integer tensor.

    Example:
        >>> tensor([1.0, 2.0])
        tensor([1. 2.], float32)
        >>> import autoq as aq
        >>> tensor([[1.0] * 32], dtype=aq.mxfp8)
        <AutodiffQTensor (1, 32) mxfp8>
    """
    place = None if device is None else devices.resolve(device)
    if OBSERVERS and isinstance(data, Tensor):
        met(data)
    try:
        value = copied(data, as_dtype(dtype) if dtype is not None else None, place)
    except MemoryError as error:
        raise devices.memory_error("tensor", error) from error
    out = _wrapped(value, TensorType(value.scheme if type(value) is QTensor else value.dtype))
    if requires_grad:
        out.requires_grad = True
    return out


def _wrapped(value: Any, tensor_type: TensorType, node: Any = None) -> Tensor:
    return (AutodiffQTensor if type(value) is QTensor else AutodiffTensor)(value, tensor_type, node)


# NumPy functions whose results no gradient flows through.
_ABOUT_SHAPES = (np.shape, np.ndim, np.size)


def _tensors_in(arguments: Any) -> Iterator[Tensor]:
    """The tensors among arguments, also within lists and tuples."""
    for x in arguments:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, list | tuple):
            yield from _tensors_in(x)


def _on_a_tape(node: Node) -> GradientError:
    return GradientError(
        f"pickling or deep-copying the result of {node.op.name}, which is on a tape.",
        "leaf tensors",
        "Call .detach() first.",
    )


def _rebuilt(cls: type[Tensor], value: Any, tensor_type: TensorType, node: Any, grad: Any) -> Tensor:
    made = cls.__new__(cls)
    Tensor.__init__(made, value, tensor_type, node)
    made._grad = grad
    return made


def _flagged(x: Tensor, flag: Propagation) -> Tensor:
    """The tensor under another flag; recorded where it is a leaf, whose identity gradients need."""
    wanted = x._type.with_flag(flag)
    if wanted is x._type:
        return x
    if x._node is LEAF and current().grad:
        out = apply("identity", x)
        out._type = wanted
        return out
    out = _wrapped(x._value, wanted, x._node if current().grad else None)
    out._version = x._version
    return out


def _quantize(x: Tensor, scheme: Any, **options: Any) -> AutodiffQTensor:
    from autoq.tape.casts import quantize

    return quantize(x, scheme, **options)


def _marks(x: Tensor) -> str:
    """What a repr adds: the flag where it inhibits, and the way to the tape."""
    inhibits = "" if x._type.propagates or not x._type.is_float else ", inhibiting"
    tracked = (
        "" if x._node is None else (", requires_grad" if x._node is LEAF else f", from {x._node.op.name}")
    )
    return inhibits + tracked


bind(Tensor, AutodiffTensor, AutodiffQTensor, tensor)
__all__ = ["AutodiffQTensor", "AutodiffTensor", "Tensor", "bool_", "tensor"]
