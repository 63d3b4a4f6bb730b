"""What expressions are made of: operations on float32 and truth values, with NumPy's results at the edges.

An operation is a Python expression over its arguments, or a function. Arithmetic rounds once, as on the CPU;
what has no exact result in general (exp, sin) is the compiler's own function, a few units in the last place
from the CPU's. Everything here runs in the interpreter too, for the simulator and for tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..bind import scalar
from ..scalar.bits import INFINITY, MAGNITUDE, SIGN, ZERO, F, U, bits, real
from .compile import instruction

Function = Callable[..., Any]
NOTHING, UNIT, HALF, MINUS, TWO = F(0.0), F(1.0), F(0.5), F(-1.0), F(2.0)
LN2 = F(math.log(2.0))
ONE_BIT = U(1)
UNDEFINED = F(np.nan)


class Operation(NamedTuple):
    """An operation of expressions.

    Attributes:
        text: Python of it over ``{0}``, ``{1}``, …; None where ``function`` is called.
        function: Called with the arguments.
        takes: The kind of each argument: ``"f"`` a float32, ``"b"`` a truth value.
        gives: The kind of the result.
    """

    text: str | None
    function: Function | None
    takes: str
    gives: str


def device_function(symbol: str) -> Callable[[Function], Function]:
    """Mark a function of float32 numbers as one of the compiler's library, its plain form being the twin."""

    def typing(types: Any, *given: Any) -> Any:
        return types.float32

    def lowering(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        from llvmlite import ir
        from numba.cuda import types
        from numba.cuda.cgutils import get_or_insert_function

        cast = [
            context.cast(builder, value, given, types.float32)
            for value, given in zip(values, signature.args, strict=True)
        ]
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()] * len(cast))
        return builder.call(get_or_insert_function(builder.module, kind, symbol), cast)

    return instruction(typing, lowering)


def _library(symbol: str, ufunc: Function) -> Function:
    """A function of one number."""

    @device_function(symbol)
    def function(x):
        return F(ufunc(F(x)))

    return function


def _library2(symbol: str, ufunc: Function) -> Function:
    """A function of two numbers."""

    @device_function(symbol)
    def function(a, b):
        return F(ufunc(F(a), F(b)))

    return function


def _erf(x: Any) -> float:
    return math.erf(float(x))


def _pow(a: Any, b: Any) -> Any:
    """C's pow: NumPy takes a short cut where there is one exponent."""
    return np.power(np.array([a, a]), np.array([b, b]))[0]


exp = _library("__nv_expf", np.exp)
expm1 = _library("__nv_expm1f", np.expm1)
log1p = _library("__nv_log1pf", np.log1p)
sqrt = _library("__nv_sqrtf", np.sqrt)
floor = _library("__nv_floorf", np.floor)
rint = _library("__nv_rintf", np.rint)
powf = _library2("__nv_powf", _pow)
fmod = _library2("__nv_fmodf", np.fmod)


@scalar
def maximum(a, b):
    """The larger; NaN if one is, the second of two zeros."""
    return a if a > b or a != a else b


@scalar
def minimum(a, b):
    """The smaller, likewise."""
    return a if a < b or a != a else b


@scalar
def clip(x, low, high):
    """Limited from below, then from above; NaN stays."""
    return minimum(high, maximum(low, x))


@scalar
def magnitude(x):
    """Without the sign."""
    return real(U(bits(x) & MAGNITUDE))


@scalar
def negative(x):
    """With the other sign, that of NaN and 0 too."""
    return real(U(bits(x) ^ SIGN))


@scalar
def sign(x):
    """-1, 0 or 1; NaN stays."""
    if x > NOTHING:
        return UNIT
    if x < NOTHING:
        return MINUS
    return NOTHING if x == NOTHING else x


@scalar
def copysign(a, b):
    """The magnitude of one with the sign of the other."""
    return real(U(U(bits(a) & MAGNITUDE) | U(bits(b) & SIGN)))


@scalar
def power_of_number(a, b):
    """a ** b of one number b; the powers that NumPy has arithmetic for are rounded once."""
    if b == TWO:
        return F(a * a)
    if b == UNIT:
        return a
    if b == HALF:
        return sqrt(a)
    return F(UNIT / a) if b == MINUS else powf(a, b)


@scalar
def floor_mod(a, b):
    """What is left of a after whole b, with the sign of b."""
    left = fmod(a, b)
    if b == NOTHING:
        return left
    if left == NOTHING:
        return copysign(NOTHING, b)
    return F(left + b) if (b < NOTHING) != (left < NOTHING) else left


@scalar
def floor_divide(a, b):
    """The largest whole number not above a / b, from the exact remainder as in Python."""
    if b == NOTHING:
        return F(a / b)
    left = fmod(a, b)
    quotient = F(F(a - left) / b)
    if left != NOTHING and (b < NOTHING) != (left < NOTHING):
        quotient = F(quotient - UNIT)
    if quotient == NOTHING:
        return copysign(NOTHING, F(a / b))
    whole = floor(quotient)
    return F(whole + UNIT) if F(quotient - whole) > HALF else whole


