"""Large products of bfloat16 pieces a part at a time, with little memory beside operands and result.

Three pieces of a float32 matrix have half as many bytes again as the matrix. Where they would take more than
`PANEL` bytes, they are made

- of some rows of the first operand, for those rows of the result, or of some columns of the second one;
- or of some of the summed axis, if that is what lies together (the gradient of a weight is such a product):
  piece by piece, and a float32 result is added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from . import blas
from .launch import empty, library
from .operand import Packed
from .pieces import PIECE_BITS, Operand, Pieces, View, bits_of, has_one_scale, piece_of, pieces, product_of

# Bytes of pieces at a time, and what the number of their rows is a multiple of: tiles for all processors.
PANEL, ROWS = 1 << 26, 1024
# Pieces i and j whose places add up to more are left out: their product is below float32's rounding.
MOST_PLACES = 2


def by_pieces(a: Operand, b: Operand, out: Any, accumulate: bool, rounded: bool = False) -> None:
    """Write the sum of the products of two operands' pieces, or add it.

    Args:
        a: (..., m, k) of bfloat16 pieces.
        b: (..., k, n).
        out: (..., m, n), float32 or bfloat16; it may be ``a`` where the `way` is by rows.
        accumulate: Add to what ``out`` holds.
        rounded: One piece of each operand, rounded, is enough.
    """
    how = way(a, b, rounded, out.dtype.name == "float32")
    if how == "rows":
        right = pieces(b, rounded)
        for rows in spans(a.shape[0], _bytes(a, rounded) // a.shape[0], PANEL):
            _sum(pieces(a[rows], rounded), right, out[rows], accumulate)
    elif how == "columns":
        left = pieces(a, rounded)
        for columns in spans(b.shape[1], _bytes(b, rounded) // b.shape[1], PANEL):
            _sum(left, pieces(b[:, columns], rounded), out[:, columns], accumulate)
    elif how == "whole":
        _sum(pieces(a, rounded), pieces(b, rounded), out, accumulate)
    else:
        _along(a, b, how == "first", out, accumulate, rounded)


def way(a: Operand, b: Operand, rounded: bool = False, adds: bool = True) -> str:
    """How a product of pieces is made.

    Args:
        a: The first operand.
        b: The second.
        rounded: One piece of each is enough.
        adds: The result may be added up from parts of the sum.

    Returns:
        ``"whole"``; by some ``"rows"`` of the first operand, copied before those rows of the result are
        written, or some ``"columns"`` of the second; or by parts of the sum, the ``"first"`` operand or the
        ``"second"`` piece by piece.
    """
    if not len(a.shape) == len(b.shape) == 2 or _bytes(a, rounded) + _bytes(b, rounded) <= PANEL:
        return "whole"
    operands = (("first", a, b, 1), ("second", b, a, 0))
    along = [name for name, x, other, axis in operands if _goes_along(x, other, axis, rounded)]
    if along and adds:
        return along[0]
    if not along and _is_large(a, rounded):
        return "rows"
    return "columns" if _is_large(b, rounded) else "whole"


def gemm_over(a: Any, b: Any, precision: str = "highest") -> None:
    """Write the product of two matrices over the first one."""
    for rows in spans(len(a), a.strides[0], PANEL // 4):
        part = empty((len(a[rows]), b.shape[1]), a.dtype)
        blas.gemm(a[rows], b, part, precision=precision)
        a[rows] = part
        del part


def _is_large(x: Operand, rounded: bool) -> bool:
    """Whether a matrix is one of floats, whose pieces are copies and take much memory."""
    return not isinstance(x, View) and x.dtype.name != "bfloat16" and _bytes(x, rounded) > PANEL // 2


def spans(length: int, each: int, most: int) -> Iterator[slice]:
    """Slices of an axis, of a multiple of `ROWS` whose bytes, ``each`` apiece, are at most ``most``.

    Example:
        >>> list(spans(5000, 24 * 1024, 1 << 26))
        [slice(0, 2048, None), slice(2048, 4096, None), slice(4096, 6144, None)]
    """
    count = max(most // max(each, 1) // ROWS * ROWS, ROWS)
    return (slice(start, start + count) for start in range(0, length, count))


def gemm(a: Any, b: Any, out: Any, accumulate: bool, precision: str = "highest", alpha: Any = 1.0) -> None:
    """The product of arrays, their leading axes broadcast to the result's."""
    a, b = (_broadcast(x, out.shape[:-2]) for x in (a, b))
    blas.gemm(a, b, out, alpha, accumulate, precision)


