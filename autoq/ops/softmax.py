"""Softmax, its logarithm and the log-sum-exp, all relative to the largest value so that nothing overflows."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.devices import beside, is_array
from autoq.errors import ShapeError
from autoq.ops.axes import Axis, Shape, along, over_axes, restore
from autoq.ops.samples import moved, reduced
from autoq.tape.op import Op, register

# Rows of nothing but -inf are measured from the lowest finite number: their exponentials are 0, not NaN.
LOWEST = {np.dtype(t): float(np.finfo(t).min) for t in (np.float32, np.float64)}
_SHORT = 32  # NumPy reduces the columns of a transposed copy faster than rows as short as this


def softmax(x: Any, *, axis: int = -1, mask: Any = None) -> Any:
    """exp(x) divided by its sum along an axis; a row without any weight (all masked, or all -inf) is all 0.

    Args:
        x: Any shape of at least one axis.
        axis: The axis along which the result sums to 1.
        mask: Bool, broadcasts to `x`; False leaves a value out. None keeps all.

    Raises:
        ShapeError: An axis that `x` does not have, or a mask that doesn't broadcast to it.

    Example:
        >>> import autoq as aq
        >>> aq.softmax([0.0, 0.0, 5.0], mask=[True, True, False])
        tensor([0.5 0.5 0. ], float32)
    """
    weights, total = _weights(_masked(x, mask), axis, "softmax")
    weights /= np.maximum(total, 1.0)  # the largest value alone adds 1, so only empty rows are below
    return weights


def _weights(x: Any, axis: Axis, name: str) -> tuple[Any, Any]:
    """exp(x - peak), and its sums along the axis."""
    weights = x - peak(x, axis, name)
    weights = np.exp(weights, out=weights) if weights.ndim else np.exp(weights)
    return weights, along(np.add.reduce, weights, axis=axis, keepdims=True)


def peak(x: Any, axis: Axis, name: str) -> Any:
    """The largest value along the axis, kept finite from below; the lowest number for an empty axis.

    Args:
        x: float32 or float64, any shape.
        axis: The axes to reduce, which stay as 1s.
        name: The op to name in an error.

    Example:
        >>> peak(np.array([[1.0, 3.0], [-np.inf, 2.0]]), -1, "softmax")
        array([[3.],
               [2.]])
    """
    lowest = LOWEST[x.dtype]
    if x.ndim == 2 and axis in (1, -1) and x.shape[1] <= _SHORT and x.__class__ is np.ndarray:
        return along(np.maximum.reduce, np.ascontiguousarray(x.T), axis=0, initial=lowest)[:, None]

    def largest(x: Any, **axes: Any) -> Any:
        return along(np.maximum.reduce, x, initial=lowest, **axes)

    return over_axes(name, largest, x, axis, True)


def _masked(x: Any, mask: Any) -> Any:
    if mask is None:
        return x
    mask = beside(mask if is_array(mask) else np.asarray(mask), x)
    try:
        return np.where(np.broadcast_to(mask, x.shape), x, -np.inf)
    except ValueError:
        raise ShapeError(
            f"softmax: mask is {mask.shape}, x is {x.shape}.",
            "a mask that broadcasts to x.",
            "Insert axes of length 1 into the mask.",
        ) from None


def _softmax_x(F: Any, g: Any, x: Any, axis: int, mask: Any) -> Any:
    y = F.softmax(x, axis=axis, mask=mask)
    weighted = g * y
    return weighted - y * F.sum(weighted, axis=axis, keepdims=True)


def log_softmax(x: Any, *, axis: int = -1) -> Any:
    """The logarithm of the softmax along an axis.

    Args:
        x: Any shape of at least one axis.
        axis: The axis along which the exponentials of the result sum to 1.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.log_softmax([0.0, 0.0])
        tensor([-0.6931... -0.6931...], float32)
    """
    shifted = x - peak(x, axis, "log_softmax")
    total = along(np.add.reduce, np.exp(shifted), axis=axis, keepdims=True)
    shifted -= np.log(np.maximum(total, 1.0))
    return shifted


def _log_softmax_x(F: Any, g: Any, x: Any, axis: int) -> Any:
    return g - F.softmax(x, axis=axis, mask=None) * F.sum(g, axis=axis, keepdims=True)


def logsumexp(x: Any, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The logarithm of the sum of exponentials over axes; -inf for no values.

    Args:
        x: Any shape.
        axis: An axis or a tuple of them; None is all of them.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.logsumexp([1000.0, 1000.0])
        tensor(1000.6932, float32)
    """
    largest = np.minimum(peak(x, axis, "logsumexp"), -LOWEST[x.dtype])  # inf - inf would be NaN
    value = np.log(along(np.add.reduce, np.exp(x - largest), axis=axis, keepdims=True)) + largest
    return value if keepdims else np.squeeze(value, axis)


def _logsumexp_x(F: Any, g: Any, x: Any, x_shape: Shape, axis: Axis, keepdims: bool) -> Any:
    return restore(F, g, x_shape, axis, keepdims) * F.softmax(x, axis=axis, mask=None)


def _softmax_sample(rng: np.random.Generator) -> list[Any]:
    mask = np.array([True, False, True, True])
    statics: tuple[dict[str, Any], ...] = (
        {}, {"axis": 0}, {"axis": -1, "mask": mask}, {"axis": 1, "mask": np.tri(3, 4, dtype=bool)}
    )  # fmt: skip
    return moved((3, 4), *statics)(rng) + moved((2, 3, 4), {"axis": 1})(rng)


register(Op("softmax", softmax, {"x": _softmax_x}, accumulates=True, sample=_softmax_sample))
register(
    Op(
        "log_softmax",
        log_softmax,
        {"x": _log_softmax_x},
        accumulates=True,
        sample=moved((3, 4), {}, {"axis": 0}),
    )
)
register(
    Op(
        "logsumexp",
        logsumexp,
        {"x": _logsumexp_x},
        reduction=True,
        accumulates=True,
        sample=reduced(-2, 2),
    )
)
