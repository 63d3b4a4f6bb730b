"""The form behind all convolutions, sum(y * conv(x, w)), which is linear in each of x, w and y.

`convolve` is its part along y, `convolve_input` that along x, `convolve_weight` that along w: matrix products
over the windows of x. The gradient rules of each are the other two, so they differentiate to any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from autoq.devices import array_namespace, on_gpu
from autoq.ops.axes import Shape, along
from autoq.ops.windows import Padding, Windows, added_back, padded, strided, windows
from autoq.tape.namespace import RAW_ON_DEVICE
from autoq.tape.op import Op, register

_CHUNK = 1 << 19  # values of windows that are laid out at a time: two megabytes
_CHUNK_ON_GPU = 1 << 27  # where each chunk is a few launches, and memory is plenty: half a gigabyte


def convolve(x: Any, w: Any, *, stride: Shape, padding: Padding, dilation: Shape, groups: int) -> Any:
    """Every window of `x` times every filter.

    Args:
        x: (n, c, *sizes).
        w: (m, c / groups, *kernel).
        stride, padding, dilation: The windows.
        groups: How many parts of the channels are convolved separately.

    Returns:
        (n, m, *out).
    """
    at = windows("convolve", x.shape[2:], w.shape[2:], stride, padding, dilation)
    filters = _filters(w, groups)
    out = array_namespace(x).empty((x.shape[0], *filters.shape[:2], math.prod(at.out)), x.dtype)
    for rows in _chunks(x, at):
        _multiply(filters, _columns(x[rows], at, groups), out[rows])
    return out.reshape(x.shape[0], w.shape[0], *at.out)


def convolve_input(
    y: Any, w: Any, *, sizes: Shape, stride: Shape, padding: Padding, dilation: Shape, groups: int
) -> Any:
    """Filters weighted by `y` added up where their windows lie: the transpose of `convolve` by its input.

    Args:
        y: (n, m, *out).
        w: (m, c / groups, *kernel).
        sizes: Trailing extents of the result.
        stride, padding, dilation, groups: As of `convolve`.

    Returns:
        (n, c, *sizes).
    """
    at = windows("convolve_input", sizes, w.shape[2:], stride, padding, dilation)
    filters = np.swapaxes(_filters(w, groups), 1, 2)
    n, channels = y.shape[0], w.shape[1] * groups
    y = y.reshape(n, groups, w.shape[0] // groups, math.prod(at.out))
    out = array_namespace(y).empty((n, channels, *sizes), y.dtype)
    for rows in _chunks(out, at):
        columns = _product(filters, y[rows])
        lead = (columns.shape[0], channels)
        out[rows] = added_back(columns.reshape(*lead, *at.kernel, *at.out), at, lead)
    return out


def convolve_weight(
    x: Any, y: Any, *, kernel: Shape, stride: Shape, padding: Padding, dilation: Shape, groups: int
) -> Any:
    """Windows of `x` weighted by `y`: the transpose of `convolve` by its filters.

    Args:
        x: (n, c, *sizes).
        y: (n, m, *out).
        kernel: Extents of a filter.
        stride, padding, dilation, groups: As of `convolve`.

    Returns:
        (m, c / groups, *kernel).
    """
    at = windows("convolve_weight", x.shape[2:], kernel, stride, padding, dilation)
    (n, channels), m = x.shape[:2], y.shape[1]
    y = y.reshape(n, groups, m // groups, math.prod(at.out))
    total = array_namespace(x).zeros((groups, m // groups, channels // groups * math.prod(kernel)), x.dtype)
    for rows in _chunks(x, at):
        columns = np.swapaxes(_columns(x[rows], at, groups), 2, 3)
        total += along(np.add.reduce, _product(y[rows], columns), axis=0)
    return total.reshape(m, channels // groups, *kernel)


def _product(a: Any, b: Any) -> Any:
    """``a @ b``; on a GPU by the product of the ops, in the precision of the context."""
    return RAW_ON_DEVICE.matmul(a, b) if on_gpu(a) else np.matmul(a, b)


def _multiply(a: Any, b: Any, out: Any) -> None:
    """The same into an array."""
    if on_gpu(a):
        out[...] = RAW_ON_DEVICE.matmul(a, b)
    else:
        np.matmul(a, b, out=out)


def _filters(weight: Any, groups: int) -> Any:
    """(m, c / groups, *kernel) as one matrix a group."""
    return weight.reshape(groups, weight.shape[0] // groups, math.prod(weight.shape[1:]))


def _columns(x: Any, at: Windows, groups: int) -> Any:
    """The windows of `x` as the columns of one matrix a sample and group."""
    n, channels = x.shape[:2]
    rows = channels // groups * math.prod(at.kernel)
    return strided(padded(x, at), at).reshape(n, groups, rows, math.prod(at.out))


def _chunks(x: Any, at: Windows) -> Iterator[slice]:
    """Runs of samples whose windows stay within a bound of memory."""
    each = math.prod(x.shape[1:2]) * math.prod(at.kernel) * math.prod(at.out)
    step = max(1, (_CHUNK_ON_GPU if on_gpu(x) else _CHUNK) // max(each, 1))
    return (slice(i, i + step) for i in range(0, x.shape[0], step))


_FORM = {"stride": (2,), "padding": ((1, 0),), "dilation": (2,), "groups": 2}


def _form_sample(a: Shape, b: Shape, **static: Any) -> Any:
    return lambda rng: [((rng.standard_normal(a), rng.standard_normal(b)), {**_FORM, **static})]


def _by_x(
    F: Any, g: Any, w: Any, x_shape: Shape, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    return F.convolve_input(
        g, w, sizes=x_shape[2:], stride=stride, padding=padding, dilation=dilation, groups=groups
    )


def _by_y(F: Any, g: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    return F.convolve(g, w, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _by_w(
    F: Any, x: Any, y: Any, w_shape: Shape, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    return F.convolve_weight(
        x, y, kernel=w_shape[2:], stride=stride, padding=padding, dilation=dilation, groups=groups
    )


register(
    Op(
        "convolve",
        convolve,
        {
            "x": _by_x,
            "w": lambda F, g, x, w_shape, stride, padding, dilation, groups: _by_w(
                F, x, g, w_shape, stride, padding, dilation, groups
            ),
        },
        accumulates=True,
        sample=_form_sample((2, 4, 6), (4, 2, 2)),
    )
)
register(
    Op(
        "convolve_input",
        convolve_input,
        {
            "y": _by_y,
            "w": lambda F, g, y, w_shape, stride, padding, dilation, groups: _by_w(
                F, g, y, w_shape, stride, padding, dilation, groups
            ),
        },
        accumulates=True,
        sample=_form_sample((2, 4, 3), (4, 2, 2), sizes=(6,)),
    )
)
register(
    Op(
        "convolve_weight",
        convolve_weight,
        {
            "x": lambda F, g, y, x_shape, stride, padding, dilation, groups: _by_x(
                F, y, g, x_shape, stride, padding, dilation, groups
            ),
            "y": lambda F, g, x, stride, padding, dilation, groups: _by_y(
                F, x, g, stride, padding, dilation, groups
            ),
        },
        accumulates=True,
        sample=_form_sample((2, 4, 6), (2, 4, 3), kernel=(2,)),
    )
)
