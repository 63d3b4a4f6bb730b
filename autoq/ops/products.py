"""Products summed over axes: einsum with any number of operands, and what it makes short work of."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from autoq.devices import on_gpu
from autoq.errors import ArgumentError, ShapeError
from autoq.ops.axes import Shape, along, axis_tuple, check_axes
from autoq.ops.contraction import contracted
from autoq.ops.samples import Case, moved
from autoq.ops.several import moveaxis
from autoq.ops.subscripts import parse
from autoq.tape.apply import apply, as_tensor
from autoq.tape.function import composed
from autoq.tape.op import Op, register
from autoq.tape.tensor import Tensor


def sum_of_products(arrays: Sequence[Any], *, subscripts: str) -> Any:
    """The forward of `einsum`.

    Args:
        arrays: At least one.
        subscripts: As of `einsum`.
    """
    spec = parse(subscripts, tuple([np.shape(a) for a in arrays]))
    arrays = [np.reshape(a, shape) for a, shape in zip(arrays, spec.shapes, strict=True)]
    if all(a.dtype.kind == "b" for a in arrays):
        arrays = [a.astype(np.int64) for a in arrays]  # bools count
    many = len(arrays) > 1
    if many and all(on_gpu(a) and a.dtype.kind == "f" and a.size for a in arrays):
        return contracted(spec.inputs, spec.output, arrays)
    # With one operand NumPy may return a view of it.
    found = np.einsum(spec.spelled, *arrays, optimize=many)
    return found if many else found.copy()


def _part(F: Any, g: Any, i: int, shapes: Sequence[Shape], arrays: Any, subscripts: str) -> Any:
    return parse(subscripts, tuple(shapes)).gradient(F, g, i, arrays, shapes[i])


@composed
def einsum(subscripts: str, *operands: Any, out_dtype: Any = None) -> Tensor:
    """Products of operands, summed over axes by Einstein's convention.

    Args:
        subscripts: Letters for the axes of each operand, commas between, then ``->`` and the letters of the
            result; axes whose letters it doesn't have are summed. A letter twice in one operand is its
            diagonal, ``...`` any number of axes, which broadcast. Without ``->``: the letters that occur
            once, in alphabetical order.
        operands: At least one tensor.
        out_dtype: Overrides the resolved dtype.

    Raises:
        ArgumentError: Malformed subscripts, or another number of operands.
        ShapeError: Axes that don't fit the letters.

    Example:
        >>> import autoq as aq
        >>> aq.einsum("ij,jk->ik", [[1.0, 2.0]], [[3.0], [4.0]])
        tensor([[11.]], float32)
    """
    if not isinstance(subscripts, str) or not operands:
        raise ArgumentError(
            f"einsum: subscripts {subscripts!r} and {len(operands)} operands.",
            "a string such as 'ij,jk->ik', then the operands.",
            "Pass the subscripts first.",
        )
    return apply("einsum", *operands, subscripts=subscripts, out_dtype=out_dtype)


@composed
def tensordot(a: Any, b: Any, axes: Any = 2, *, out_dtype: Any = None) -> Tensor:
    """Products of all pairs, summed over axes of both.

    Args:
        a: Any shape.
        b: Any shape.
        axes: How many of the last axes of `a` and the first of `b` are summed; or two sequences, the axes
            of each.
        out_dtype: Overrides the resolved dtype.

    Raises:
        ShapeError: Axes that they don't have, or whose lengths differ.

    Example:
        >>> import autoq as aq
        >>> aq.tensordot([[1.0, 2.0]], [[3.0], [4.0]], axes=1)
        tensor([[11.]], float32)
    """
    a, b = as_tensor(a), as_tensor(b)
    first, second = _summed(axes, a.ndim, a.shape, b.shape)
    letters = list(string.ascii_letters[: a.ndim])
    others = list(string.ascii_letters[a.ndim : a.ndim + b.ndim])
    for i, j in zip(first, second, strict=True):
        others[j] = letters[i]
    output = [c for i, c in enumerate(letters) if i not in first]
    output += [c for j, c in enumerate(others) if j not in second]
    spelled = f"{''.join(letters)},{''.join(others)}->{''.join(output)}"
    return apply("einsum", a, b, subscripts=spelled, out_dtype=out_dtype)


def _summed(axes: Any, ndim: int, a: Shape, b: Shape) -> tuple[Shape, Shape]:
    """The axes of both operands that are summed, pair by pair."""
    if isinstance(axes, int | np.integer):
        if not 0 <= axes <= min(ndim, len(b)):
            raise ShapeError(
                f"tensordot: axes={axes} of {a} and {b}.", "at most the axes of either.", "Correct axes."
            )
        return tuple(range(ndim - int(axes), ndim)), tuple(range(int(axes)))
    if not isinstance(axes, list | tuple) or len(axes) != 2:
        raise ArgumentError(
            f"tensordot: axes={axes!r}.", "an integer, or the axes of each operand.", "Pass a pair."
        )
    first, second = [tuple(x) if isinstance(x, list | tuple) else (x,) for x in axes]
    check_axes("tensordot", first, a)
    check_axes("tensordot", second, b)
    first, second = axis_tuple(first, ndim), axis_tuple(second, len(b))
    if len(first) != len(second):
        raise ShapeError(f"tensordot: axes={axes}.", "as many of both operands.", "Pair them.")
    return first, second


@composed
def outer(a: Any, b: Any, *, out_dtype: Any = None) -> Tensor:
    """The products of all pairs of two vectors.

    Args:
        a: (m,).
        b: (n,).
        out_dtype: Overrides the resolved dtype.

    Returns:
        (m, n).

    Raises:
        ShapeError: Operands of more axes, or none.

    Example:
        >>> import autoq as aq
        >>> aq.outer([1.0, 2.0], [3.0, 4.0])
        tensor([[3. 4.]
                [6. 8.]], float32)
    """
    a, b = as_tensor(a), as_tensor(b)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(
            f"outer: a is {a.shape}, b is {b.shape}.", "one axis each.", "Flatten them, or use einsum."
        )
    return apply("einsum", a, b, subscripts="i,j->ij", out_dtype=out_dtype)


@composed
def vecdot(a: Any, b: Any, axis: int = -1, *, out_dtype: Any = None) -> Tensor:
    """The scalar products of vectors along an axis; the other axes broadcast.

    Args:
        a: (..., n, ...).
        b: (..., n, ...).
        axis: Counted from the end, so negative where the operands have different numbers of axes.
        out_dtype: Overrides the resolved dtype.

    Raises:
        ShapeError: An axis that they don't have, or other shapes that don't fit.

    Example:
        >>> import autoq as aq
        >>> aq.vecdot([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0])
        tensor([3. 7.], float32)
    """
    a, b = as_tensor(a), as_tensor(b)
    for x in (a, b):
        check_axes("vecdot", axis, np.shape(x))
    if axis not in (-1, a.ndim - 1) or a.ndim != b.ndim:
        a, b = [moveaxis(x, axis, -1) for x in (a, b)]
    return apply("einsum", a, b, subscripts="...i,...i->...", out_dtype=out_dtype)


def trace(x: Any, *, offset: int = 0) -> Any:
    """The sums of the diagonals of matrices.

    Args:
        x: (..., m, n).
        offset: Which diagonal: 0 is the main one, positive ones lie above it.

    Raises:
        ShapeError: Fewer than two axes.

    Example:
        >>> import autoq as aq
        >>> aq.trace([[1.0, 2.0], [3.0, 4.0]])
        tensor(5., float32)
    """
    if np.ndim(x) < 2:
        raise ShapeError(f"trace: x is {np.shape(x)}.", "at least two axes.", "Insert an axis.")
    return along(np.add.reduce, np.diagonal(x, offset, -2, -1), axis=-1)


def _trace_x(F: Any, g: Any, x_shape: Shape, offset: int) -> Any:
    m, n = x_shape[-2:]
    length = max(0, min(m + min(offset, 0), n - max(offset, 0)))
    spread = F.broadcast_to(F.expand_dims(g, axis=-1), shape=(*x_shape[:-2], length))
    return F.scatter_diagonal(spread, offset=offset, axis1=-2, axis2=-1, shape=x_shape)


def _einsum_sample(rng: np.random.Generator) -> list[Case]:
    cases: tuple[tuple[str, tuple[Shape, ...]], ...] = (
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("ij,jk,kl->li", ((2, 3), (3, 2), (2, 3))),
        ("ij,ij->", ((2, 3), (2, 3))),
        ("ij->j", ((2, 3),)),
        ("ji", ((2, 3),)),
        ("ii->i", ((3, 3),)),
        ("iij,j->i", ((2, 2, 3), (3,))),
        ("...ij,...j->...i", ((2, 1, 3, 2), (4, 2))),
        ("b...,b...->...", ((2, 3), (2, 3))),
        ("i,j,k->kij", ((2,), (3,), (2,))),
    )
    return [
        (tuple(rng.standard_normal(shape) for shape in shapes), {"subscripts": subscripts})
        for subscripts, shapes in cases
    ]


register(
    Op(
        "einsum",
        sum_of_products,
        {"*": _part},
        variadic=True,
        accumulates=True,
        integers=True,
        sample=_einsum_sample,
    )
)
_trace_matrices = moved((2, 3, 4), {}, {"offset": 2}, {"offset": -1})
_trace_stacks = moved((2, 2, 3, 4), {}, {"offset": 1})
register(
    Op(
        "trace",
        trace,
        {"x": _trace_x},
        accumulates=True,
        integers=True,
        sample=lambda rng: _trace_matrices(rng) + _trace_stacks(rng),
    )
)
