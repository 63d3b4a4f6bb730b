"""Rounding, and what division leaves over: forward and gradient rule of each op, side by side.

What is constant between jumps has a gradient of 0, as in PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ArgumentError
from autoq.ops.maps import binary_op, flat, unary_op
from autoq.ops.samples import Case, binary, signed, unary
from autoq.tape.op import Op, register


def round_(x: Any, *, decimals: int = 0) -> Any:
    """The nearest integer, or the nearest number of so many decimals; ties go to the even one.

    Its gradient is 0.

    Args:
        x: Any shape.
        decimals: How many decimals are kept; negative ones round to tens, hundreds and so on.

    Raises:
        ArgumentError: `decimals` is no integer.

    Example:
        >>> import autoq as aq
        >>> aq.round([0.5, 1.5, -2.7])
        tensor([ 0. 2. -3.], float32)
    """
    if not isinstance(decimals, int | np.integer):
        raise ArgumentError(
            f"round: decimals={decimals!r}.", "an integer.", "Pass how many decimals to keep."
        )
    return np.round(x, decimals)


def divided(a: Any, b: Any) -> tuple[Any, Any]:
    """The floor of the quotient of float arrays and the remainder, with NumPy's results at the edges.

    For arrays of libraries whose own functions give others there.

    Example:
        >>> divided(np.array([-1.0]), np.array([np.inf]))
        (array([-1.]), array([inf]))
    """
    rest, quotient = np.fmod(a, b), a / b
    turned = (rest != 0) & ((b < 0) != (rest < 0))  # the remainder has the sign of b
    exact = (a - rest) / b - turned
    whole = np.floor(exact)
    whole = whole + (exact - whole > 0.5)
    whole = np.where(exact != 0, whole, np.copysign(0.0, quotient))
    rest = np.where(rest != 0, np.where(turned, rest + b, rest), np.copysign(0.0, b))
    return np.where(b == 0, quotient, whole), rest


def _round_sample(rng: np.random.Generator) -> list[Case]:
    return [*unary(-3, 3)(rng), *unary(-3, 3, decimals=1)(rng)]


def _remainder_sample(rng: np.random.Generator) -> list[Case]:
    """Quotients that stay away from integers, where the remainder jumps."""
    b = rng.uniform(0.5, 2, (3, 4)) * rng.choice([-1.0, 1.0], (3, 4))
    quotient = rng.integers(-3, 3, (3, 4)) + rng.uniform(0.2, 0.8, (3, 4))
    divisor = np.array([2.0, -1.5, 0.75, 1.25])
    scalars = np.array(2.25), np.array(1.0)
    return [((b * quotient, b), {}), ((divisor * quotient, divisor), {}), (scalars, {})]


unary_op(
    "floor",
    np.floor,
    flat,
    signed(0.2, 0.8),
    "The largest integer that is not above x; its gradient is 0.",
    "aq.floor([1.7, -1.7])",
    "tensor([ 1. -2.], float32)",
    integers=True,
)
unary_op(
    "ceil",
    np.ceil,
    flat,
    signed(0.2, 0.8),
    "The smallest integer that is not below x; its gradient is 0.",
    "aq.ceil([1.2, -1.7])",
    "tensor([ 2. -1.], float32)",
    integers=True,
)
unary_op(
    "trunc",
    np.trunc,
    flat,
    signed(0.2, 0.8),
    "x without its fraction, toward 0; its gradient is 0.",
    "aq.trunc([1.7, -1.7])",
    "tensor([ 1. -1.], float32)",
    integers=True,
)
binary_op(
    "fmod",
    np.fmod,
    (lambda F, g: g, lambda F, g, a, b: -g * F.trunc(a / b)),
    _remainder_sample,
    "What is left of a after as many whole b as fit, with the sign of a, as in C.",
    "aq.fmod([5.0, -5.0], 3.0)",
    "tensor([ 2. -2.], float32)",
    integers=True,
)
binary_op(
    "remainder",
    np.remainder,
    (lambda F, g: g, lambda F, g, a, b: -g * F.floor(a / b)),
    _remainder_sample,
    "What is left of a after as many whole b as fit, with the sign of b, as Python's %.",
    "aq.remainder([5.0, -5.0], 3.0)",
    "tensor([2. 1.], float32)",
    integers=True,
)
binary_op(
    "floor_divide",
    np.floor_divide,
    (flat, flat),
    binary((-2, 2), (0.5, 2)),
    "The largest integer that is not above a / b, as Python's //; its gradient is 0.",
    "aq.floor_divide([5.0, -5.0], 3.0)",
    "tensor([ 1. -2.], float32)",
    integers=True,
)
register(Op("round", round_, {"x": flat}, elementwise=True, integers=True, sample=_round_sample))
