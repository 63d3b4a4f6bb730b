"""The error function on arrays, by rational Chebyshev approximation."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.devices import is_array

# W. J. Cody, "Rational Chebyshev approximations for the error function", Mathematics of Computation 23
# (1969), 631-637; digits as in his CALERF (netlib.org/specfun/erf). Highest power first.
_NEAR_P = (
    1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
    3.20937758913846947e3,
)  # fmt: skip
_NEAR_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_MIDDLE_P = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
    2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
    1.23033935479799725e3,
)  # fmt: skip
_MIDDLE_Q = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip
_FAR_P = (
    1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
    1.60837851487422766e-2, 6.58749161529837803e-4,
)  # fmt: skip
_FAR_Q = (
    1.0, 2.56852019228982242e0, 1.87295284992346047e0, 5.27905102951428412e-1, 6.05183413124413191e-2,
    2.33520497626869185e-3,
)  # fmt: skip
_NEAR, _FAR, _ONE = 0.46875, 4.0, 6.0  # interval ends; from 6 on erf is 1 in float64
_NEAR_FLOAT32 = 1.0  # up to here the first interval's formula is right to 2e-10, and 1 - erfc loses bits
_RSQRT_PI = 0.56418958354775628695


def erf(x: Any) -> Any:
    """The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x, element by element.

    Args:
        x: Any shape, float32 or float64; anything else is taken as float64.

    Returns:
        The shape and float dtype of `x`, within 1e-15 (float64) or 2e-7 (float32) of the value, relatively.

    Example:
        >>> import autoq as aq
        >>> aq.erf([0.0, 0.5])
        tensor([0. 0.5204...], float32)
    """
    if hasattr(x, "erf"):  # a symbol, which stands for an array where kernels are made
        return x.erf()
    x = x if is_array(x) else np.asarray(x)
    if x.dtype not in (np.float32, np.float64):
        x = x.astype(np.float64)
    size = np.minimum(np.abs(x), _ONE)
    square = size * size
    near = size * _ratio(_NEAR_P, _NEAR_Q, square)
    complement = np.exp(-square) * _complement(size, square)
    limit = _NEAR_FLOAT32 if x.dtype == np.float32 else _NEAR
    return np.copysign(np.where(size <= limit, near, 1.0 - complement), x)


def _complement(size: Any, square: Any) -> Any:
    """exp(size^2) * erfc(size) for sizes from 0.46875 to 6."""
    middle = _ratio(_MIDDLE_P, _MIDDLE_Q, size)
    if size.dtype == np.float32:  # beyond 4 erf rounds to 1 whatever this is
        return middle
    size, inverse = np.maximum(size, _FAR), 1.0 / np.maximum(square, _FAR * _FAR)
    far = (_RSQRT_PI - inverse * _ratio(_FAR_P, _FAR_Q, inverse)) / size
    return np.where(size > _FAR, far, middle)


def _ratio(numerator: tuple[float, ...], denominator: tuple[float, ...], x: Any) -> Any:
    return _polynomial(numerator, x) / _polynomial(denominator, x)


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    """Horner's scheme; the first coefficient belongs to the highest power."""
    value = x * coefficients[0]
    for coefficient in coefficients[1:-1]:
        value += coefficient
        value *= x
    return value + coefficients[-1]
