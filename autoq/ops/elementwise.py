"""Element-wise arithmetic: forward and gradient rule of each op, side by side."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.devices import beside, is_array, on_gpu, to_host
from autoq.errors import ArgumentError, DTypeError
from autoq.ops import special
from autoq.ops.axes import number
from autoq.ops.maps import binary_op, flat, unary_op
from autoq.ops.samples import apart, binary, distinct, signed, unary
from autoq.tape.op import Op, register

_FLOAT = np.dtype(float)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def pow_(a: Any, b: Any) -> Any:
    """a to the power b, element by element.

    The gradient with respect to `b` is 0 where `a` is 0, and NaN where `a` is negative.

    Args:
        a: Any shape.
        b: Any shape that broadcasts with `a`.

    Raises:
        ArgumentError: Integers to a negative power.

    Example:
        >>> import autoq as aq
        >>> aq.pow([1.0, 2.0, 3.0], 2)
        tensor([1. 4. 9.], float32)
    """
    if on_gpu(a) or on_gpu(b):
        _check_powers(a, b)  # CuPy raises nothing
    try:
        return a**b
    except ValueError:
        _check_powers(a, b)
        raise


def _check_powers(a: Any, b: Any) -> None:
    whole = all(isinstance(x, int) or getattr(x, "dtype", _FLOAT).kind in "biu" for x in (a, b))
    if whole and bool(to_host(np.any(b < 0))):
        raise ArgumentError(
            "pow: integers to negative powers.", "exponents from 0 on.", "Cast the base to a float dtype."
        ) from None


def _pow_a(F: Any, g: Any, a: Any, b: Any) -> Any:
    """b * a**(b - 1), and 0 where b is 0 even if a is 0 too."""
    if _is_number(b):
        return g * (b * a ** (b - 1)) if b != 0 else g * 0.0
    # Only there: elsewhere the exponent b - 1 has a gradient of its own.
    both = F.logical_and(F.equal(a, 0.0), F.equal(b, 0.0))
    return g * b * a ** (F.where(both, 1.0, b) - 1.0)


def _pow_b(F: Any, g: Any, a: Any, b: Any) -> Any:
    """a**b * log(a), and 0 where a is 0."""
    if _is_number(a):
        return g * a**b * (0.0 if a == 0 else math.log(a) if a > 0 else math.nan)
    return g * a**b * F.log(F.where(F.equal(a, 0.0), 1.0, a))


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x), element by element.

    Args:
        x: Any shape.

    Example:
        >>> import autoq as aq
        >>> aq.rsqrt([4.0, 0.25])
        tensor([0.5 2. ], float32)
    """
    return 1.0 / np.sqrt(x)


def clip(x: Any, *, min: float | None = None, max: float | None = None) -> Any:
    """`x` with values below `min` or above `max` replaced by the bound; the gradient passes at the bounds.

    Args:
        x: Any shape.
        min: The lower bound, a number, or None for no bound.
        max: The upper bound, likewise.

    Example:
        >>> import autoq as aq
        >>> aq.clip([-2.0, 0.5, 2.0], min=-1, max=1)
        tensor([-1.   0.5  1. ], float32)
    """
    if min is None and max is None:
        return x.copy()  # not x itself, which may be changed in place
    if min is not None:
        x = np.maximum(x, _bound(x, "min", min))
    return x if max is None else np.minimum(x, _bound(x, "max", max))