def _broadcast(x: Any, leading: tuple[int, ...]) -> Any:
    shape = (*leading, *x.shape[-2:])
    return x if x.shape == shape else library().broadcast_to(x, shape)


def _sum(left: Pieces, right: Pieces, out: Any, accumulate: bool) -> None:
    """The products of the pieces, smallest first."""
    alpha = product_of(left.factor, right.factor)
    places = [
        (i, j) for i in range(len(left.arrays)) for j in range(len(right.arrays)) if i + j <= MOST_PLACES
    ]
    for i, j in sorted(places, key=sum, reverse=True):
        gemm(left.arrays[i], right.arrays[j], out, accumulate, alpha=1.0 if alpha is None else alpha)
        accumulate = True


def _along(a: Operand, b: Operand, first: bool, out: Any, accumulate: bool, rounded: bool) -> None:
    """The sum over parts of the summed axis, of one operand (``first`` or not) one piece at a time."""
    many, other = (a, b) if first else (b, a)
    count, length = _count(many, rounded), a.shape[1]
    each = (_bytes(many, rounded) // count + _bytes(other, rounded)) // length
    for part in spans(length, each, PANEL // 2):
        whole = pieces(_summed(other, part, first), rounded)
        alpha = 1.0 if whole.factor is None else whole.factor
        for place in reversed(range(count)):
            one = piece_of(_summed(many, part, not first), place, count)
            left, right = (one, whole.arrays[0]) if first else (whole.arrays[0], one)
            gemm(left, right, out, accumulate, alpha=alpha)
            accumulate = True
            del one, left, right  # before the next piece is made


def _goes_along(x: Operand, other: Operand, axis: int, rounded: bool) -> bool:
    """Whether `_along` may take an operand piece by piece, in parts of its ``axis``, which is summed.

    Its floats lie along that axis. The other has one piece, which can be cut there too: of a packed one
    that axis is the storage's first, and no block is longer than 1 there.
    """
    if isinstance(x, View) or x.dtype.name == "bfloat16" or _count(other, rounded) > 1:
        return False
    if not (x.T if axis else x).flags.c_contiguous:
        return False
    if not isinstance(other, View):
        return True
    extents, one_scale = other.packed.extents, has_one_scale(other.packed)
    return other.order[1 - axis] == 0 and (one_scale or len(extents) == 1 or extents[:1] == (1,))


def _summed(x: Operand, part: slice, is_second: bool) -> Operand:
    """A part of the summed axis, the second operand's first axis or the first one's second."""
    if not isinstance(x, View):
        return x[part] if is_second else x[:, part]
    p: Packed = x.packed
    words, scales = p.words[part], p.scales if has_one_scale(p) else p.scales[part]
    return View(p._replace(words=words, scales=scales, shape=(len(words), p.shape[1])), x.order)


def _count(x: Operand, rounded: bool) -> int:
    """How many pieces an operand has."""
    return 1 if rounded else -(-bits_of(x) // PIECE_BITS)


def _bytes(x: Operand, rounded: bool) -> int:
    """Bytes of an operand's pieces, 0 of an array that is one."""
    if not isinstance(x, View) and x.dtype.name == "bfloat16":
        return 0
    return 2 * _count(x, rounded) * prod(x.shape)
