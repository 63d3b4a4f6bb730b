"""Operands of products as bfloat16 matrices: exactly, as a sum of up to three, or with a factor left out.

A bfloat16 has 8 significant bits. Every MX element times its power of two, and every E2M1 element times its
E4M3 scale, fits them, so that tensor cores multiply such operands without a rounding. A float32 is the sum
of three bfloat16: the nearest, the nearest to what is left, and the rest.

Where a block's scale is below 2**-117 (E5M2) or 2**-124 (E4M3), elements fall between bfloat16's smallest
magnitudes and are rounded to a multiple of 2**-133.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..bind import scalar
from ..codec import Codec, ElementCodec
from ..scalar.bits import MAGNITUDE, F, U, bits, real
from ..scalar.element import element_functions
from . import dequantize as decoding
from .compile import uses_cuda
from .intrinsics import from_bfloat, load4, store4, to_bfloat
from .launch import empty, grid, kernel, library
from .operand import Packed, is_aligned

cuda: Any = None
uses_cuda(globals())

THREADS, WAVES = 256, 16
PIECE_BITS, FLOAT_BITS = 8, 24
FLOATS = {"float32": 24, "float16": 11, "bfloat16": 8}
SCALES = {"ue8m0": 0, "ue4m3": 4, "bf16": 8, "f16": 11, "f32": 24}
INFINITE, LARGEST = U(0x7F80), U(0x7F7FFFFF)
FLOAT_MAX = real(LARGEST)


class View(NamedTuple):
    """A packed tensor whose axes are taken in another order: axis ``i`` is storage axis ``order[i]``."""

    packed: Packed
    order: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape after the axes are reordered."""
        shape, order = self.packed.shape, self.order
        if len(order) == 2:
            return shape[order[0]], shape[order[1]]
        return tuple(shape[axis] for axis in order)


Operand = Any  # a View, or an array of floats


class Pieces(NamedTuple):
    """An operand as ``factor * sum(arrays)``.

    Attributes:
        arrays: bfloat16, the largest first.
        factor: 0-d float32 device array, or None for 1.
    """

    arrays: Sequence[Any]
    factor: Any


def bits_of(x: Operand) -> int:
    """Significant bits that the values of an operand have, without the factor that `pieces` leaves out."""
    if not isinstance(x, View):
        return dtype_bits(x.dtype)
    codec = x.packed.codec
    scale = 0 if has_one_scale(x.packed) else SCALES[codec.scale]
    return min(FLOAT_BITS, element_bits(codec.element) + scale)


@cache
def dtype_bits(dtype: Any) -> int:
    """Significant bits of a float dtype."""
    return FLOATS[dtype.name]


@cache
def element_bits(element: ElementCodec) -> int:
    """Significant bits of the widest finite value of an element format.

    Example:
        >>> element_bits(ElementCodec("e2m1", "minifloat", 4, 1, 1, 6.0, -6.0, 1.0, 7, False, -1))
        2
    """
    decode = element_functions(element).decode
    values = np.array([decode(np.uint32(code)) for code in range(1 << element.bits)], np.float32)
    values = values[np.isfinite(values) & (values != 0)]
    mantissas = (np.frexp(values)[0] * 2.0**FLOAT_BITS).astype(np.int64)
    zeros = np.log2((mantissas & -mantissas).astype(np.float64))
    return int(FLOAT_BITS - zeros.min())


def has_one_scale(packed: Packed) -> bool:
    """Whether one float32 scale holds for the whole tensor, so that products may leave it to the end."""
    return packed.codec.scale == "f32" and not any(packed.extents) and not packed.codec.two_level


