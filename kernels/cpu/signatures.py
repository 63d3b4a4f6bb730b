"""The one signature of every kernel: C-contiguous arrays, spelled without importing Numba early."""

from __future__ import annotations

from typing import Any, NamedTuple

SCALE_TYPES = {"ue8m0": "uint8", "ue4m3": "uint8", "f32": "float32", "f16": "uint16", "bf16": "uint16"}


class ArrayType(NamedTuple):
    """A C-contiguous array argument.

    Attributes:
        dtype: Its NumPy dtype's name.
        ndim: Its axes.
        written: Whether the kernel writes it. What is only read may be read-only and unaligned.
    """

    dtype: str
    ndim: int
    written: bool


def array(dtype: str, ndim: int, written: bool = True) -> ArrayType:
    """An array argument; ``written=False`` admits read-only arrays."""
    return ArrayType(dtype, ndim, written)


def scale_array(scale: str, ndim: int, written: bool = True) -> ArrayType:
    """Stored scales as kernels take them: f16 and bf16 as uint16, which Numba knows."""
    return ArrayType(SCALE_TYPES[scale], ndim, written)


def signature(result: str, *arguments: ArrayType | str) -> Any:
    """The Numba signature."""
    from numba import types

    def numba_type(argument: ArrayType | str) -> Any:
        if isinstance(argument, str):
            return getattr(types, argument)
        return types.Array(
            getattr(types, argument.dtype),
            argument.ndim,
            "C",
            readonly=not argument.written,
            aligned=argument.written,
        )

    return getattr(types, result)(*(numba_type(argument) for argument in arguments))
