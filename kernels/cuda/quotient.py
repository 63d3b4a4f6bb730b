"""Quotients of many values and one divisor: the float32 of a division, for less than a division each.

The divisor's reciprocal is taken once, to twice the precision: ``inverse + rest``. A quotient by that is at
most one place off, and one exact remainder puts it right (P. Markstein, "IA-64 and Elementary Functions").
"""

from __future__ import annotations

import numpy as np

from ..bind import scalar
from ..scalar.bits import MAGNITUDE, SIGN, F, U, bits, real
from .intrinsics import assembly

UNIT = F(1.0)
# Divisors between these leave every remainder that decides a code a float32.
LEAST, MOST = F(2.0**-60), F(2.0**60)


@assembly("fma.rn.f32 $0, $1, $2, $3;", ("float32",), ("float32", "float32", "float32"))
def fused(a, b, c):
    """a * b + c, rounded once."""
    product, added = float(a) * float(b), float(c)  # exact: 48 bits
    total = product + added
    if not np.isfinite(total):
        return F(total)
    # What the sum lost, exactly; a last bit of 1 then says that something was lost, for the second rounding.
    back = total - product
    lost = (product - (total - back)) + (added - back)
    if lost and not int(np.float64(total).view(np.uint64)) & 1:
        total = float(np.nextafter(total, np.inf if lost > 0 else -np.inf))
    return F(total)


@scalar
def divisible(divisor):
    """Whether ``over`` gives the quotients by a positive divisor, as far as they matter to codes."""
    return divisor >= LEAST and divisor <= MOST


@scalar
def reciprocal(divisor):
    """``(inverse, rest)``: 1 / divisor rounded, and what that lacks."""
    inverse = F(UNIT / divisor)
    return inverse, F(fused(F(-inverse), divisor, UNIT) * inverse)


@scalar
def over(x, divisor, inverse, rest):
    """``x / divisor``, rounded once, but for the sign of zero; where x is below 2**-100, only nearly.

    ``x`` is finite and not beyond 2**127 times the divisor.
    """
    near = fused(x, inverse, F(x * rest))
    return fused(fused(F(-near), divisor, x), inverse, near)


@scalar
def signed_over(x, divisor, inverse, rest):
    """``over`` with the sign of zero, which a sum of two zeros loses."""
    return real(U(U(bits(over(x, divisor, inverse, rest)) & MAGNITUDE) | U(bits(x) & SIGN)))
