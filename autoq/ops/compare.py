"""Comparisons and truth values: decoded operands in, bool out, no gradient (S16)."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.ops.axes import Axis, over_axes
from autoq.ops.docs import documented
from autoq.ops.samples import apart, signed
from autoq.storage.inputs import converted
from autoq.tape.op import Op, register
from autoq.types import bool_

_REASON = "its result is a truth value"


def any_(x: Any, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether any value along the axes is true (not zero).

    Args:
        x: Any shape.
        axis: The axes to reduce; None is all of them.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.any([[0.0, 1.0], [0.0, 0.0]], axis=1)
        tensor([ True False], bool)
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

    Example:
        >>> import autoq as aq
        >>> aq.all([[1.0, 1.0], [0.0, 1.0]], axis=1)
        tensor([ True False], bool)
    """
    return over_axes("all", np.logical_and.reduce, x, axis, keepdims)


def count_nonzero(x: Any, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """How many values along the axes are not zero.

    Args:
        x: Any shape.
        axis: The axes to reduce; None is all of them.
        keepdims: Keep reduced axes as 1s.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.count_nonzero([[1.0, 0.0], [2.0, 3.0]], axis=1)
        tensor([1 2], int64)
    """
    return over_axes("count_nonzero", np.add.reduce, converted(x, bool_).astype(np.int64), axis, keepdims)


_COMPARISONS: tuple[tuple[str, np.ufunc, str, str, str], ...] = (
    ("greater", np.greater, "a > b.", "aq.greater([1.0, 2.0], 1.0)", "tensor([False True], bool)"),
    (
        "greater_equal",
        np.greater_equal,
        "a >= b.",
        "aq.greater_equal([1.0, 2.0], 1.0)",
        "tensor([ True True], bool)",
    ),
    ("less", np.less, "a < b.", "aq.less([1.0, 2.0], 2.0)", "tensor([ True False], bool)"),
    (
        "less_equal",
        np.less_equal,
        "a <= b.",
        "aq.less_equal([1.0, 2.0], 1.0)",
        "tensor([ True False], bool)",
    ),
    ("equal", np.equal, "a == b.", "aq.equal([1.0, 2.0], 1.0)", "tensor([ True False], bool)"),
    ("not_equal", np.not_equal, "a != b.", "aq.not_equal([1.0, 2.0], 1.0)", "tensor([False True], bool)"),
    (
        "logical_and",
        np.logical_and,
        "Whether a and b are both true (not zero).",
        "aq.logical_and([True, True], [True, False])",
        "tensor([ True False], bool)",
    ),
    (
        "logical_or",
        np.logical_or,
        "Whether a or b is true (not zero).",
        "aq.logical_or([False, True], [False, False])",
        "tensor([False True], bool)",
    ),
    (
        "logical_xor",
        np.logical_xor,
        "Whether one of a and b is true (not zero) and the other isn't.",
        "aq.logical_xor([False, True], [True, True])",
        "tensor([ True False], bool)",
    ),
)
_PREDICATES: tuple[tuple[str, np.ufunc, str, str, str], ...] = (
    ("isnan", np.isnan, "Whether x is NaN.", "aq.isnan([1.0, float('nan')])", "tensor([False True], bool)"),
    (
        "isinf",
        np.isinf,
        "Whether x is infinite.",
        "aq.isinf([1.0, float('inf')])",
        "tensor([False True], bool)",
    ),
    (
        "isfinite",
        np.isfinite,
        "Whether x is neither NaN nor infinite.",
        "aq.isfinite([1.0, float('inf')])",
        "tensor([ True False], bool)",
    ),
    (
        "signbit",
        np.signbit,
        "Whether x has the minus sign, as negative numbers and -0.0 do.",
        "aq.signbit([1.0, -0.0])",
        "tensor([False True], bool)",
    ),
    (
        "logical_not",
        np.logical_not,
        "Whether x is false (zero).",
        "aq.logical_not([True, False])",
        "tensor([False True], bool)",
    ),
)

for _name, _ufunc, *_doc in _COMPARISONS:
    register(
        Op(
            _name,
            _ufunc,
            _REASON,
            kind="index",
            elementwise=True,
            operands=("a", "b"),
            sample=apart,
            doc=documented(("a", "b"), *_doc),
        )
    )
for _name, _ufunc, *_doc in _PREDICATES:
    register(
        Op(
            _name,
            _ufunc,
            _REASON,
            kind="index",
            elementwise=True,
            operands=("x",),
            sample=signed(0.2, 2),
            doc=documented(("x",), *_doc),
        )
    )
register(Op("any", any_, _REASON, kind="index", reduction=True, sample=signed(0.2, 2)))
register(Op("all", all_, _REASON, kind="index", reduction=True, sample=signed(0.2, 2)))
register(
    Op(
        "count_nonzero",
        count_nonzero,
        "its result is a number of values",
        kind="index",
        reduction=True,
        sample=signed(0.2, 2),
    )
)
