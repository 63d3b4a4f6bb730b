"""Products of packed and dense matrices: how each pair of operands is multiplied.

- Both operands of at most 8 significant bits (bfloat16, MX, NVFP4, one scale a tensor): decoded to bfloat16
  without a rounding, multiplied by the tensor cores with float32 sums. Scales of whole tensors multiply the
  result, from where they lie on the device.
- FP8 with one scale a tensor or a scale for 128 codes, whose summed axes lie innermost: by the FP8 tensor
  cores, on the words as they are stored, where the product is large. Their sums of a few terms are shorter
  than float32 (about 14 bits on Hopper), those sums are added up in float32.
- Up to eight rows by a packed matrix: `vector` decodes while it multiplies.
- Others, where they are large: as sums of bfloat16 matrices, left out what is below float32's rounding;
  else decoded to float32.

What is decoded lives for the call, and of large matrices of floats a part at a time (`panels`).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from . import blas, blas_fp8, panels, vector
from .launch import empty
from .map import mapped
from .operand import FLOATS, Packed
from .panels import by_pieces, gemm, gemm_over, way
from .pieces import PIECE_BITS, Operand, View, bfloat16, bits_of, decoded, has_one_scale
from .reduce import IDENTITY

PRECISIONS = ("highest", "tf32", "bf16", "exact")
# Products of fewer multiplications gain nothing: they take float32 rather than the launches of a sum of
# products, and float32 sums rather than those of the FP8 tensor cores.
SPLIT_FROM = 1 << 30
TILE = 128
FLOAT, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def product(
    a: Operand,
    b: Operand,
    out_dtype: str = "float32",
    precision: str = "highest",
    start: Any = None,
    over: bool = False,
) -> Any:
    """The matrix product of two operands, packed or dense, with NumPy's conventions for leading axes.

    Args:
        a: (..., m, k) or (k,): a View, or an array of float64, float32, float16 or bfloat16.
        b: (..., k, n) or (k,).
        out_dtype: ``"float32"``, ``"float16"`` or ``"bfloat16"``; ``"float64"`` under ``"exact"``.
        precision: ``"highest"`` loses nothing against float32 products with float32 sums, but for large
            products of FP8 as told above; ``"tf32"`` and ``"bf16"`` round float32 operands to that many
            bits and let FP8 sums be shorter; ``"exact"`` multiplies and sums in float64.
        start: What the product is added to, broadcast to the result's shape; None for 0.
        over: Nobody else reads ``a``: a large result of its shape may be written over it, without a start.

    Returns:
        A C-contiguous device array: a new one, or ``a``.
    """
    few = vector.product(a, b) if precision != "exact" and blas.available() else None
    if few is not None:
        if start is not None:
            few += start
        return few if out_dtype == "float32" else few.astype(_dtype(out_dtype))
    a, b, drop = _matrices(a, b)
    leading = () if len(a.shape) == len(b.shape) == 2 else np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*leading, a.shape[-2], b.shape[-1])
    rounded_at_the_end = out_dtype in ("float16", "bfloat16") and not _rounds(a, b, out_dtype, precision)
    work = FLOAT if rounded_at_the_end else _dtype(out_dtype)
    out = a if over and _goes_over(a, b, shape, work, precision) else empty(shape, work)
    if out.size and a.shape[-1]:
        _multiply(a, b, out, precision, start)
    else:
        out[...] = 0 if start is None else start
    if rounded_at_the_end:
        out = out.astype(_dtype(out_dtype))
    return out.reshape([n for i, n in enumerate(shape) if i - len(shape) not in drop]) if drop else out


def _dtype(name: str) -> Any:
    return bfloat16() if name == "bfloat16" else FLOAT if name == "float32" else np.dtype(name)


def _matrices(a: Operand, b: Operand) -> tuple[Operand, Operand, tuple[int, ...]]:
    """Operands with rows and columns, and which axes of the result a 1-D operand doesn't have."""
    drop = ((-2,) if len(a.shape) == 1 else ()) + ((-1,) if len(b.shape) == 1 else ())
    if len(a.shape) == 1:
        a = _line(a)
    if len(b.shape) == 1:
        b = _line(b)
        b = View(b.packed, (1, 0)) if isinstance(b, View) else b.T
    return a, b, drop


def _line(x: Operand) -> Operand:
    """A vector as a matrix of one row."""
    if not isinstance(x, View):
        return x.reshape(1, -1)
    p = x.packed
    return View(p._replace(words=p.words[None], scales=p.scales[None], shape=(1, *p.shape)), (0, 1))


def _rounds(a: Operand, b: Operand, out_dtype: str, precision: str) -> bool:
    """Whether one call of cuBLAS gives the result, which it then rounds itself."""
    if precision == "exact" or not blas.available():
        return False
    if not isinstance(a, View) and not isinstance(b, View) and a.dtype == b.dtype:
        return bool(a.dtype.name == out_dtype)
    return out_dtype == "bfloat16" and (max(_bits(a), _bits(b)) <= PIECE_BITS or precision == "bf16")