def pieces(x: Operand, rounded: bool = False) -> Pieces:
    """An operand as bfloat16 arrays and a factor; one array, rounded, if that is asked for."""
    count = 1 if rounded else -(-bits_of(x) // PIECE_BITS)
    if isinstance(x, View):
        factor = x.packed.scales.reshape(()) if has_one_scale(x.packed) else x.packed.tensor_scale
        if count == 1:
            return Pieces([decoded(x, "bfloat16", scaled=False)], factor)
        return Pieces(split(decoded(x, "float32", scaled=False), count), factor)
    if x.dtype.name == "bfloat16":
        return Pieces([x], None)
    return Pieces(split(x.astype(np.float32, copy=False), count), None)


def piece_of(x: Any, place: int, count: int) -> Any:
    """One of the ``count`` pieces of an array of floats."""
    return split(x.astype(np.float32, copy=False), count, place)[0]


def decoded(x: Operand, dtype: str, scaled: bool = True) -> Any:
    """An operand's values as an array of floats; of a packed one without its factor unless ``scaled``."""
    if not isinstance(x, View):
        return x.astype(np.dtype(dtype) if dtype != "bfloat16" else bfloat16(), copy=False)
    p = x.packed
    out = empty(p.shape, np.dtype(dtype) if dtype != "bfloat16" else bfloat16())
    if scaled:
        decoding.dequantize(p.words, p.scales, p.tensor_scale, p.codec, p.extents, out)
    elif has_one_scale(p):
        decoding.dequantize(p.words, one(len(p.shape)), None, p.codec, p.extents, out)
    else:
        decoding.dequantize(p.words, p.scales, None, single_level(p.codec), p.extents, out)
    return out.transpose(x.order)


@cache
def single_level(codec: Codec) -> Codec:
    """The codec without its tensor scale, the same object every time: launches are kept by it."""
    return codec._replace(two_level=False)


@cache
def bfloat16() -> Any:
    """The dtype."""
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def one(rank: int) -> Any:
    """A scale of 1 for a whole tensor of so many axes."""
    ones = library().empty((1,) * rank, np.float32)
    ones.fill(1)
    return ones


def split(x: Any, count: int, place: int | None = None) -> list[Any]:
    """float32 values as the sum of ``count`` bfloat16 arrays, the largest first; any strides.

    Two hold 16 bits of a value, three all 24. A value that isn't finite is in the first alone. Of a ``place``
    only that array is made.
    """
    turned = not x.flags.c_contiguous and x.ndim > 1 and x.swapaxes(-1, -2).flags.c_contiguous
    source = x.swapaxes(-1, -2) if turned else library().ascontiguousarray(x)
    made = empty((count if place is None else 1, *source.shape), np.uint16)
    n = source.size
    if n:
        wide = n % 4 == 0 and is_aligned(source)
        items = n // 4 if wide else n
        split_kernel(count, wide, place)(grid(items, THREADS, WAVES), THREADS, source, made, n)
    arrays = [piece.view(bfloat16()) for piece in made]
    return [piece.swapaxes(-1, -2) for piece in arrays] if turned else arrays


@kernel
def split_kernel(count, wide, place=None):
    """``(x, pieces, n)``: the pieces of each value, one array after the other, or only that of a place."""
    each = splitter(count)
    first, end = (0, count) if place is None else (place, place + 1)

    def split_wide(x, made, n):
        start, step = np.int64(cuda.grid(1)), np.int64(cuda.gridsize(1))
        for i in range(start, n // 4, step):
            at = np.int64(4 * i)
            a, b, c, d = load4(x, at)
            one, two, three, four = each(a), each(b), each(c), each(d)
            for k in range(first, end):
                store4(made, (k - first) * n + at, one[k], two[k], three[k], four[k])

    def split_one(x, made, n):
        start, step = np.int64(cuda.grid(1)), np.int64(cuda.gridsize(1))
        for i in range(start, n, step):
            found = each(x[i])
            for k in range(first, end):
                made[(k - first) * n + i] = found[k]

    return split_wide if wide else split_one, ("float32*", "uint16*", "int64")


def splitter(count: int):
    """``split(x) -> bits of count bfloat16`` whose sum is ``x`` to 8 bits each."""

    @scalar
    def nearest(x):
        # Rounding up at the top would make infinity: there the bits are cut off.
        code = U(to_bfloat(x))
        magnitude = U(bits(x) & MAGNITUDE)
        overflows = U(code & U(0x7FFF)) == INFINITE and magnitude <= LARGEST
        return U(bits(x) >> U(16)) if overflows else code

    @scalar
    def rest(x, code):
        finite = U(bits(x) & MAGNITUDE) <= LARGEST
        return F(x - from_bfloat(code)) if finite else F(0.0)

    @scalar
    def one(x):
        return (nearest(x),)

    @scalar
    def two(x):
        first = nearest(x)
        return first, nearest(rest(x, first))

    @scalar
    def three(x):
        first = nearest(x)
        left = rest(x, first)
        second = nearest(left)
        return first, second, nearest(rest(left, second))

    return (one, two, three)[count - 1]


def product_of(a: Any, b: Any) -> Any:
    """The product of two factors, 0-d arrays or None: at most the largest float32, so that 0 stays 0."""
    if a is None or b is None:
        return b if a is None else a
    out = empty((), np.float32)
    factor_kernel()(1, 32, a, b, out)
    return out


@kernel
def factor_kernel():
    """``(a, b, out)``: the product, at most the largest float32."""

    def multiply(a, b, out):
        if cuda.grid(1) == 0:
            found = F(a[0] * b[0])
            out[0] = FLOAT_MAX if found > FLOAT_MAX else found

    return multiply, ("float32*", "float32*", "float32*")
