"""Operands of kernels: packed tensors or float arrays, and the scalar functions that read and write them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..bind import scalar
from ..codec import Codec
from ..scalar.bits import ONE, F, U
from ..scalar.element import element_functions
from ..scalar.scale import scale_functions
from .intrinsics import from_bfloat, from_half, to_bfloat, to_half
from .launch import SIMULATED

FLOATS = ("float32", "float16", "bfloat16")
WORD_BITS, WORD_SHIFT, IN_WORD = 32, 5, 31


class Packed(NamedTuple):
    """A packed tensor as kernels take it, in storage order.

    Attributes:
        words: uint32 ``(*shape[:-1], words a line)``.
        scales: Stored scales, of the block grid's shape.
        tensor_scale: 0-d float32 array under two levels, else None.
        codec: What codes and scales are.
        extents: Block extents of the trailing axes; () for the whole tensor.
        shape: The storage shape.
        order: The storage axis of each axis of a permuted view; None where they agree.
    """

    words: Any
    scales: Any
    tensor_scale: Any
    codec: Codec
    extents: tuple[int, ...]
    shape: tuple[int, ...]
    order: tuple[int, ...] | None = None


Operand = Any  # a Packed, or an array of floats


def float_kind(array: Any) -> str | None:
    """``"float32"``, ``"float16"`` or ``"bfloat16"``; None for an array of another dtype.

    Example:
        >>> float_kind(np.zeros(2, np.float16))
        'float16'
    """
    return _float_kind(array.dtype)


@cache
def _float_kind(dtype: Any) -> str | None:
    name = str(dtype)
    return name if name in FLOATS else None


def pointer_of(kind: str) -> str:
    """The pointer type of an array of floats: 16-bit ones are passed as their bits.

    Example:
        >>> pointer_of("bfloat16")
        'uint16*'
    """
    return "float32*" if kind == "float32" else "uint16*"


def scale_pointer(codec: Codec) -> str:
    """The pointer type of stored scales, read as their bits; pass them through ``scale_bits``."""
    return f"{scale_functions(codec.scale, codec.rule).dtype.__name__}*"


def scale_bits(scales: Any) -> Any:
    """Stored scales of any dtype as unsigned integers of their width."""
    return scales.view(f"uint{8 * scales.dtype.itemsize}")


def float_bits(array: Any) -> Any:
    """An array of floats as a kernel takes it: 16-bit ones as uint16."""
    return array.view(np.uint16) if array.dtype.itemsize == 2 else array


def is_aligned(array: Any, size: int = 16) -> bool:
    """Whether an array's first element lies at a multiple of ``size`` bytes."""
    return SIMULATED or array.data.ptr % size == 0


@cache
def float_reader(kind: str) -> Callable[..., Any]:
    """``read(pointer, index) -> float32`` for an array of that kind."""
    if kind == "float32":

        @scalar
        def read(pointer, index):
            return pointer[index]

    elif kind == "float16":

        @scalar
        def read(pointer, index):
            return from_half(pointer[index])

    else:

        @scalar
        def read(pointer, index):
            return from_bfloat(pointer[index])

    return read


@cache
def float_writer(kind: str) -> Callable[..., Any]:
    """``write(pointer, index, value)``, which rounds to the nearest of that kind, ties to even."""
    if kind == "float32":

        @scalar
        def write(pointer, index, value):
            pointer[index] = value

    elif kind == "float16":

        @scalar
        def write(pointer, index, value):
            pointer[index] = to_half(value)

    else:

        @scalar
        def write(pointer, index, value):
            pointer[index] = to_bfloat(value)

    return write


@cache
def code_reader(bits: int) -> Callable[..., Any]:
    """``code(words, first, k)``: code ``k`` of the line whose words begin at ``first``."""
    mask = U((1 << bits) - 1)
    split = WORD_BITS % bits != 0

    @scalar
    def code(words, first, k):
        at = k * bits
        place, shift = first + (at >> WORD_SHIFT), at & IN_WORD
        low = U(words[place] >> U(shift))
        if split and shift + bits > WORD_BITS:
            low = U(low | U(U(words[place + 1] << U(IN_WORD - shift)) << ONE))
        return U(low & mask)

    return code


@cache
def scale_reader(codec: Codec) -> Callable[..., Any]:
    """``scale(scales, index) -> float32``: a stored block scale, without the tensor's."""
    decode = scale_functions(codec.scale, codec.rule).decode

    @scalar
    def scale(scales, index):
        return decode(U(scales[index]))

    return scale


@cache
def decoder(codec: Codec) -> Callable[..., Any]:
    """``decode(code, scale) -> float32``: the value of a code under an effective scale."""
    element = element_functions(codec.element).decode

    @scalar
    def decode(code, scale):
        return F(element(code) * scale)

    return decode


@cache
def effective(codec: Codec) -> Callable[..., Any]:
    """``effective(scales, index, tensor) -> float32``: block scale times tensor scale, rounded once.

    ``tensor`` points to the tensor scale and isn't read under one level.
    """
    scale, two_level = scale_reader(codec), codec.two_level

    if two_level:

        @scalar
        def read(scales, index, tensor):
            return F(scale(scales, index) * tensor[0])

    else:

        @scalar
        def read(scales, index, tensor):
            return scale(scales, index)

    return read