@scalar
def logaddexp(a, b):
    """log(exp(a) + exp(b)) without overflow."""
    if a == b:
        return F(a + LN2)
    apart = F(a - b)
    if apart > NOTHING:
        return F(a + log1p(exp(F(-apart))))
    return F(b + log1p(exp(apart))) if apart <= NOTHING else apart


@scalar
def nextafter(a, b):
    """The next float32 after a toward b."""
    if a != a or b != b:
        return F(a + b)
    if a == b:
        return b
    u = bits(a)
    if U(u & MAGNITUDE) == ZERO:
        return real(U(U(bits(b) & SIGN) | ONE_BIT))
    return real(U(u + ONE_BIT)) if (a < b) == (a > NOTHING) else real(U(u - ONE_BIT))


@scalar
def is_negative(x):
    """Whether the sign is minus, that of -0 and NaN too."""
    return U(bits(x) & SIGN) != ZERO


@scalar
def is_infinite(x):
    """Whether it is an infinity."""
    return U(bits(x) & MAGNITUDE) == INFINITY


@scalar
def is_finite(x):
    """Whether it is neither NaN nor infinite."""
    return U(bits(x) & MAGNITUDE) < INFINITY


@scalar
def as_float(truth):
    """1 or 0."""
    return UNIT if truth else NOTHING


@scalar
def where(condition, a, b):
    """One of two numbers."""
    return a if condition else b


def _called(takes: str, gives: str, **functions: Function) -> dict[str, Operation]:
    return {name: Operation(None, function, takes, gives) for name, function in functions.items()}


def _written(takes: str, gives: str, **texts: str) -> dict[str, Operation]:
    return {name: Operation(text, None, takes, gives) for name, text in texts.items()}


def _of_library(takes: str, **names: tuple[str, Function]) -> dict[str, Operation]:
    make = _library if len(takes) == 1 else _library2
    return {name: Operation(None, make(*pair), takes, "f") for name, pair in names.items()}


OPERATIONS: dict[str, Operation] = {
    **_written("ff", "f", add="F({0} + {1})", subtract="F({0} - {1})", multiply="F({0} * {1})"),
    **_written("ff", "f", divide="F({0} / {1})"),
    **_written("f", "f", square="F({0} * {0})", reciprocal="F(UNIT / {0})"),
    **_written("ff", "b", greater="{0} > {1}", greater_equal="{0} >= {1}", less="{0} < {1}"),
    **_written("ff", "b", less_equal="{0} <= {1}", equal="{0} == {1}", not_equal="{0} != {1}"),
    **_written("f", "b", isnan="{0} != {0}", true="{0} != NOTHING"),
    **_written("bb", "b", logical_and="{0} & {1}", logical_or="{0} | {1}", logical_xor="{0} != {1}"),
    **_written("b", "b", logical_not="not {0}"),
    **_written("bbb", "b", where_truth="({0} & {1}) | ((not {0}) & {2})"),
    **_called("ff", "f", maximum=maximum, minimum=minimum, copysign=copysign, power=powf, fmod=fmod),
    **_called("ff", "f", remainder=floor_mod, floor_divide=floor_divide, logaddexp=logaddexp),
    **_called("ff", "f", nextafter=nextafter, power_of_number=power_of_number),
    **_called("fff", "f", clip=clip),
    **_called("bff", "f", where=where),
    **_called("f", "f", absolute=magnitude, negative=negative, sign=sign, floor=floor, rint=rint),
    **_called("f", "f", exp=exp, expm1=expm1, log1p=log1p, sqrt=sqrt),
    **_called("f", "b", signbit=is_negative, isinf=is_infinite, isfinite=is_finite),
    **_called("b", "f", float=as_float),
    **_of_library("f", ceil=("__nv_ceilf", np.ceil), trunc=("__nv_truncf", np.trunc)),
    **_of_library("f", exp2=("__nv_exp2f", np.exp2), log=("__nv_logf", np.log), log2=("__nv_log2f", np.log2)),
    **_of_library("f", log10=("__nv_log10f", np.log10), cbrt=("__nv_cbrtf", np.cbrt)),
    **_of_library("f", sin=("__nv_sinf", np.sin), cos=("__nv_cosf", np.cos), tan=("__nv_tanf", np.tan)),
    **_of_library("f", arcsin=("__nv_asinf", np.arcsin), arccos=("__nv_acosf", np.arccos)),
    **_of_library("f", arctan=("__nv_atanf", np.arctan), sinh=("__nv_sinhf", np.sinh)),
    **_of_library("f", cosh=("__nv_coshf", np.cosh), tanh=("__nv_tanhf", np.tanh)),
    **_of_library("f", arcsinh=("__nv_asinhf", np.arcsinh), arccosh=("__nv_acoshf", np.arccosh)),
    **_of_library("f", arctanh=("__nv_atanhf", np.arctanh), erf=("__nv_erff", _erf)),
    **_of_library("ff", arctan2=("__nv_atan2f", np.arctan2), hypot=("__nv_hypotf", np.hypot)),
}

# What generated text names beside the operations' functions.
NAMES: dict[str, Any] = {"F": F, "U": U, "UNIT": UNIT, "NOTHING": NOTHING, "UNDEFINED": UNDEFINED}
