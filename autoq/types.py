"""The type of a tensor, dtype and propagation flag, and the rule that combines types (S1-S14)."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from autoq.context import current
from autoq.errors import ArgumentError, DTypeError, ResolutionError
from autoq.schemes import QuantScheme, scheme

if TYPE_CHECKING:
    DType = np.dtype[Any] | QuantScheme

float64 = np.dtype(np.float64)
float32 = np.dtype(np.float32)
float16 = np.dtype(np.float16)
bfloat16 = np.dtype(ml_dtypes.bfloat16)
int64 = np.dtype(np.int64)
int32 = np.dtype(np.int32)
int16 = np.dtype(np.int16)
uint64 = np.dtype(np.uint64)
uint32 = np.dtype(np.uint32)
uint16 = np.dtype(np.uint16)
uint8 = np.dtype(np.uint8)
bool_ = np.dtype(np.bool_)

FLOATS = (float64, float32, float16, bfloat16)
_NAMES = {"bfloat16": bfloat16, "bool": bool_}


class Propagation(enum.Enum):
    """Whether a tensor's dtype votes on the dtype of what is computed from it (S2)."""

    PROPAGATE = "propagate"
    INHIBIT = "inhibit"

    def __repr__(self) -> str:
        return f"Propagation.{self.name}"


PROPAGATE, INHIBIT = Propagation.PROPAGATE, Propagation.INHIBIT


class TensorType:
    """A dtype (NumPy dtype or QuantScheme) with a propagation flag; equal types are one object.

    Args:
        dtype: float64, float32, float16, bfloat16, bool, an integer dtype, or a QuantScheme; names are
            accepted.
        propagation: Whether the dtype votes (S2).

    Raises:
        DTypeError: The dtype is none of these, complex for example.

    Example:
        >>> TensorType(np.float32)
        TensorType(float32, Propagation.PROPAGATE)
        >>> TensorType(np.float32) is TensorType("float32")
        True
    """

    __slots__ = (
        "bits",
        "dtype",
        "gradient",
        "is_float",
        "is_quantized",
        "native",
        "propagates",
        "propagation",
    )
    _made: dict[tuple[Any, Propagation], TensorType] = {}

    dtype: DType
    propagation: Propagation
    is_quantized: bool
    is_float: bool
    propagates: bool
    native: bool  # computed as it is stored: float32, float64
    bits: int
    gradient: np.dtype[Any]  # the float dtype of gradients (S23)

    def __new__(cls, dtype: Any, propagation: Propagation = Propagation.PROPAGATE) -> TensorType:
        dtype = as_dtype(dtype)
        made = cls._made.get((dtype, propagation))
        if made is None:
            if not isinstance(propagation, Propagation):
                raise ArgumentError(
                    f"TensorType: propagation={propagation!r}.",
                    "Propagation.PROPAGATE, Propagation.INHIBIT",
                    "Pass one of these.",
                )
            made = super().__new__(cls)
            quantized = isinstance(dtype, QuantScheme)
            made.dtype, made.propagation = dtype, propagation
            made.is_quantized, made.is_float = quantized, quantized or dtype in FLOATS
            made.propagates = propagation is PROPAGATE
            made.gradient = dtype if made.is_float and not quantized else float32
            made.native = not quantized and dtype in (float32, float64)
            made.bits = dtype.element_bits if isinstance(dtype, QuantScheme) else dtype.itemsize * 8
            made = cls._made.setdefault((dtype, propagation), made)
        return made

    def __reduce__(self) -> tuple[type, tuple[Any, Propagation]]:
        return TensorType, (self.dtype, self.propagation)

    def __repr__(self) -> str:
        return f"TensorType({dtype_name(self.dtype)}, {self.propagation!r})"

    def with_flag(self, propagation: Propagation) -> TensorType:
        """The same dtype with another flag."""
        return TensorType(self.dtype, propagation)

    @staticmethod
    def combine(*types: TensorType) -> TensorType:
        """The type that a float op returns for inputs of these types (S5-S11).

        A rule over the *set* of types: order and repetition don't matter.

        Raises:
            ResolutionError: Propagating inputs disagree under ``dtype_resolution("strict")``.

        Example:
            >>> import autoq as aq
            >>> signal, weight = TensorType(aq.mxfp8), TensorType(aq.nvfp4, Propagation.INHIBIT)
            >>> combine(signal, weight).dtype.name
            'mxfp8'
            >>> combine(signal, TensorType(aq.float16)).dtype
            dtype('float16')
        """
        odd = [t for t in types if not isinstance(t, TensorType)]
        if odd:
            raise DTypeError(
                f"combine: {odd[0]!r} is no type of a tensor.",
                "TensorTypes",
                "Pass tensor.tensor_type, or aq.TensorType(dtype).",
            )
        return resolve("combine", types, current().resolution)


