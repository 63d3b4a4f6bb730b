"""Codes of a whole word to float32 at once: four-bit minifloats by way of float16, bytes of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..bind import scalar
from ..codec import ElementCodec
from ..scalar.bits import F, U, real
from .decode import from_halves, half_pair, inside_half, quad_decoder
from .quantize_instructions import permute

Function = Callable[..., Any]
# 2**23 as float32: with n in its low bits it is 2**23 + n. A byte goes there, the others stay.
WHOLE = U(0x4B000000)
BYTES = tuple(U(0x7650 | k) for k in range(4))


def chunk_decoder(element: ElementCodec, converts: bool) -> tuple[int, Function]:
    """How many codes are decoded at once, and ``decode(chunk) -> float32, …``, the lowest code first.

    Args:
        element: What the codes are; the bits of ``chunk`` above the last code may hold anything.
        converts: Whether the device converts from E4M3.

    Example:
        >>> from autoq.kernels.scalar.bits import U
        >>> e2m1 = ElementCodec("e2m1", "minifloat", 4, 1, 1, 6.0, -6.0, 1.0, 7, False, -1)
        >>> count, decode = chunk_decoder(e2m1, converts=False)
        >>> [float(x) for x in decode(U(0xF9876543))]
        [1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -6.0]
    """
    if element.bits == 4 and inside_half(element):
        return 8, octet_decoder(element)
    if element.bits == 8 and element.kind == "integer":
        return 4, byte_decoder(element)
    return 4, quad_decoder(element, converts)


def octet_decoder(element: ElementCodec) -> Function:
    """``decode(word)`` of four-bit codes: the codes a half word apart are shifted into place together."""
    first, second, third, last = (half_pair(element, at) for at in (0, 4, 8, 12))

    @scalar
    def decode(word):
        a, e = from_halves(first(word))
        b, f = from_halves(second(word))
        c, g = from_halves(third(word))
        d, h = from_halves(last(word))
        return a, b, c, d, e, f, g, h

    return decode


def byte_decoder(element: ElementCodec) -> Function:
    """``decode(word)`` of integers of a byte, as scalar/integer.py decodes them."""
    signs, offset, step = U(0x80808080), F(2.0**23 + 128.0), F(element.step)
    first, second, third, last = BYTES

    @scalar
    def number(u):
        return F(F(real(u) - offset) * step)

    @scalar
    def decode(word):
        u = U(word ^ signs)
        a, b = number(permute(u, WHOLE, first)), number(permute(u, WHOLE, second))
        return a, b, number(permute(u, WHOLE, third)), number(permute(u, WHOLE, last))

    return decode
