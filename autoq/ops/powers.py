"""Powers, roots and logarithms in other bases: forward and gradient rule of each, side by side."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.ops.maps import binary_op, flat, unary_op
from autoq.ops.samples import Case, apart, binary, signed, unary

_LN2, _LN10 = math.log(2.0), math.log(10.0)


def _logaddexp_a(F: Any, g: Any, a: Any, b: Any) -> Any:
    """The sigmoid of a - b; half where both are equal, even infinite."""
    return g * F.sigmoid(F.where(F.equal(a, b), 0.0, a - b))


def _hypot_a(F: Any, g: Any, a: Any, b: Any) -> Any:
    """a / hypot(a, b), and 0 at the origin."""
    length = F.hypot(a, b)
    return g * (a / F.where(F.equal(length, 0.0), 1.0, length))


def _copysign_a(F: Any, g: Any, a: Any, b: Any) -> Any:
    return g * F.sign(a) * F.copysign(1.0, b)


def _copysign_sample(rng: np.random.Generator) -> list[Case]:
    ((a,), _), ((b,), _) = signed(0.2, 2)(rng)[0], signed(0.2, 2)(rng)[0]
    return [((a, b), {}), ((a, b[0]), {}), ((a[:1, :1], b), {})]


unary_op(
    "log2",
    np.log2,
    lambda F, g, x: g / (x * _LN2),
    unary(0.2, 3),
    "The logarithm of x to base 2.",
    "aq.log2([1.0, 8.0])",
    "tensor([0. 3.], float32)",
)
unary_op(
    "log10",
    np.log10,
    lambda F, g, x: g / (x * _LN10),
    unary(0.2, 3),
    "The logarithm of x to base 10.",
    "aq.log10([1.0, 10.0])",
    "tensor([0. 1.], float32)",
)
unary_op(
    "exp2",
    np.exp2,
    lambda F, g, x: g * (F.exp2(x) * _LN2),
    unary(-2, 2),
    "2 to the power x.",
    "aq.exp2([0.0, 3.0])",
    "tensor([1. 8.], float32)",
)
binary_op(
    "logaddexp",
    np.logaddexp,
    (_logaddexp_a, lambda F, g, a, b: _logaddexp_a(F, g, b, a)),
    apart,
    "log(exp(a) + exp(b)), without overflow.",
    "aq.logaddexp(1000.0, 1000.0)",
    "tensor(1000.6932, float32)",
)
unary_op(
    "reciprocal",
    lambda x: 1.0 / x,
    lambda F, g, x: -g / F.square(x),
    signed(0.3, 2),
    "1 / x.",
    "aq.reciprocal([2.0, -4.0])",
    "tensor([ 0.5  -0.25], float32)",
)
unary_op(
    "cbrt",
    np.cbrt,
    lambda F, g, x: g / (3.0 * F.square(F.cbrt(x))),
    signed(0.3, 2),
    "The cube root of x, negative for negative x.",
    "aq.cbrt([8.0, -1.0])",
    "tensor([ 2. -1.], float32)",
)
binary_op(
    "hypot",
    np.hypot,
    (_hypot_a, lambda F, g, a, b: _hypot_a(F, g, b, a)),
    binary((0.3, 2), (0.3, 2)),
    "sqrt(a * a + b * b), without overflow; its gradient at the origin is 0.",
    "aq.hypot([3.0, 0.0], 4.0)",
    "tensor([5. 4.], float32)",
)
binary_op(
    "copysign",
    np.copysign,
    (_copysign_a, flat),
    _copysign_sample,
    "The magnitude of a with the sign of b.",
    "aq.copysign([1.0, -2.0], [-1.0, -0.0])",
    "tensor([-1. -2.], float32)",
)
binary_op(
    "nextafter",
    np.nextafter,
    (lambda F, g: g, flat),
    apart,
    "The next number after a toward b in float32, or in float64 where one is; narrower dtypes round it away.",
    "aq.nextafter(1.0, 2.0)",
    "tensor(1.0000001, float32)",
)
