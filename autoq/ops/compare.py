"""Comparisons and truth values: decoded operands in, bool out, no gradient (S16)."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.ops.axes import Axis, over_axes
from autoq.ops.samples import apart, signed
from autoq.tape.op import Op, register

_REASON = "its result is a truth value"


def any_(x: Any, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether any value along the axes is true (not zero).

    Args:
        x: Any shape.
        axis: The axes to reduce; None is all of them.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have.
    """
    return over_axes("any", np.logical_or.reduce, x, axis, keepdims)


def all_(x: Any, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether every value along the axes is true (not zero).

    Args:
        x: Any shape.
        axis: The axes to reduce; None is all of them.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have.
    """
    return over_axes("all", np.logical_and.reduce, x, axis, keepdims)


_COMPARISONS = (
    ("greater", np.greater, "a > b"),
    ("greater_equal", np.greater_equal, "a >= b"),
    ("less", np.less, "a < b"),
    ("less_equal", np.less_equal, "a <= b"),
    ("equal", np.equal, "a == b"),
    ("not_equal", np.not_equal, "a != b"),
    ("logical_and", np.logical_and, "Whether a and b are both true"),
    ("logical_or", np.logical_or, "Whether a or b is true"),
)
_PREDICATES = (
    ("isnan", np.isnan, "Whether x is NaN"),
    ("isinf", np.isinf, "Whether x is infinite"),
    ("isfinite", np.isfinite, "Whether x is neither NaN nor infinite"),
    ("logical_not", np.logical_not, "Whether x is false (zero)"),
)

for _name, _ufunc, _doc in _COMPARISONS:
    register(Op(
        _name, _ufunc, _REASON, kind="index", elementwise=True, operands=("a", "b"), sample=apart,
        doc=f"{_doc}, element by element, with broadcasting.",
    ))
for _name, _ufunc, _doc in _PREDICATES:
    register(Op(
        _name, _ufunc, _REASON, kind="index", elementwise=True, operands=("x",), sample=signed(0.2, 2),
        doc=f"{_doc}, element by element.",
    ))
register(Op("any", any_, _REASON, kind="index", reduction=True, sample=signed(0.2, 2)))
register(Op("all", all_, _REASON, kind="index", reduction=True, sample=signed(0.2, 2)))
