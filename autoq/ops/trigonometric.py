"""Circular and hyperbolic functions and their inverses: forward and gradient rule of each, side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.ops.maps import binary_op, unary_op
from autoq.ops.samples import binary, unary


def _atan2_a(F: Any, g: Any, a: Any, b: Any) -> Any:
    return g * (b / (F.square(a) + F.square(b)))


def _atan2_b(F: Any, g: Any, a: Any, b: Any) -> Any:
    return -g * (a / (F.square(a) + F.square(b)))


unary_op(
    "tan",
    np.tan,
    lambda F, g, x: g * (1.0 + F.square(F.tan(x))),
    unary(-1.2, 1.2),
    "The tangent of x, in radians.",
    "aq.tan([0.0, 1.0])",
    "tensor([0. 1.5574...], float32)",
)
unary_op(
    "asin",
    np.arcsin,
    lambda F, g, x: g * F.rsqrt(1.0 - F.square(x)),
    unary(-0.8, 0.8),
    "The angle in radians, -pi/2 to pi/2, whose sine is x.",
    "aq.asin([0.0, 1.0])",
    "tensor([0. 1.5707...], float32)",
)
unary_op(
    "acos",
    np.arccos,
    lambda F, g, x: -g * F.rsqrt(1.0 - F.square(x)),
    unary(-0.8, 0.8),
    "The angle in radians, 0 to pi, whose cosine is x.",
    "aq.acos([1.0, 0.0])",
    "tensor([0. 1.5707...], float32)",
)
unary_op(
    "atan",
    np.arctan,
    lambda F, g, x: g / (1.0 + F.square(x)),
    unary(-3, 3),
    "The angle in radians, -pi/2 to pi/2, whose tangent is x.",
    "aq.atan([0.0, 1.0])",
    "tensor([0. 0.7853...], float32)",
)
binary_op(
    "atan2",
    np.arctan2,
    (_atan2_a, _atan2_b),
    binary((0.3, 2), (0.3, 2)),
    "The angle in radians, -pi to pi, of the point whose ordinate is a and whose abscissa is b.",
    "aq.atan2([1.0, -1.0], [1.0, 0.0])",
    "tensor([ 0.7853... -1.5707...], float32)",
)
unary_op(
    "sinh",
    np.sinh,
    lambda F, g, x: g * F.cosh(x),
    unary(-2, 2),
    "The hyperbolic sine of x.",
    "aq.sinh([0.0, 1.0])",
    "tensor([0. 1.1752...], float32)",
)
unary_op(
    "cosh",
    np.cosh,
    lambda F, g, x: g * F.sinh(x),
    unary(-2, 2),
    "The hyperbolic cosine of x.",
    "aq.cosh([0.0, 1.0])",
    "tensor([1. 1.5430...], float32)",
)
unary_op(
    "asinh",
    np.arcsinh,
    lambda F, g, x: g * F.rsqrt(F.square(x) + 1.0),
    unary(-3, 3),
    "The number whose hyperbolic sine is x.",
    "aq.asinh([0.0, 1.0])",
    "tensor([0. 0.8813...], float32)",
)
unary_op(
    "acosh",
    np.arccosh,
    lambda F, g, x: g * F.rsqrt(F.square(x) - 1.0),
    unary(1.2, 3),
    "The number from 0 on whose hyperbolic cosine is x.",
    "aq.acosh([1.0, 2.0])",
    "tensor([0. 1.3169...], float32)",
)
unary_op(
    "atanh",
    np.arctanh,
    lambda F, g, x: g / (1.0 - F.square(x)),
    unary(-0.8, 0.8),
    "The number whose hyperbolic tangent is x.",
    "aq.atanh([0.0, 0.5])",
    "tensor([0. 0.5493...], float32)",
)