combine = TensorType.combine


def as_dtype(dtype: Any) -> DType:
    """A NumPy dtype or QuantScheme from one, from its name, or from a Python type.

    Raises:
        DTypeError: Complex, object, string and other dtypes that tensors don't have.
        SchemeError: A name that no dtype and no scheme has.

    Example:
        >>> as_dtype("bfloat16")
        dtype(bfloat16)
    """
    if isinstance(dtype, QuantScheme):
        return dtype
    if isinstance(dtype, str) and dtype in _NAMES:
        return _NAMES[dtype]
    if dtype is None:  # NumPy reads it as float64
        raise _not_a_dtype("None")
    try:
        found = np.dtype(dtype)
    except TypeError:
        if isinstance(dtype, str):
            return scheme(dtype)
        raise _not_a_dtype(repr(dtype)) from None
    if not found.isnative:
        found = found.newbyteorder("=")
    if found in FLOATS or found.kind in "biu":
        return found
    raise _not_a_dtype(found.name)


def _not_a_dtype(given: str) -> DTypeError:
    return DTypeError(
        f"dtype {given} is not one that tensors have.",
        "float64, float32, float16, bfloat16, bool, integers, or a QuantScheme",
        "Convert the data first; of complex numbers, pass real and imaginary parts as two tensors.",
    )


def dtype_name(dtype: DType) -> str:
    """How a dtype is spelled in messages and tables.

    Example:
        >>> dtype_name(float32)
        'float32'
    """
    return dtype.name


def resolve(op: str, types: Iterable[TensorType], policy: str) -> TensorType:
    """S6-S9 and S11 for the op of that name: the combined type, before the op's own exceptions.

    Raises:
        ResolutionError: Under ``"strict"``, propagating inputs that disagree.
        DTypeError: No float type among them.
    """
    floats = [t for t in types if t.is_float]
    if not floats:
        raise DTypeError(
            f"{op}: no input has a float dtype.",
            "at least one float or quantized input",
            "Cast an input with astype.",
        )
    propagating = [t for t in floats if t.propagates]
    if policy == "strict":
        _check_agreement(op, propagating)
    dtype = _combined(frozenset(t.dtype for t in propagating or floats))
    return TensorType(dtype, PROPAGATE if propagating else INHIBIT)


@lru_cache(maxsize=4096)
def _combined(dtypes: frozenset[DType]) -> DType:
    """S7 and S8 over a set of dtypes."""
    if len(dtypes) == 1:
        return next(iter(dtypes))
    distinct = {canonical(d) for d in dtypes}
    if len(distinct) == 1:
        return distinct.pop()
    widest = max(_bits(d) for d in distinct)
    winners = [d for d in distinct if _bits(d) == widest]
    if len(winners) > 1:
        return float32
    same = {d for d in dtypes if canonical(d) == winners[0]}
    return same.pop() if len(same) == 1 else winners[0]


def canonical(dtype: DType) -> DType:
    """What S8 compares: a scheme's canonical form, any other dtype itself."""
    return dtype.canonical() if isinstance(dtype, QuantScheme) else dtype


def _bits(dtype: DType) -> int:
    return dtype.element_bits if isinstance(dtype, QuantScheme) else dtype.itemsize * 8


def _check_agreement(op: str, propagating: list[TensorType]) -> None:
    dtypes = list(
        dict.fromkeys(
            t.dtype.innermost() if isinstance(t.dtype, QuantScheme) else t.dtype for t in propagating
        )
    )
    if len(dtypes) > 1:
        raise ResolutionError(
            f"{op}: propagating inputs disagree under strict resolution: {_spelled(dtypes)}.",
            "propagating inputs of one dtype with the same encode choices",
            "Cast one with astype, inhibit it with .inhibit(), or use dtype_resolution('widen').",
        )


def _spelled(dtypes: list[DType]) -> str:
    """The dtypes by name, or whole where their names are the same."""
    names = [dtype_name(d) for d in dtypes]
    return " and ".join(names if len(set(names)) == len(names) else [repr(d) for d in dtypes])
