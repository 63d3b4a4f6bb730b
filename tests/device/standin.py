"""A stand-in for CuPy that computes with NumPy: the module that takes its place, and how it is put there.

``install()`` must run before autoq needs CuPy. From then on "cuda" is a device of arrays that can't be mixed
with NumPy's, whose functions are those that CuPy has (``cupy_names.txt``), with CuPy's parameters. Captured
steps take ``tests.capture.graphs.install()`` too. Its memory is the host's: nothing is refused for its size.
"""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from .names import Offered, offered
from .standin_array import computed, host_index, ndarray, unwrap, wrap, zero_filled
from .standin_device import Capsule, Device, OutOfMemoryError, current_device, on_device, read

DEVICES = 2
FREE, TOTAL = 1 << 30, 1 << 31
# Functions whose results CuPy gives as arrays without axes where NumPy gives Python numbers.
ARRAYS_OF_ONE = ("all", "allclose", "any", "array_equal", "count_nonzero", "isclose")
# Functions that take NumPy arrays: what they read on the host, or copy to the device.
TAKES_HOST = ("array", "asarray", "result_type", "can_cast", "promote_types", "isscalar", "broadcast_shapes")
# Functions whose results have a size that only the device knows, or that are copies on the host.
SYNCHRONISES = ("nonzero", "flatnonzero", "argwhere", "unique", "unique_values", "extract", "array2string")
BY_INDEX = ("take", "take_along_axis")


class UFunc:
    """A universal function with the keywords and methods that CuPy's have."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc, self.__name__ = ufunc, ufunc.__name__
        self.nin, self.nout = ufunc.nin, ufunc.nout

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        unknown = set(kwargs) - {"out", "dtype", "casting"}
        if unknown:
            raise TypeError(f"Wrong arguments {unknown}")
        if self.__name__ == "sign":  # of bools too
            args = tuple([x.astype(np.int8) if getattr(x, "dtype", None) == np.bool_ else x for x in args])
        if self.__name__ == "matmul" and kwargs.get("dtype") is not None:
            return computed(self._ufunc, *args).astype(kwargs["dtype"])  # what comes out is converted
        return computed(self._ufunc, *args, **kwargs)

    def reduce(
        self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        self._only("reduce", "add", "multiply")
        return computed(self._ufunc.reduce, array, axis=axis, dtype=dtype, out=out, keepdims=keepdims)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        self._only("accumulate", "add", "multiply")
        return computed(self._ufunc.accumulate, array, axis=axis, dtype=dtype, out=out)

    def at(self, array: Any, indices: Any, b: Any = None) -> None:
        self._only("at", "add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor")
        self._ufunc.at(array._array, host_index(indices, array.shape), unwrap(b))

    def outer(self, a: Any, b: Any, **kwargs: Any) -> Any:
        return computed(self._ufunc.outer, a, b, **kwargs)

    def _only(self, method: str, *names: str) -> None:
        if self.__name__ not in names:
            raise NotImplementedError(f"`{self.__name__}.{method}` is not supported yet")


class Namespace(ModuleType):
    """A package of CuPy: what the table lists, computed by NumPy's function of the same name."""

    def __init__(self, name: str, source: Any) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._source, self._table = source, offered()

    def __getattr__(self, name: str) -> Any:
        found = self._table.get(f"{self.__name__}.{name}")
        original = getattr(self._source, name, None)
        if found is None or original is None:
            if isinstance(original, type | np.dtype | float) and not name.startswith("_"):
                return original
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        made = UFunc(original) if found.ufunc else _function(name, original, found)
        setattr(self, name, made)
        return made


def _function(name: str, original: Any, found: Offered) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        _check_call(name, args, kwargs, found)
        if name in SYNCHRONISES:
            read(name)
        if name == "where":
            args[0].astype  # noqa: B018  CuPy's takes no number as condition
        if name in TAKES_HOST:
            return wrap(original(*_any(args), **{key: _any(value) for key, value in kwargs.items()}))
        if name in BY_INDEX and len(args) > 1:
            args = (args[0], _on_device(args[1]), *args[2:])
            if name == "take":
                kwargs.setdefault("mode", "wrap")  # no device checks its indices
        result = computed(original, *args, **kwargs)
        if name in ARRAYS_OF_ONE and not isinstance(result, ndarray):
            return wrap(np.asarray(result))
        return result

    function.__name__ = name
    return function


def _check_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], found: Offered) -> None:
    """Refuse what CuPy's function of that name has no parameter for."""
    parameters = found.parameters
    if parameters is None:
        return
    if len(args) > len(parameters) and not any(p.startswith("*") and p[1] != "*" for p in parameters):
        raise TypeError(f"{name}() takes {len(parameters)} positional arguments but {len(args)} were given")
    unknown = set(kwargs) - set(parameters)
    if unknown and not any(p.startswith("**") for p in parameters):
        raise TypeError(f"{name}() got an unexpected keyword argument {sorted(unknown)[0]!r}")