def _bits(x: Operand) -> int:
    return 53 if not isinstance(x, View) and x.dtype == DOUBLE else bits_of(x)


def _multiply(a: Operand, b: Operand, out: Any, precision: str, start: Any) -> None:
    """Write the product, in whatever way suits the operands, and what it is added to."""
    if blas.available() and _by_fp8(a, b, out, precision):
        if start is not None:
            out += start
        return
    adds = start is not None
    if adds:
        _begin(out, start)
    dense = not isinstance(a, View) and not isinstance(b, View)
    if out.dtype == DOUBLE:
        gemm(_doubles(a), _doubles(b), out, adds)
    elif dense and a.dtype == b.dtype:
        gemm_over(a, b, precision) if out is a else gemm(a, b, out, adds, precision)
    elif blas.available() and (precision == "bf16" or max(_bits(a), _bits(b)) <= PIECE_BITS):
        by_pieces(a, b, out, adds, rounded=True)
    elif blas.available() and precision == "highest" and _worth_splitting(a, b, out):
        by_pieces(a, b, out, adds)
    else:
        gemm(decoded(a, "float32"), decoded(b, "float32"), out, adds, precision)


def _goes_over(a: Operand, b: Operand, shape: Any, work: Any, precision: str) -> bool:
    """Whether `_multiply` has read the rows of ``a`` that it writes to, if the result is ``a``."""
    if isinstance(a, View) or a.shape != shape or a.dtype != work or work != FLOAT or not blas.available():
        return False
    if not a.flags.c_contiguous or a.nbytes < panels.PANEL // 2:
        return False
    if not isinstance(b, View) and a.dtype == b.dtype:
        return len(shape) == 2
    rounded = precision == "bf16"
    in_pieces = rounded or (precision == "highest" and _worth_splitting(a, b, a))
    return in_pieces and way(a, b, rounded) == "rows"


def _begin(out: Any, start: Any) -> None:
    """Write what a product is added to into its place, most often a bias into every row."""
    if IDENTITY is not None and out.dtype.name in FLOATS and start.dtype.name in FLOATS:
        mapped(IDENTITY.expression, [start], (), out)
    else:
        out[...] = start


def _doubles(x: Operand) -> Any:
    """An operand in float64; packed values are float32."""
    array = decoded(x, "float32") if isinstance(x, View) else x
    return array.astype(np.float64, copy=False)


def _worth_splitting(a: Operand, b: Operand, out: Any) -> bool:
    """Whether a sum of bfloat16 products is quicker than float32, and as right.

    Infinity is one piece, and times the other's second piece, which may be 0, it would give NaN: an operand
    whose other has several pieces must be packed, with values that are finite.
    """
    packed = all(isinstance(x, View) for x, other in ((a, b), (b, a)) if _bits(other) > PIECE_BITS)
    return out.size * a.shape[-1] >= SPLIT_FROM and packed


def _by_fp8(a: Operand, b: Operand, out: Any, precision: str) -> bool:
    """The product by the FP8 tensor cores, where the operands' words lie as those want them."""
    if not isinstance(a, View) or not isinstance(b, View) or len(b.shape) != 2 or b.order != (1, 0):
        return False
    if out.dtype == DOUBLE or a.order != tuple(range(len(a.order))):
        return False
    if precision == "highest" and out.size * a.shape[-1] < SPLIT_FROM:
        return False
    left, right = _fp8_codes(a.packed), _fp8_codes(b.packed)
    if left is None or right is None:
        return False
    flat = out.reshape(prod(out.shape[:-1]), out.shape[-1])
    return blas_fp8.product(left, right, flat, fast=precision != "highest")


def _fp8_codes(p: Packed) -> blas_fp8.Codes | None:
    """A packed tensor as rows of FP8 codes, None for one that isn't."""
    element = fp8_element(p.codec.element)
    extents = (1,) * (2 - len(p.extents)) + p.extents
    if element is None or p.codec.scale != "f32" or p.codec.two_level or p.shape[-1] % 16:
        return None
    if has_one_scale(p):
        mode, scales = "tensor", p.scales
    elif extents in ((1, TILE), (TILE, TILE)) and (len(p.shape) == 2 or extents == (1, TILE)):
        mode = "rows" if extents == (1, TILE) else "tiles"
        scales = p.scales.reshape(-1, p.scales.shape[-1])
    else:
        return None
    words = p.words
    if words.ndim > 2:
        if not words.flags.c_contiguous:
            return None
        words = words.reshape(-1, words.shape[-1])
    if words.strides[1] != words.itemsize:
        return None
    return blas_fp8.Codes(words, element, scales, mode)


def fp8_element(element: Any) -> str | None:
    """``"e4m3"`` or ``"e5m2"`` where the element is that format of the hardware, else None."""
    if (element.kind, element.bits) != ("minifloat", 8):
        return None
    if (element.mantissa, element.bias, element.max_code, element.has_inf) == (3, 7, 0x7E, False):
        return "e4m3"
    return "e5m2" if (element.mantissa, element.bias, element.has_inf) == (2, 15, True) else None
