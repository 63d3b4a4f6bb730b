"""Element-wise arithmetic: forward and gradient rule of each op, side by side."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.ops import special
from autoq.ops.samples import apart, binary, distinct, signed, unary
from autoq.tape.op import Op, register

_AB = ("a", "b")
_X = ("x",)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def pow_(a: Any, b: Any) -> Any:
    """a to the power b, element by element.

    The gradient with respect to `b` is 0 where `a` is 0, and NaN where `a` is negative.

    Args:
        a: Any shape.
        b: Any shape that broadcasts with `a`.
    """
    return a**b


def _pow_a(F: Any, g: Any, a: Any, b: Any) -> Any:
    """b * a**(b - 1), and 0 where b is 0 even if a is 0 too."""
    if _is_number(b):
        return g * (b * a ** (b - 1)) if b != 0 else g * 0.0
    return g * b * a ** (F.where(F.equal(b, 0.0), 1.0, b) - 1.0)


def _pow_b(F: Any, g: Any, a: Any, b: Any) -> Any:
    """a**b * log(a), and 0 where a is 0."""
    if _is_number(a):
        return g * a**b * (0.0 if a == 0 else math.log(a) if a > 0 else math.nan)
    return g * a**b * F.log(F.where(F.equal(a, 0.0), 1.0, a))


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x), element by element.

    Args:
        x: Any shape.
    """
    return 1.0 / np.sqrt(x)


def clip(x: Any, *, min: float | None = None, max: float | None = None) -> Any:
    """`x` with values below `min` or above `max` replaced by the bound; the gradient passes at the bounds.

    Args:
        x: Any shape.
        min: The lower bound, a number, or None for no bound.
        max: The upper bound, likewise.
    """
    if min is not None:
        x = np.maximum(x, float(min))
    return x if max is None else np.minimum(x, float(max))


