"""Questions about dtypes in the array API standard's words: kinds, limits, casts, promotion (S5-S9)."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from autoq import dtypes
from autoq.context import current
from autoq.devices import is_array
from autoq.errors import ArgumentError, DTypeError
from autoq.schemes import QuantScheme
from autoq.tape.apply import as_operand
from autoq.tape.function import composed
from autoq.tape.plan import voters
from autoq.tape.tensor import Tensor
from autoq.types import INHIBIT, TensorType, as_dtype, bool_, float32, int64, resolve

NUMBERS = (bool, int, float, np.generic)


class FloatInfo(NamedTuple):
    """What ``aq.finfo`` returns.

    Attributes:
        bits: The size of a value.
        eps: From 1 to the next larger number.
        max: The largest finite number.
        min: The smallest one, -max.
        smallest_normal: The smallest positive number of full precision.
        dtype: The dtype.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


class IntegerInfo(NamedTuple):
    """What ``aq.iinfo`` returns.

    Attributes:
        bits: The size of a value.
        max: The largest number.
        min: The smallest one.
        dtype: The dtype.
    """

    bits: int
    max: int
    min: int
    dtype: Any


@composed
def finfo(type: Any) -> FloatInfo:
    """The limits of a float dtype.

    Args:
        type: float64, float32, float16 or bfloat16, or a tensor of one of them.

    Raises:
        DTypeError: Another dtype. Of a quantized format, see ``scheme.element_format``.

    Example:
        >>> finfo(float32).eps
        1.1920928955078125e-07
    """
    dtype = _dtype_of(type)
    if isinstance(dtype, QuantScheme) or dtype.kind in "biu":
        raise DTypeError(f"finfo of {dtype.name}.", "a float dtype.", "Use aq.iinfo for integers.")
    info = ml_dtypes.finfo(dtype)
    eps, smallest = float(info.eps), float(info.smallest_normal)
    return FloatInfo(info.bits, eps, float(info.max), float(info.min), smallest, dtype)


@composed
def iinfo(type: Any) -> IntegerInfo:
    """The limits of an integer dtype.

    Args:
        type: An integer dtype, or a tensor of one.

    Raises:
        DTypeError: Another dtype. Of a quantized format, see ``scheme.element_format``.

    Example:
        >>> import numpy as np
        >>> iinfo(np.uint8).max
        255
    """
    dtype = _dtype_of(type)
    if isinstance(dtype, QuantScheme) or dtype.kind not in "iu":
        raise DTypeError(f"iinfo of {dtype.name}.", "an integer dtype.", "Use aq.finfo for floats.")
    info = np.iinfo(dtype)
    return IntegerInfo(info.bits, int(info.max), int(info.min), dtype)


@composed
def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is another one, or of a kind.

    A quantized format is real floating: what it decodes to is.

    Args:
        dtype: A NumPy dtype or a QuantScheme.
        kind: A dtype; or ``"bool"``, ``"signed integer"``, ``"unsigned integer"``, ``"integral"``,
            ``"real floating"``, ``"complex floating"``, ``"numeric"``; or a tuple of such.

    Raises:
        ArgumentError: Another kind.

    Example:
        >>> import autoq as aq
        >>> isdtype(aq.int64, "integral"), isdtype(aq.bfloat16, ("bool", "real floating"))
        (True, True)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    dtype = as_dtype(dtype)
    if not isinstance(kind, str):
        return bool(dtype == as_dtype(kind))
    if kind not in dtypes.KINDS:
        raise ArgumentError(f"isdtype: kind {kind!r}.", ", ".join(dtypes.KINDS), "Pass one of these.")
    if TensorType(dtype).is_float:
        return kind in ("real floating", "numeric")
    return dtype.name in dtypes.KINDS[kind]


@composed
def can_cast(from_: Any, to: Any) -> bool:
    """Whether every value of a dtype is one of another, within their kind.

    Integers and floats are different kinds, and so are bools. A quantized format decodes to float32 exactly.

    Args:
        from_: A dtype, or a tensor of it.
        to: A dtype.

    Example:
        >>> import autoq as aq
        >>> can_cast(aq.float32, aq.float64), can_cast(aq.int64, aq.int32), can_cast(aq.int32, aq.float64)
        (True, False, False)
    """
    source, target = _dtype_of(from_), as_dtype(to)
    if source == target:
        return True
    if isinstance(target, QuantScheme):
        return False
    if isinstance(source, QuantScheme):
        return can_cast(float32, target)
    floats = TensorType(source).is_float
    if floats != TensorType(target).is_float or bool_ in (source, target):
        return False
    return bool(np.can_cast(source, target))


@composed
def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype of what is computed from tensors, dtypes and numbers (S5-S9).

    Numbers decide only between kinds. Integers don't vote where there are floats, and tensors without axes
    don't where there are others.

    Args:
        arrays_and_dtypes: At least one tensor or dtype, and any Python numbers.

    Raises:
        ArgumentError: No tensor and no dtype.
        ResolutionError: Disagreement under strict resolution.

    Example:
        >>> import autoq as aq
        >>> result_type(aq.float32, aq.float64), result_type(aq.dtypes.int16, aq.uint8, 3)
        (dtype('float64'), dtype('int16'))
    """
    numbers = [x for x in arrays_and_dtypes if isinstance(x, NUMBERS)]
    tensors = [as_operand(x) for x in arrays_and_dtypes if (isinstance(x, Tensor) or is_array(x))]
    types = [
        TensorType(as_dtype(x))
        for x in arrays_and_dtypes
        if not (isinstance(x, (*NUMBERS, Tensor)) or is_array(x))
    ]
    if not tensors and not types:
        raise ArgumentError("result_type of numbers alone.", "a tensor or a dtype.", "Pass a dtype.")
    types += [x._type for x in voters(tensors)]
    floats = [t for t in types if t.is_float]
    if floats:
        found = resolve("result_type", floats, current().resolution)
        return float32 if found.is_quantized and found.propagation is INHIBIT else found.dtype
    if any(isinstance(n, float | np.floating) for n in numbers):
        return float32
    whole: np.dtype[Any] = np.result_type(*[x.dtype for x in (*types, *tensors)])
    counted = any(not isinstance(n, bool | np.bool_) for n in numbers)
    return int64 if whole == bool_ and counted else whole


def _dtype_of(x: Any) -> Any:
    """The dtype of a tensor or array, or the dtype itself."""
    return x.dtype if (isinstance(x, Tensor) or is_array(x)) else as_dtype(x)