def _bound(x: Any, name: str, value: Any) -> float | int:
    """A bound of clip: for integers a whole number inside their range."""
    bound = number("clip", name, value)
    if x.dtype.kind not in "biu":
        return bound
    if x.dtype.kind == "b" or not (bound.is_integer() or math.isinf(bound)):
        raise ArgumentError(
            f"clip: {name}={value!r} of {x.dtype.name} values.",
            "integers with whole bounds, floats",
            "Cast the values with .astype(aq.float32) first.",
        )
    limits = np.iinfo(x.dtype)
    whole = value if isinstance(value, int) else int(max(-(2.0**64), min(2.0**64, bound)))
    return max(limits.min, min(limits.max, whole))


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

    Raises:
        DTypeError: A condition of numbers, which would vote on the dtype of the result.

    Example:
        >>> import autoq as aq
        >>> aq.where([True, False], [1.0, 2.0], 0.0)
        tensor([1. 0.], float32)
    """
    held = condition if is_array(condition) else np.asarray(condition)
    if held.dtype != np.bool_:
        raise DTypeError(
            f"where: the condition holds {held.dtype} values.",
            "bools",
            "Compare first: aq.where(x != 0, a, b).",
        )
    return np.where(beside(held, next((x for x in (a, b) if on_gpu(x)), held)), a, b)  # CuPy takes no number


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


def _tanh_x(F: Any, g: Any, x: Any) -> Any:
    return g * (1.0 - F.square(F.tanh(x)))


binary_op(
    "add",
    np.add,
    (lambda F, g: g, lambda F, g: g),
    binary((-2, 2), (-2, 2)),
    "a + b.",
    "aq.add([1.0, 2.0], [3.0, 4.0])",
    "tensor([4. 6.], float32)",
    integers=True,
)
binary_op(
    "sub",
    np.subtract,
    (lambda F, g: g, lambda F, g: -g),
    binary((-2, 2), (-2, 2)),
    "a - b.",
    "aq.sub([1.0, 2.0], 1.0)",
    "tensor([0. 1.], float32)",
    integers=True,
)
binary_op(
    "mul",
    np.multiply,
    (lambda F, g, b: g * b, lambda F, g, a: g * a),
    binary((-2, 2), (-2, 2)),
    "a * b.",
    "aq.mul([1.0, 2.0], [3.0, 4.0])",
    "tensor([3. 8.], float32)",
    integers=True,
)
binary_op(
    "div",
    np.divide,
    (lambda F, g, b: g / b, lambda F, g, a, b: -(g / b) * (a / b)),
    binary((-2, 2), (0.5, 2)),
    "a / b.",
    "aq.div([1.0, 2.0], 4.0)",
    "tensor([0.25 0.5 ], float32)",
)
binary_op(
    "maximum",
    np.maximum,
    (_larger, lambda F, g, a, b: _larger(F, g, b, a)),
    apart,
    "The larger of a and b; equal values share the gradient.",
    "aq.maximum([1.0, 2.0], 1.5)",
    "tensor([1.5 2. ], float32)",
    integers=True,
)
binary_op(
    "minimum",
    np.minimum,
    (_smaller, lambda F, g, a, b: _smaller(F, g, b, a)),
    apart,
    "The smaller of a and b; equal values share the gradient.",
    "aq.minimum([1.0, 2.0], 1.5)",
    "tensor([1. 1.5], float32)",
    integers=True,
)
unary_op(
    "neg",
    np.negative,
    lambda F, g: -g,
    unary(-2, 2),
    "-x.",
    "aq.neg([1.0, -2.0])",
    "tensor([-1. 2.], float32)",
    integers=True,
)
unary_op(
    "square",
    np.square,
    lambda F, g, x: g * (2.0 * x),
    unary(-2, 2),
    "x * x.",
    "aq.square([1.0, -3.0])",
    "tensor([1. 9.], float32)",
    integers=True,
)
unary_op(
    "abs",
    np.absolute,
    lambda F, g, x: g * F.sign(x),
    signed(0.2, 2),
    "The magnitude of x; its gradient at 0 is 0.",
    "aq.abs([1.0, -3.0])",
    "tensor([1. 3.], float32)",
    integers=True,
)
unary_op(
    "sign",
    np.sign,
    flat,
    signed(0.2, 2),
    "-1, 0 or 1 by the sign of x; its gradient is 0.",
    "aq.sign([0.0, -3.0])",
    "tensor([ 0. -1.], float32)",
    integers=True,
)
unary_op(
    "exp",
    np.exp,
    lambda F, g, x: g * F.exp(x),
    unary(-2, 2),
    "e to the power x.",
    "aq.exp([0.0, 1.0])",
    "tensor([1. 2.7182...], float32)",
)
unary_op(
    "expm1",
    np.expm1,
    lambda F, g, x: g * F.exp(x),
    unary(-2, 2),
    "exp(x) - 1, without loss near 0.",
    "aq.expm1([0.0, 1.0])",
    "tensor([0. 1.7182...], float32)",
)
unary_op(
    "log",
    np.log,
    lambda F, g, x: g / x,
    unary(0.2, 3),
    "The natural logarithm of x.",
    "aq.log([1.0, 4.0])",
    "tensor([0. 1.3862...], float32)",
)
unary_op(
    "log1p",
    np.log1p,
    lambda F, g, x: g / (1.0 + x),
    unary(-0.7, 3),
    "log(1 + x), without loss near 0.",
    "aq.log1p([0.0, 1.0])",
    "tensor([0. 0.6931...], float32)",
)
unary_op(
    "sqrt",
    np.sqrt,
    lambda F, g, x: g * 0.5 / F.sqrt(x),
    unary(0.2, 3),
    "The square root of x.",
    "aq.sqrt([4.0, 9.0])",
    "tensor([2. 3.], float32)",
)
unary_op(
    "sin",
    np.sin,
    lambda F, g, x: g * F.cos(x),
    unary(-3, 3),
    "The sine of x, in radians.",
    "aq.sin([0.0, 1.0])",
    "tensor([0. 0.8414...], float32)",
)
unary_op(
    "cos",
    np.cos,
    lambda F, g, x: g * -F.sin(x),
    unary(-3, 3),
    "The cosine of x, in radians.",
    "aq.cos([0.0, 1.0])",
    "tensor([1. 0.5403...], float32)",
)
unary_op(
    "tanh",
    np.tanh,
    _tanh_x,
    unary(-2, 2),
    "The hyperbolic tangent of x.",
    "aq.tanh([0.0, 1.0])",
    "tensor([0. 0.7615...], float32)",
)
register(
    Op(
        "pow",
        pow_,
        {"a": _pow_a, "b": _pow_b},
        elementwise=True,
        integers=True,
        sample=binary((0.5, 2), (-2, 2)),
    )
)
register(
    Op(
        "where",
        where,
        {
            "a": lambda F, g, condition: F.where(condition, g, 0.0),
            "b": lambda F, g, condition: F.where(condition, 0.0, g),
        },
        elementwise=True,
        integers=True,
        sample=_where_sample,
    )
)
register(Op("clip", clip, {"x": _clip_x}, elementwise=True, integers=True, sample=_clip_sample))
register(
    Op(
        "rsqrt",
        rsqrt,
        {"x": lambda F, g, x: g * -0.5 * F.rsqrt(x) / x},
        elementwise=True,
        sample=unary(0.2, 3),
    )
)
register(
    Op(
        "erf",
        special.erf,
        {"x": lambda F, g, x: g * F.exp(-F.square(x)) * (2.0 / math.sqrt(math.pi))},
        elementwise=True,
        sample=unary(-3, 3),
    )
)