def _clip_x(F: Any, g: Any, x: Any, min: float | None, max: float | None) -> Any:
    if min is not None:
        g = g * F.greater_equal(x, float(min))
    return g if max is None else g * F.less_equal(x, float(max))


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where `condition` holds, else `b`.

    Args:
        condition: Bool, any shape.
        a: Any shape that broadcasts with the others.
        b: Any shape that broadcasts with the others.
    """
    return np.where(condition, a, b)


def _where_sample(rng: np.random.Generator) -> list[Any]:
    shapes = (((3, 4), (3, 4), (3, 4)), ((3, 1), (4,), (3, 4)), ((), (2,), (2, 2)), ((2, 3), (), ()))
    return [
        ((rng.uniform(size=condition) < 0.5, rng.standard_normal(a), rng.standard_normal(b)), {})
        for condition, a, b in shapes
    ]


def _clip_sample(rng: np.random.Generator) -> list[Any]:
    x = distinct(rng, (3, 4))
    return [((x,), {"min": -0.5, "max": 1.0}), ((x,), {"min": 0.0}), ((x,), {"max": 0.0})]


def _share(F: Any, g: Any, wins: Any, ties: Any) -> Any:
    """The winner takes the cotangent; on a tie each side gets half."""
    return g * wins + (g * 0.5) * ties


def _larger(F: Any, g: Any, a: Any, b: Any) -> Any:
    return _share(F, g, F.greater(a, b), F.equal(a, b))


def _smaller(F: Any, g: Any, a: Any, b: Any) -> Any:
    return _share(F, g, F.less(a, b), F.equal(a, b))


_BINARY = {"elementwise": True, "operands": _AB, "integers": True}
_UNARY = {"elementwise": True, "operands": _X}

register(Op(
    "add", np.add, {"a": lambda F, g: g, "b": lambda F, g: g},
    sample=binary((-2, 2), (-2, 2)), doc="a + b, element by element, with broadcasting.", **_BINARY,
))
register(Op(
    "sub", np.subtract, {"a": lambda F, g: g, "b": lambda F, g: -g},
    sample=binary((-2, 2), (-2, 2)), doc="a - b, element by element, with broadcasting.", **_BINARY,
))
register(Op(
    "mul", np.multiply, {"a": lambda F, g, b: g * b, "b": lambda F, g, a: g * a},
    sample=binary((-2, 2), (-2, 2)), doc="a * b, element by element, with broadcasting.", **_BINARY,
))
register(Op(
    "div", np.divide,
    {"a": lambda F, g, b: g / b, "b": lambda F, g, a, b: -(g / b) * (a / b)},
    elementwise=True, operands=_AB, sample=binary((-2, 2), (0.5, 2)),
    doc="a / b, element by element, with broadcasting.",
))
register(Op(
    "pow", pow_, {"a": _pow_a, "b": _pow_b}, sample=binary((0.5, 2), (-2, 2)), **_BINARY,
))
register(Op(
    "maximum", np.maximum,
    {"a": _larger, "b": lambda F, g, a, b: _larger(F, g, b, a)}, sample=apart,
    doc="The larger of a and b, element by element; equal values share the gradient.", **_BINARY,
))
register(Op(
    "minimum", np.minimum,
    {"a": _smaller, "b": lambda F, g, a, b: _smaller(F, g, b, a)}, sample=apart,
    doc="The smaller of a and b, element by element; equal values share the gradient.", **_BINARY,
))
register(Op(
    "where", where,
    {
        "a": lambda F, g, condition: F.where(condition, g, 0.0),
        "b": lambda F, g, condition: F.where(condition, 0.0, g),
    },
    elementwise=True, integers=True, sample=_where_sample,
))
register(Op("clip", clip, {"x": _clip_x}, elementwise=True, integers=True, sample=_clip_sample))
register(Op(
    "neg", np.negative, {"x": lambda F, g: -g},
    integers=True, sample=unary(-2, 2), doc="-x, element by element.", **_UNARY,
))
register(Op(
    "square", np.square, {"x": lambda F, g, x: g * (2.0 * x)},
    integers=True, sample=unary(-2, 2), doc="x * x, element by element.", **_UNARY,
))
register(Op(
    "abs", np.absolute, {"x": lambda F, g, x: g * F.sign(x)},
    integers=True, sample=signed(0.2, 2), doc="The magnitude of x; its gradient at 0 is 0.", **_UNARY,
))
register(Op(
    "sign", np.sign, {"x": lambda F, g: g * 0.0},
    integers=True, sample=signed(0.2, 2), doc="-1, 0 or 1 by the sign of x; its gradient is 0.", **_UNARY,
))
register(Op(
    "exp", np.exp, {"x": lambda F, g, x: g * F.exp(x)},
    sample=unary(-2, 2), doc="e to the power x, element by element.", **_UNARY,
))
register(Op(
    "expm1", np.expm1, {"x": lambda F, g, x: g * F.exp(x)},
    sample=unary(-2, 2), doc="exp(x) - 1, exact near x = 0, element by element.", **_UNARY,
))
register(Op(
    "log", np.log, {"x": lambda F, g, x: g / x},
    sample=unary(0.2, 3), doc="The natural logarithm of x, element by element.", **_UNARY,
))
register(Op(
    "log1p", np.log1p, {"x": lambda F, g, x: g / (1.0 + x)},
    sample=unary(-0.7, 3), doc="log(1 + x), exact near x = 0, element by element.", **_UNARY,
))
register(Op(
    "sqrt", np.sqrt, {"x": lambda F, g, x: g * 0.5 / F.sqrt(x)},
    sample=unary(0.2, 3), doc="The square root of x, element by element.", **_UNARY,
))
register(Op("rsqrt", rsqrt, {"x": lambda F, g, x: g * -0.5 * F.rsqrt(x) / x}, sample=unary(0.2, 3), **_UNARY))
register(Op(
    "sin", np.sin, {"x": lambda F, g, x: g * F.cos(x)},
    sample=unary(-3, 3), doc="The sine of x in radians, element by element.", **_UNARY,
))
register(Op(
    "cos", np.cos, {"x": lambda F, g, x: g * -F.sin(x)},
    sample=unary(-3, 3), doc="The cosine of x in radians, element by element.", **_UNARY,
))
register(Op(
    "erf", special.erf, {"x": lambda F, g, x: g * F.exp(-F.square(x)) * (2.0 / math.sqrt(math.pi))},
    sample=unary(-3, 3), **_UNARY,
))
