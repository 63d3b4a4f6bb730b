"""The stand-in's array: CuPy's behaviour around a NumPy array that nothing else may see.

It keeps what CuPy promises: no implicit way to the host, no NumPy arrays among operands, arrays without axes
instead of scalars. Reads of values are noted, so that a test can say that none happened.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from .standin_device import (
    SETTINGS,
    Capsule,
    Device,
    Flags,
    Memory,
    OutOfMemoryError,
    current_device,
    read,
)
from .standin_flush import flush_of, flushed


def wrap(result: Any) -> Any:
    """A NumPy result as CuPy returns it; shapes, dtypes and Python numbers as they are."""
    if isinstance(result, np.ndarray | np.generic):
        return ndarray(np.asarray(result))
    if isinstance(result, tuple | list) and any(isinstance(r, np.ndarray | np.generic) for r in result):
        return type(result)([wrap(r) for r in result])
    return result


def unwrap(value: Any) -> Any:
    """What NumPy computes with: the array within; a NumPy array is refused as CuPy refuses it."""
    if isinstance(value, ndarray):
        _check_device(value)
        return value._array
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, tuple | list):
        return type(value)([unwrap(v) for v in value])
    return value


def zero_filled(number: Any) -> Any:
    """A number as CuPy fills arrays with it: any zero by zero bytes, -0.0 too."""
    return (
        number if np.any(number) or not np.issubdtype(np.asarray(number).dtype, np.floating) else abs(number)
    )


def _check_device(value: ndarray) -> None:
    if value._device != current_device():
        raise ValueError(
            f"Array device must be same as the current device: array device = {value._device} "
            f"while current = {current_device()}"
        )


def computed(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A NumPy function on unwrapped arguments, wrapped; without the warnings that no device gives."""
    out = kwargs.pop("out", None)
    if isinstance(out, tuple):
        (out,) = out
    if out is not None and not isinstance(out, ndarray):
        raise TypeError(f"out must be cupy.ndarray, not {type(out)}")
    flush = flush_of(function)
    with np.errstate(all="ignore"):
        given = {name: unwrap(value) for name, value in kwargs.items()}
        arguments = [flush(value) for value in unwrap(args)]
        if out is None:
            return wrap(flush(function(*arguments, **given)))
        function(*arguments, out=out._array, **given)
        out._array[...] = flush(out._array)
        return out


def cast(array: np.ndarray, dtype: Any, order: str = "K") -> np.ndarray:
    """A copy in another dtype; among floats, float32 numbers below the normal ones become 0, as by CuPy."""
    with np.errstate(all="ignore"):
        if SETTINGS["flush"] and np.dtype(dtype) == np.bool_:
            array = flushed(array)
        made = array.astype(dtype, order=order)
        narrow = [
            np.dtype(np.float32) in (array.dtype, made.dtype),
            array.dtype.kind == made.dtype.kind == "f",
        ]
        if all(narrow) and array.dtype != made.dtype:
            made[np.abs(made) < np.finfo(np.float32).tiny] *= 0
    return made


