"""Matrix products on GPUs: operands as they are stored, forward and in gradient rules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.context import current
from autoq.devices import on_gpu
from autoq.kernels.cuda.launch import SIMULATED
from autoq.kernels.cuda.matmul import product
from autoq.kernels.cuda.operand import FLOATS, Packed
from autoq.kernels.cuda.pieces import View
from autoq.ops.axes import Shape
from autoq.storage import QTensor
from autoq.storage.inputs import is_float
from autoq.storage.plan import codec_of
from autoq.tape.accelerated import accelerate, accelerate_rule
from autoq.tape.op import Op

KINDS = (*FLOATS, "float64")
DOUBLE = np.dtype(np.float64)


@accelerate("matmul")
def matmul(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """The product of two operands that fit; for others the op's own forward says what is wrong."""
    a, b = values
    if not (_is_operand(a) and _is_operand(b) and fits(np.shape(a), np.shape(b))):
        return NotImplemented
    return multiplied(a, b, compute)


@accelerate("linear")
def linear(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """``x @ weight.mT``, added to the bias."""
    x, weight, bias = values
    if not (_is_operand(x) and _is_operand(weight) and (bias is None or _is_operand(bias))):
        return NotImplemented
    shape = weight.shape
    misfit = not x.shape or len(shape) != 2 or x.shape[-1] != shape[1]
    if misfit or (bias is not None and bias.shape != shape[:1]):
        return NotImplemented
    return multiplied(x, turned(weight), compute, bias)


@accelerate_rule("linear", "x", over=True)
def linear_x(g: Any, weight: Any, over: bool = False) -> Any:
    """``g @ weight``, the weight as it is stored."""
    return gradient(g, weight, over)


@accelerate_rule("linear", "weight")
def linear_weight(g: Any, x: Any, x_shape: Shape) -> Any:
    """``g.mT @ x`` over all rows."""
    return gradient(turned(rows(g)), rows(x)) if _is_matrix(x) else NotImplemented


@accelerate_rule("matmul", "a", over=True)
def matmul_a(g: Any, b: Any, a_shape: Shape, b_shape: Shape, over: bool = False) -> Any:
    """``g @ b.mT`` of operands that are matrices."""
    return gradient(g, turned(b), over) if len(a_shape) > 1 and len(b_shape) > 1 else NotImplemented


@accelerate_rule("matmul", "b")
def matmul_b(g: Any, a: Any, a_shape: Shape, b_shape: Shape) -> Any:
    """``a.mT @ g``; a shared matrix ``b`` takes all leading axes in one product."""
    if len(a_shape) < 2 or len(b_shape) < 2:
        return NotImplemented
    if len(b_shape) > 2:
        return gradient(turned(a), g)
    return gradient(turned(rows(a)), rows(g)) if _is_matrix(a) else NotImplemented


def fits(a: Shape, b: Shape) -> bool:
    """Whether two shapes can be multiplied.

    Example:
        >>> fits((2, 3, 4), (4, 5)), fits((3, 4), (3, 5)), fits((4,), ())
        (True, False, False)
    """
    if not a or not b or a[-1] != b[-2:][0]:
        return False
    if len(a) < 3 and len(b) < 3:
        return True
    try:
        np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        return False
    return True


def multiplied(a: Any, b: Any, compute: Any, start: Any = None, over: bool = False) -> Any:
    """The product of stored operands in the precision of the context, in float32 or float64.

    ``over`` lets it be written over the first one.
    """
    if compute == DOUBLE:
        return product(operand(a), operand(b), "float64", "exact", start)
    if start is not None:
        start = start.dequantize() if start.__class__ is QTensor else start
    return product(operand(a), operand(b), "float32", current().products, start, over)


def gradient(a: Any, b: Any, over: bool = False) -> Any:
    """The product of a cotangent and a stored operand, in the cotangent's dtype or float32.

    ``over`` lets it be written over the cotangent, if its shape is the result's.
    """
    if not (_is_operand(a) and _is_operand(b)):
        return NotImplemented
    doubles = np.float64 in (getattr(a, "dtype", None), getattr(b, "dtype", None))
    return multiplied(a, b, np.dtype(np.float64 if doubles else np.float32), over=over)


def operand(x: Any) -> Any:
    """A stored value as products take it."""
    if x.__class__ is not QTensor:
        return x
    scheme = x.scheme
    packed = Packed(x.words, x.scales, x.tensor_scale, codec_of(scheme), scheme.block or (), x.storage_shape)
    return View(packed, x.layout.order)


def turned(x: Any) -> Any:
    """The last two axes swapped, as a view."""
    return x.mT if x.__class__ is QTensor else x.swapaxes(-1, -2)


def rows(x: Any) -> Any:
    """(..., n) as a matrix of rows."""
    return x if len(x.shape) == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _is_matrix(x: Any) -> bool:
    """Whether `rows` is a view: packed values with more axes are reshaped by the op's own rule."""
    return x.__class__ is not QTensor or len(x.shape) == 2


def _is_operand(x: Any) -> bool:
    """Whether it holds floats on a GPU."""
    if x.__class__ is QTensor:
        return x.is_on_gpu or SIMULATED
    return bool((on_gpu(x) or (SIMULATED and isinstance(x, np.ndarray))) and is_float(x.dtype, KINDS))