def _any(value: Any) -> Any:
    """An argument that may be on the host."""
    if isinstance(value, tuple | list):
        return type(value)([_any(v) for v in value])
    return value._array if isinstance(value, ndarray) else value


def _on_device(value: Any) -> Any:
    return ndarray(np.asarray(value)) if isinstance(value, np.ndarray | list) else value


def array(
    obj: Any, dtype: Any = None, copy: Any = True, order: str = "K", ndmin: int = 0, **other: Any
) -> ndarray:
    """A copy on the current device, of anything."""
    if isinstance(obj, Capsule):
        obj = obj.array
    if (
        isinstance(obj, ndarray)
        and not copy
        and obj._device == current_device()
        and obj.dtype == (dtype or obj.dtype)
    ):
        return obj
    made = np.array(_any(obj), dtype=dtype, order=order if order in "KCFA" else "K", ndmin=ndmin)
    return wrap(made if made.ndim else np.asarray(zero_filled(made)))


def asarray(a: Any, dtype: Any = None, order: Any = None, copy: Any = None, **other: Any) -> ndarray:
    """An array on the current device: the given one where it is."""
    return array(a, dtype, bool(copy), order or "K")


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    """The array itself, or a copy, in C order; of an array without axes CuPy's makes one with an axis too."""
    return wrap(np.ascontiguousarray(unwrap(a), dtype))


def asnumpy(
    a: Any, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
) -> np.ndarray:
    """A copy on the host."""
    return a.get(order=order) if isinstance(a, ndarray) else np.asarray(a)


def from_dlpack(x: Any, **options: Any) -> ndarray:
    """The array that another library hands over; arrays in the host's memory can't be taken."""
    if isinstance(x, ndarray):
        return x.view()
    capsule = x.__dlpack__()
    if not isinstance(capsule, Capsule):
        raise RuntimeError("Only DLPack of CUDA arrays is taken")
    return capsule.array.view()


def copy_bytes(target: int, source: int, size: int, kind: int, stream: int) -> None:
    """``cudaMemcpyAsync`` from the host (1) or on the device (3): the same memory here."""
    assert kind in (1, 3)
    ctypes.memmove(target, source, size)


def _cuda() -> ModuleType:
    """``cupy.cuda``: devices, streams, the pool, and what the runtime tells."""
    module = ModuleType("cupy.cuda")
    error = type("CUDARuntimeError", (RuntimeError,), {})
    runtime = SimpleNamespace(
        getDeviceCount=lambda: DEVICES,
        getDevice=current_device,
        memGetInfo=lambda: (FREE, TOTAL),
        deviceSynchronize=lambda: read("synchronize"),
        memcpyAsync=copy_bytes,
        CUDARuntimeError=error,
    )
    stream = SimpleNamespace(ptr=0, synchronize=lambda: read("synchronize"), null=True)
    module.Device, module.runtime = Device, runtime  # type: ignore[attr-defined]
    module.get_current_stream = lambda: stream  # type: ignore[attr-defined]
    module.memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)  # type: ignore[attr-defined]
    module.is_available = lambda: True  # type: ignore[attr-defined]
    return module


@lru_cache(maxsize=1)
def namespace() -> Any:
    """The module that stands for CuPy."""
    made = Namespace("cupy", np)
    made.ndarray, made.__version__ = ndarray, "14.0.0+standin"
    made.array, made.asarray, made.asnumpy = array, asarray, asnumpy
    made.ascontiguousarray, made.from_dlpack = ascontiguousarray, from_dlpack
    made.cuda = _cuda()
    made.linalg = Namespace("cupy.linalg", np.linalg)
    made.lib = ModuleType("cupy.lib")
    made.lib.stride_tricks = Namespace("cupy.lib.stride_tricks", np.lib.stride_tricks)
    pool = SimpleNamespace(used_bytes=lambda: 0, total_bytes=lambda: 0, free_all_blocks=lambda: None)
    made.get_default_memory_pool = lambda: pool
    made.newaxis = None
    return made


def install() -> None:
    """Put the stand-in, and its kernels, where autoq looks for CuPy and for the kernels of the device."""
    from . import standin_dropout, standin_exact
    from .standin_kernels import modules

    cupy = namespace()
    cupyx = ModuleType("cupyx")
    cupyx.scatter_add = lambda a, index, value: a.scatter_add(index, value)  # type: ignore[attr-defined]
    sys.modules.update({"cupy": cupy, "cupy.cuda": cupy.cuda, "cupyx": cupyx})
    sys.modules.update(modules())
    standin_dropout.register()
    standin_exact.register()
    if find_spec("numba_cuda") is None:  # nothing is compiled here
        compiler = ModuleType("numba_cuda")
        compiler.__spec__ = ModuleSpec("numba_cuda", None)
        sys.modules["numba_cuda"] = compiler


__all__ = ["install", "namespace", "ndarray", "on_device"]