class ndarray:  # noqa: N801
    """What stands for ``cupy.ndarray``."""

    __slots__ = ("__weakref__", "_array", "_device")
    __array_priority__ = 100

    def __new__(cls, shape: Any, dtype: Any = float) -> ndarray:
        made = object.__new__(cls)
        array = shape if isinstance(shape, np.ndarray) else np.empty(shape, dtype)
        limit = SETTINGS["limit"]
        if limit is not None and array.flags.owndata and array.nbytes > limit:
            raise OutOfMemoryError(array.nbytes, 0)
        made._array, made._device = array, current_device()
        return made

    dtype = property(lambda self: self._array.dtype)
    shape = property(lambda self: self._array.shape)
    size = property(lambda self: self._array.size)
    ndim = property(lambda self: self._array.ndim)
    nbytes = property(lambda self: self._array.nbytes)
    itemsize = property(lambda self: self._array.itemsize)
    strides = property(lambda self: self._array.strides)
    flags = property(lambda self: Flags(self._array.flags))
    data = property(lambda self: Memory(self._array))
    base = property(lambda self: None if self._array.base is None else wrap(np.asarray(self._array.base)))
    device = property(lambda self: Device(self._device))
    T = property(lambda self: self._view(self._array.T))
    mT = property(lambda self: self._view(self._array.mT))
    real = property(lambda self: self._view(self._array.real))

    def _view(self, array: np.ndarray) -> ndarray:
        made = object.__new__(ndarray)
        made._array, made._device = array, self._device
        return made

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = self._array.__array_interface__
        strides = None if self._array.flags.c_contiguous else self._array.strides
        return {
            "shape": self.shape,
            "typestr": found["typestr"],
            "descr": found["descr"],
            "stream": 1,
            "version": 3,
            "strides": strides,
            "data": (found["data"][0], False),
        }

    # Ways to the host

    def __array__(self, dtype: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        read("get")
        if out is not None:
            out[...] = self._array
            return out
        return np.array(self._array, order=order)

    def item(self, *args: Any) -> Any:
        read("item")
        return self._array.item(*args)

    def tolist(self) -> Any:
        read("tolist")
        return self._array.tolist()

    def tobytes(self, order: str = "C") -> bytes:
        read("tobytes")
        return self._array.tobytes(order)

    def __bool__(self) -> bool:
        read("bool")
        return bool(self._array)

    def __int__(self) -> int:
        read("int")
        return int(self._array)

    def __float__(self) -> float:
        read("float")
        return float(self._array)

    def __complex__(self) -> complex:
        read("complex")
        return complex(self._array)

    def __index__(self) -> int:
        read("index")
        return operator.index(self._array)

    def __repr__(self) -> str:
        read("repr")
        return repr(self._array)

    def __format__(self, spec: str) -> str:
        read("format")
        return format(self._array, spec)

    def __reduce__(self) -> Any:
        read("pickle")
        return wrap, (self._array,)

    def __dlpack__(self, **options: Any) -> Any:
        return Capsule(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._device

    # Dispatch from NumPy

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from .standin import namespace

        function = getattr(namespace(), ufunc.__name__, None)
        if function is None or method != "__call__":
            return NotImplemented
        if any(not _operand(x) for x in inputs):
            return NotImplemented
        return function(*inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from .standin import namespace

        place = namespace()
        for part in [*function.__module__.split(".")[1:], function.__name__]:
            place = getattr(place, part, None)
        if place is None or any(t not in (ndarray, np.ndarray) for t in types):
            return NotImplemented
        return place(*args, **kwargs)

    # Parts

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Any:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> ndarray:
        return self._view(np.asarray(self._array[host_index(index, self.shape)]))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        given = value if isinstance(value, np.ndarray) else unwrap(value)
        given = given if isinstance(value, ndarray) else zero_filled(given)
        with np.errstate(all="ignore"):
            self._array[host_index(index, self.shape)] = (
                cast(given, self.dtype) if isinstance(value, ndarray) else given
            )

    # Methods

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> Any:
        if not copy and self.dtype == dtype:
            return self
        return self._view(cast(self._array, dtype, order))

    def view(self, dtype: Any = None) -> ndarray:
        return self._view(self._array.view() if dtype is None else self._array.view(dtype))

    def copy(self, order: str = "C") -> ndarray:
        return wrap(self._array.copy(order))

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> ndarray:
        with self.device:
            return self.copy()

    def fill(self, value: Any) -> None:
        self._array.fill(value._array if isinstance(value, ndarray) else zero_filled(value))

    def set(self, array: np.ndarray, stream: Any = None) -> None:
        self._array[...] = array

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        self._array.sort(axis)

    def scatter_add(self, index: Any, value: Any) -> None:
        np.add.at(self._array, host_index(index, self.shape), unwrap(value))

    def __abs__(self) -> Any:
        return computed(np.abs, self)

    def __neg__(self) -> Any:
        return computed(np.negative, self)

    def __pos__(self) -> Any:
        return self.copy()

    def __invert__(self) -> Any:
        return computed(np.invert, self)

    __hash__ = None  # type: ignore[assignment]


def _operand(value: Any) -> bool:
    return isinstance(value, ndarray | np.ndarray | np.generic | int | float | complex)


def host_index(index: Any, shape: tuple[int, ...]) -> Any:
    """An index for NumPy; integers of arrays that lie outside wrap around, as no device checks them."""
    parts = index if isinstance(index, tuple) else (index,)
    found: list[Any] = []
    axis = 0
    after = sum(p is not None and p is not Ellipsis for p in parts)
    for part in parts:
        array = part._array if isinstance(part, ndarray) else part
        on_host = isinstance(part, np.ndarray | list)
        if (isinstance(part, ndarray) or on_host) and np.asarray(array).dtype.kind == "b" and np.ndim(array):
            read(
                "mask"
            )  # how many values it picks is asked of the device, where masks on the host are copied to
        if isinstance(part, ndarray | np.ndarray | list) and np.asarray(array).dtype.kind in "iu":
            array = np.asarray(array)
            if array.ndim and axis < len(shape) and shape[axis]:
                array = array.astype(np.int64) % shape[axis]
        if part is Ellipsis:
            axis = len(shape) - (after - axis)
        elif part is not None:
            axis += (
                getattr(array, "ndim", 1) if getattr(getattr(array, "dtype", None), "kind", "") == "b" else 1
            )
        found.append(array)
    return tuple(found) if isinstance(index, tuple) else found[0]


def _binary(ufunc: np.ufunc, reflected: bool) -> Any:
    def method(self: ndarray, other: Any) -> Any:
        if getattr(other, "__array_ufunc__", 0) is None or not _operand(other):
            return NotImplemented
        return computed(ufunc, *((other, self) if reflected else (self, other)))

    return method


def _augmented(ufunc: np.ufunc) -> Any:
    def method(self: ndarray, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented
        return computed(ufunc, self, other, out=self)

    return method


_ARITHMETIC = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power, "matmul": np.matmul,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift,
}  # fmt: skip
for _name, _ufunc in _ARITHMETIC.items():
    setattr(ndarray, f"__{_name}__", _binary(_ufunc, False))
    setattr(ndarray, f"__r{_name}__", _binary(_ufunc, True))
    if _name != "matmul":
        setattr(ndarray, f"__i{_name}__", _augmented(_ufunc))
for _name, _ufunc in {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal,
}.items():  # fmt: skip
    setattr(ndarray, f"__{_name}__", _binary(_ufunc, False))


def _method(name: str) -> Any:
    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        from .standin import namespace

        return getattr(namespace(), name)(self, *args, **kwargs)

    return method


for _name in (
    *("all", "any", "argmax", "argmin", "argsort", "clip", "cumprod", "cumsum", "diagonal", "dot", "max"),
    *("mean", "min", "nonzero", "prod", "ravel", "repeat", "round", "searchsorted", "squeeze", "std", "sum"),
    *("swapaxes", "take", "trace", "var", "conj"),
):
    setattr(ndarray, _name, _method(_name))


def _reshape(self: ndarray, *shape: Any, order: str = "C") -> ndarray:
    return self._view(self._array.reshape(*shape, order=order))


def _transpose(self: ndarray, *axes: Any) -> ndarray:
    return self._view(self._array.transpose(*axes))


def _flatten(self: ndarray, order: str = "C") -> ndarray:
    return self._view(self._array.flatten(order))


ndarray.reshape, ndarray.transpose, ndarray.flatten = _reshape, _transpose, _flatten  # type: ignore[attr-defined]
