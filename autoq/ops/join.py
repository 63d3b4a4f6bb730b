"""Layout ops that join or enlarge arrays: concat, stack, pad (S21, S35)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autoq.devices import array_namespace
from autoq.errors import ShapeError
from autoq.ops.axes import Shape, check_axis
from autoq.ops.samples import moved
from autoq.storage import move
from autoq.tape.op import Op, register


def pad(x: Any, *, widths: Sequence[tuple[int, int]]) -> Any:
    """Zeros added before and after the values of each axis.

    Args:
        x: Any shape.
        widths: For each axis, how many zeros before and after.

    Raises:
        ShapeError: Not one pair of non-negative numbers an axis.

    Example:
        >>> import autoq as aq
        >>> aq.pad([1.0, 2.0], [(1, 2)])
        tensor([0. 1. 2. 0. 0.], float32)
    """
    shape = np.shape(x)
    _check_widths(shape, widths)
    lengths = [a + n + b for n, (a, b) in zip(shape, widths, strict=True)]
    padded = array_namespace(x).zeros(lengths, x.dtype)
    padded[_inner(shape, widths)] = x
    return padded


def _check_widths(shape: Shape, widths: Any) -> None:
    try:
        fits = len(widths) == len(shape) and all(len(pair) == 2 and min(pair) >= 0 for pair in widths)
    except TypeError:
        fits = False
    if not fits:
        raise ShapeError(
            f"pad: widths={widths} for shape {shape}.",
            "a pair (before, after) for each axis.",
            "Use (0, 0) for none.",
        )


def _inner(shape: Shape, widths: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    """Where the values lie between their padding."""
    return tuple(slice(before, before + n) for n, (before, _) in zip(shape, widths, strict=True))


def concat(arrays: Sequence[Any], *, axis: int = 0) -> Any:
    """Arrays one after the other along an axis.

    Args:
        arrays: At least one; the shapes agree on every other axis.
        axis: The axis along which they follow each other.

    Raises:
        ShapeError: No array, shapes that disagree, or an axis they don't have.

    Example:
        >>> import autoq as aq
        >>> aq.concat([[1.0, 2.0], [3.0]])
        tensor([1. 2. 3.], float32)
    """
    return _joined("concat", np.concatenate, arrays, axis, "equal but for the joined axis", 0)


def stack(arrays: Sequence[Any], *, axis: int = 0) -> Any:
    """Arrays of one shape along a new axis.

    Args:
        arrays: At least one, all of one shape.
        axis: Where the new axis is in the result.

    Raises:
        ShapeError: No array, shapes that differ, or an axis outside the result.

    Example:
        >>> import autoq as aq
        >>> aq.stack([[1.0, 2.0], [3.0, 4.0]])
        tensor([[1. 2.]
                [3. 4.]], float32)
    """
    return _joined("stack", np.stack, arrays, axis, "all equal", 1)


def _joined(
    name: str, join: Callable[..., Any], arrays: Sequence[Any], axis: int, rule: str, extra: int
) -> Any:
    if arrays:  # for None NumPy would join the flattened arrays
        check_axis(name, axis, np.shape(arrays[0]) + (1,) * extra)
    try:
        return join(arrays, axis=axis)
    except (ValueError, TypeError, OverflowError):
        shapes = [np.shape(array) for array in arrays]
        raise ShapeError(
            f"{name}: shapes {', '.join(map(str, shapes)) or 'of no arrays'}, axis={axis}.",
            f"one array or more, of at least one axis, shapes {rule}.",
            "Reshape or slice the odd one out.",
        ) from None


def _concat_part(F: Any, g: Any, i: int, shapes: Sequence[Shape], axis: int) -> Any:
    axis %= g.ndim
    start = sum(shape[axis] for shape in shapes[:i])
    return F.getitem(g, index=(slice(None),) * axis + (slice(start, start + shapes[i][axis]),))


def _stack_part(F: Any, g: Any, i: int, axis: int) -> Any:
    return F.getitem(g, index=(slice(None),) * (axis % g.ndim) + (i,))


def _packed_pad(q: Any, *, widths: Sequence[tuple[int, int]]) -> Any:
    _check_widths(q.shape, widths)
    return move.pad(q, widths)


def _packed_concat(arrays: Any, *, axis: int = 0) -> Any:
    check_axis("concat", axis, arrays[0].shape)
    return move.concat(arrays, axis)


def _packed_stack(arrays: Any, *, axis: int = 0) -> Any:
    check_axis("stack", axis, (*arrays[0].shape, 1))
    return move.stack(arrays, axis)


def _join_sample(rng: np.random.Generator) -> list[Any]:
    a, b, c = rng.standard_normal((3, 2, 3, 4))
    return [((a, b, c), {"axis": 0}), ((a, b), {"axis": -1}), ((a,), {"axis": 1})]


register(
    Op(
        "pad",
        pad,
        {"x": lambda F, g, x_shape, widths: F.getitem(g, index=_inner(x_shape, widths))},
        kind="layout",
        integers=True,
        packed=_packed_pad,
        sample=moved((2, 3), {"widths": ((1, 2), (0, 1))}),
    )
)
register(
    Op(
        "concat",
        concat,
        {"*": _concat_part},
        kind="layout",
        integers=True,
        variadic=True,
        packed=_packed_concat,
        sample=_join_sample,
    )
)
register(
    Op(
        "stack",
        stack,
        {"*": _stack_part},
        kind="layout",
        integers=True,
        variadic=True,
        packed=_packed_stack,
        sample=_join_sample,
    )
)
