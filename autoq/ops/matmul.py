"""Matrix products: `matmul` with NumPy's conventions, and `linear` as one op (S30a: the exact adjoint)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.errors import ShapeError
from autoq.ops.axes import Shape
from autoq.tape.op import Op, register


def matmul(a: Any, b: Any) -> Any:
    """The matrix product a @ b; leading axes broadcast, a 1-D operand is a row as `a` and a column as `b`.

    Args:
        a: (..., m, k) or (k,).
        b: (..., k, n) or (k,).

    Returns:
        (..., m, n), without the axis that a 1-D operand doesn't have.

    Raises:
        ShapeError: Inner axes that differ, leading axes that don't broadcast, or a 0-d operand.

    Example:
        >>> import autoq as aq
        >>> aq.matmul([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0])
        tensor([3. 7.], float32)
    """
    if a.dtype.kind == b.dtype.kind == "b":  # bools count; CuPy multiplies before it looks at dtype=
        a, b = a.astype(np.int64), b.astype(np.int64)
    try:
        return np.matmul(a, b)
    except ValueError:
        raise _mismatch(np.shape(a), np.shape(b)) from None


def _mismatch(a: Shape, b: Shape) -> ShapeError:
    if not a or not b:
        return ShapeError(
            f"matmul: a is {a}, b is {b}.", "operands with an axis.", "Multiply by a number with *."
        )
    if a[-1] != b[-2:][0]:
        inner = "a.shape[-1] == b.shape[-2]." if len(b) > 1 else "a.shape[-1] == b.shape[0]."
        return ShapeError(
            f"matmul: inner axes differ: a is {a}, b is {b}.",
            inner,
            "Transpose an operand with .mT, or slice one.",
        )
    return ShapeError(
        f"matmul: leading axes don't broadcast: a is {a}, b is {b}.",
        "leading extents that are equal, or 1.",
        "Insert or reshape leading axes.",
    )


def _matmul_a(F: Any, g: Any, b: Any, a_shape: Shape, b_shape: Shape) -> Any:
    """g @ b.mT, with the missing axis of a 1-D operand put in and taken out."""
    if len(b_shape) == 1:
        return g * b if len(a_shape) == 1 else F.expand_dims(g, axis=-1) * b
    if len(a_shape) == 1:
        return F.squeeze(F.matmul(F.expand_dims(g, axis=-2), F.matrix_transpose(b)), axis=-2)
    return F.matmul(g, F.matrix_transpose(b))


def _matmul_b(F: Any, g: Any, a: Any, a_shape: Shape, b_shape: Shape) -> Any:
    """a.mT @ g, likewise; a shared matrix b takes all leading axes in one product."""
    if len(a_shape) == 1:
        return g * a if len(b_shape) == 1 else F.expand_dims(a, axis=-1) * F.expand_dims(g, axis=-2)
    if len(b_shape) == 1:
        return F.squeeze(F.matmul(F.matrix_transpose(a), F.expand_dims(g, axis=-1)), axis=-1)
    if len(b_shape) == 2:
        a, g = _rows(F, a, a_shape), _rows(F, g, g.shape)
    return F.matmul(F.matrix_transpose(a), g)


def _rows(F: Any, x: Any, shape: Shape) -> Any:
    """(..., n) as a matrix of rows; (n,) as one row."""
    return x if len(shape) == 2 else F.reshape(x, shape=(math.prod(shape[:-1]), shape[-1]))


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """x @ weight.mT + bias, the layer of a network, in one op.

    Args:
        x: (..., n).
        weight: (m, n), one row an output.
        bias: (m,), or None.

    Returns:
        (..., m).

    Raises:
        ShapeError: Shapes other than these.

    Example:
        >>> import autoq as aq
        >>> aq.linear([1.0, 2.0], [[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5])
        tensor([1.5 2.5], float32)
    """
    x_shape, weight_shape = np.shape(x), weight.shape
    if not x_shape or len(weight_shape) != 2 or x_shape[-1] != weight_shape[1]:
        raise ShapeError(
            f"linear: x is {x_shape}, weight is {weight_shape}.",
            "x (..., n) and weight (m, n).",
            "Store the weight with one row an output, or pass weight.mT.",
        )
    if bias is not None and bias.shape != weight_shape[:1]:
        raise ShapeError(
            f"linear: bias is {bias.shape}, weight is {weight_shape}.",
            "bias (m,).",
            "Give one value an output.",
        )
    rows = x.reshape(math.prod(x_shape[:-1]), x_shape[-1]) if len(x_shape) > 2 else x
    y = rows @ weight.T
    if bias is not None:
        y += bias
    return y if rows is x else y.reshape(*x_shape[:-1], weight_shape[0])


def _linear_weight(F: Any, g: Any, x: Any, x_shape: Shape) -> Any:
    return F.matmul(F.matrix_transpose(_rows(F, g, g.shape)), _rows(F, x, x_shape))


def _matmul_sample(rng: np.random.Generator) -> list[Any]:
    shapes: tuple[tuple[Shape, Shape], ...] = (
        ((3, 4), (4, 2)), ((4,), (4,)), ((4,), (4, 2)), ((3, 4), (4,)),
        ((2, 3, 4), (4, 2)), ((3, 4), (2, 4, 2)), ((2, 3, 4), (2, 4, 2)), ((2, 1, 3, 4), (5, 4, 2)),
        ((2, 3, 4), (4,)), ((4,), (2, 4, 3)), ((0, 4), (4, 2)),
    )  # fmt: skip
    return [((rng.standard_normal(a), rng.standard_normal(b)), {}) for a, b in shapes]


def _linear_sample(rng: np.random.Generator) -> list[Any]:
    weight, bias = rng.standard_normal((2, 4)), rng.standard_normal(2)
    return [
        *[((rng.standard_normal(shape), weight, bias), {}) for shape in ((3, 4), (4,), (2, 3, 4))],
        ((rng.standard_normal((3, 4)), weight, None), {}),
    ]


register(
    Op(
        "matmul",
        matmul,
        {"a": _matmul_a, "b": _matmul_b},
        accumulates=True,
        integers=True,
        sample=_matmul_sample,
    )
)
register(
    Op(
        "linear",
        linear,
        {"x": lambda F, g, weight: F.matmul(g, weight), "weight": _linear_weight, "bias": lambda F, g: g},
        accumulates=True,
        sample=_linear_sample,
    )
)
