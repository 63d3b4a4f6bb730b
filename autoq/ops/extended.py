"""Functions that take more than their record does: tensors as bounds, ``axis=None``, ``copy=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autoq.errors import ArgumentError
from autoq.ops import elementwise as elementwise  # registers clip
from autoq.ops import join as join  # registers concat
from autoq.ops import layout as layout  # registers reshape
from autoq.ops.axes import one_axis
from autoq.ops.interchange import copied
from autoq.tape.apply import apply, as_tensor
from autoq.tape.beside import filled
from autoq.tape.function import composed, sequence
from autoq.tape.op import REGISTRY
from autoq.tape.tensor import Tensor, tensor


def extends(made: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make it the public function of the record that has its name."""
    made.op = REGISTRY[made.__name__]  # type: ignore[attr-defined]
    return composed(made)


@extends
def clip(x: Any, min: Any = None, max: Any = None, *, out_dtype: Any = None) -> Tensor:
    """`x` with values below `min` or above `max` replaced by the bound; the gradient passes at the bounds.

    Args:
        x: Any shape.
        min: The lower bound, a number or a tensor that broadcasts with `x`, or None for no bound.
        max: The upper bound, likewise.
        out_dtype: Overrides the dtype, which is that of `x`.

    Example:
        >>> import autoq as aq
        >>> aq.clip([-2.0, 0.5, 2.0], min=-1, max=1)
        tensor([-1.   0.5  1. ], float32)
        >>> aq.clip([-2.0, 0.5, 2.0], max=aq.tensor([1.0, 0.0, 1.0]))
        tensor([-2.  0.  1.], float32)
    """
    if all(b is None or isinstance(b, int | float | np.generic) for b in (min, max)):
        return apply("clip", x, min=min, max=max, out_dtype=out_dtype)
    x = as_tensor(x)
    dtype = x.dtype if out_dtype is None else out_dtype
    for bound, inside in ((min, "greater_equal"), (max, "less_equal")):
        if bound is not None:
            kept = apply("logical_or", apply(inside, x, bound), apply("isnan", x))
            x = apply("where", kept, x, bound, out_dtype=dtype)
    return x


@extends
def concat(arrays: Any, axis: int | None = 0, *, out_dtype: Any = None) -> Tensor:
    """Arrays one after the other along an axis.

    Args:
        arrays: At least one; the shapes agree on every other axis.
        axis: The axis along which they follow each other; None flattens them first.
        out_dtype: Overrides the resolved dtype.

    Raises:
        ShapeError: No array, shapes that disagree, or an axis they don't have.

    Example:
        >>> import autoq as aq
        >>> aq.concat([[1.0, 2.0], [3.0]])
        tensor([1. 2. 3.], float32)
    """
    given = sequence(REGISTRY["concat"], arrays)
    if axis is not None:
        return apply("concat", *given, axis=axis, out_dtype=out_dtype)
    tensors = [as_tensor(x) for x in given]
    return apply("concat", *[x.reshape((x.size,)) for x in tensors], axis=0, out_dtype=out_dtype)


@extends
def reshape(x: Any, shape: Any, *, copy: bool | None = None, out_dtype: Any = None) -> Tensor:
    """The same values in row-major order under another shape.

    Args:
        x: Any shape.
        shape: The new shape; one extent may be -1, which is worked out.
        copy: True copies, False never does, None copies where it must.
        out_dtype: Overrides the dtype.

    Raises:
        ShapeError: The shape holds another number of values.
        ArgumentError: ``copy=False`` where the values have to be moved.

    Example:
        >>> import autoq as aq
        >>> aq.reshape([1.0, 2.0, 3.0, 4.0], (2, -1))
        tensor([[1. 2.]
                [3. 4.]], float32)
    """
    x = as_tensor(x)
    out = apply("reshape", x, shape=shape, out_dtype=out_dtype)
    if copy is None or not (x.size and out.shares_memory(x)):
        if copy is False and x.size:
            raise ArgumentError(
                f"reshape: copy=False of shape {x.shape} to {out.shape}, which moves values.",
                "copy=False of contiguous tensors.",
                "Pass copy=None.",
            )
        return out
    return copied(out) if copy else out


@composed
def diff(
    x: Any, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None, out_dtype: Any = None
) -> Tensor:
    """The differences of neighbours along an axis, taken n times.

    Args:
        x: Any shape of at least one axis.
        axis: The axis to go along.
        n: How many times; 0 changes nothing.
        prepend: Values put in front first, of as many axes as `x`.
        append: Values put behind, likewise.
        out_dtype: Overrides the resolved dtype.

    Raises:
        ShapeError: An axis that `x` does not have.
        ArgumentError: A negative n.

    Example:
        >>> import autoq as aq
        >>> aq.diff([1.0, 3.0, 6.0]), aq.diff([1.0, 3.0, 6.0], n=2)
        (tensor([2. 3.], float32), tensor([1.], float32))
    """
    x = as_tensor(x)
    axis = one_axis("diff", axis, x.shape)
    if not isinstance(n, int) or n < 0:
        raise ArgumentError(f"diff: n={n!r}.", "an integer from 0 on.", "Correct n.")
    parts = [part for part in (prepend, x, append) if part is not None]
    if len(parts) > 1:
        x = apply("concat", *parts, axis=axis)
    lead = (slice(None),) * axis
    for _ in range(n):
        x = apply("sub", x[(*lead, slice(1, None))], x[(*lead, slice(None, -1))])
    return x if out_dtype is None else x.astype(out_dtype)


@composed
def positive(x: Any) -> Tensor:
    """+x, which is x.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.positive([1.0, -2.0])
        tensor([ 1. -2.], float32)
    """
    return +as_tensor(x)


@composed
def real(x: Any) -> Tensor:
    """The real part, which of real numbers is all of them.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.real([1.0, -2.0])
        tensor([ 1. -2.], float32)
    """
    return as_tensor(x)


@composed
def imag(x: Any) -> Tensor:
    """The imaginary part, which of real numbers is 0.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.imag([1.0, -2.0])
        tensor([0. 0.], float32)
    """
    x = as_tensor(x)
    return tensor(filled(0.0, x.shape, np.float32, x), x.dtype, device=x.device)


@composed
def conj(x: Any) -> Tensor:
    """The complex conjugate, which of real numbers is the number.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.conj([1.0, -2.0])
        tensor([ 1. -2.], float32)
    """
    return as_tensor(x)
