"""Float32 and its bits: the two conversions and the constants that codecs are written with.

The dialect: every operation on integers is wrapped in ``U(...)``, which keeps it in 32 bits in compiled
code and changes nothing in the interpreter; constants are bound as ``U`` or ``F``, never literals.
"""

from __future__ import annotations

import numpy as np

from ..bind import bitcast

U = np.uint32
F = np.float32

ZERO = U(0)
ONE = U(1)
MAGNITUDE = U(0x7FFFFFFF)
SIGN = U(0x80000000)
EXPONENT = U(0x7F800000)
MANTISSA = U(0x007FFFFF)
INFINITY = U(0x7F800000)
NAN = U(0x7FC00000)
FIELD = U(23)
FLOAT_MAX = F(np.finfo(np.float32).max)
SMALLEST_NORMAL = F(2.0**-126)


@bitcast("uint32", "float32")
def bits(x):
    """The bits of a float32, as uint32."""
    return F(x).view(U)


@bitcast("float32", "uint32")
def real(u):
    """The float32 that has these bits."""
    return U(u).view(F)


def bits_of(value: float) -> np.uint32:
    """The float32 bits of a Python number, for constants."""
    return U(F(value).view(U))
