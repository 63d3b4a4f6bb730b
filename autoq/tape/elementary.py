"""Element-wise functions and reductions as methods of tensors, beside those in ``methods``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoq.tape.apply import apply

if TYPE_CHECKING:
    from autoq.tape.tensor import Tensor

Axis = int | tuple[int, ...] | None


class Elementary:
    """Methods that call one op each; arguments and errors are those of ``aq.<name>``."""

    __slots__ = ()

    def floor(self, **options: Any) -> Tensor:
        """The largest integer that is not above each value."""
        return apply("floor", self, **options)

    def ceil(self, **options: Any) -> Tensor:
        """The smallest integer that is not below each value."""
        return apply("ceil", self, **options)

    def trunc(self, **options: Any) -> Tensor:
        """Each value without its fraction."""
        return apply("trunc", self, **options)

    def log1p(self, **options: Any) -> Tensor:
        """log(1 + x) of each value, without loss near 0."""
        return apply("log1p", self, **options)

    def log2(self, **options: Any) -> Tensor:
        """Logarithm to base 2 of each value."""
        return apply("log2", self, **options)

    def log10(self, **options: Any) -> Tensor:
        """Logarithm to base 10 of each value."""
        return apply("log10", self, **options)

    def expm1(self, **options: Any) -> Tensor:
        """exp(x) - 1 of each value, without loss near 0."""
        return apply("expm1", self, **options)

    def exp2(self, **options: Any) -> Tensor:
        """2 to the power of each value."""
        return apply("exp2", self, **options)

    def rsqrt(self, **options: Any) -> Tensor:
        """1 / sqrt(x) of each value."""
        return apply("rsqrt", self, **options)

    def reciprocal(self, **options: Any) -> Tensor:
        """1 / x of each value."""
        return apply("reciprocal", self, **options)

    def sign(self, **options: Any) -> Tensor:
        """-1, 0 or 1 by the sign of each value."""
        return apply("sign", self, **options)

    def erf(self, **options: Any) -> Tensor:
        """The error function of each value."""
        return apply("erf", self, **options)

    def tan(self, **options: Any) -> Tensor:
        """Tangent of each value, in radians."""
        return apply("tan", self, **options)

    def asin(self, **options: Any) -> Tensor:
        """Angle whose sine is each value."""
        return apply("asin", self, **options)

    def acos(self, **options: Any) -> Tensor:
        """Angle whose cosine is each value."""
        return apply("acos", self, **options)

    def atan(self, **options: Any) -> Tensor:
        """Angle whose tangent is each value."""
        return apply("atan", self, **options)

    def sinh(self, **options: Any) -> Tensor:
        """Hyperbolic sine of each value."""
        return apply("sinh", self, **options)

    def cosh(self, **options: Any) -> Tensor:
        """Hyperbolic cosine of each value."""
        return apply("cosh", self, **options)

    def asinh(self, **options: Any) -> Tensor:
        """Number whose hyperbolic sine is each value."""
        return apply("asinh", self, **options)

    def acosh(self, **options: Any) -> Tensor:
        """Number whose hyperbolic cosine is each value."""
        return apply("acosh", self, **options)

    def atanh(self, **options: Any) -> Tensor:
        """Number whose hyperbolic tangent is each value."""
        return apply("atanh", self, **options)

    def round(self, decimals: int = 0, **options: Any) -> Tensor:
        """The nearest integer, or number of so many decimals; ties go to the even one."""
        return apply("round", self, decimals=decimals, **options)

    def pow(self, exponent: Any, **options: Any) -> Tensor:
        """Each value to a power."""
        return apply("pow", self, exponent, **options)

    def prod(self, axis: Axis = None, keepdims: bool = False, **options: Any) -> Tensor:
        """Product over the axes, all of them by default."""
        return apply("prod", self, axis=axis, keepdims=keepdims, **options)

    def std(self, axis: Axis = None, correction: float = 0, keepdims: bool = False, **options: Any) -> Tensor:
        """Standard deviation over the axes; divides by n - correction."""
        return apply("std", self, axis=axis, correction=correction, keepdims=keepdims, **options)

    def norm(self, ord: float = 2, axis: Axis = None, keepdims: bool = False, **options: Any) -> Tensor:
        """Vector norm over the axes, all of them by default."""
        return apply("norm", self, ord=ord, axis=axis, keepdims=keepdims, **options)

    def logsumexp(self, axis: Axis = None, keepdims: bool = False, **options: Any) -> Tensor:
        """Logarithm of the sum of exponentials over the axes."""
        return apply("logsumexp", self, axis=axis, keepdims=keepdims, **options)

    def any(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Whether any value along the axes is not zero."""
        return apply("any", self, axis=axis, keepdims=keepdims)

    def all(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Whether every value along the axes is not zero."""
        return apply("all", self, axis=axis, keepdims=keepdims)

    def count_nonzero(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """How many values along the axes are not zero."""
        return apply("count_nonzero", self, axis=axis, keepdims=keepdims)

    def cumsum(self, axis: int | None = None, **options: Any) -> Tensor:
        """Running sum along the axis, or along the flattened tensor."""
        return apply("cumulative_sum", self, axis=axis, **options)

    def cumprod(self, axis: int | None = None, **options: Any) -> Tensor:
        """Running product along the axis, or along the flattened tensor."""
        return apply("cumulative_prod", self, axis=axis, **options)

    def cummax(self, axis: int = -1, **options: Any) -> Tensor:
        """Running maximum along the axis."""
        return apply("cummax", self, axis=axis, **options)

    def cummin(self, axis: int = -1, **options: Any) -> Tensor:
        """Running minimum along the axis."""
        return apply("cummin", self, axis=axis, **options)
