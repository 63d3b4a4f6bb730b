"""The codec of an element format, by its kind, and the range that a scale leaves to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..bind import scalar
from ..codec import ElementCodec
from . import integer, minifloat, table
from .bits import ZERO, F, bits_of

KINDS = {"minifloat": minifloat, "integer": integer, "table": table}


class ElementFunctions(NamedTuple):
    """Scalar functions of an element format.

    Attributes:
        encode: ``(t float32, limit uint32, r uint32) -> code uint32``.
        decode: ``(code uint32) -> float32``.
        largest_finite: ``(scale float32) -> uint32``: the bits of the largest magnitude whose product
            with the scale is finite.
        top: Bits of the largest magnitude of all.
    """

    encode: Callable[..., Any]
    decode: Callable[..., Any]
    largest_finite: Callable[..., Any]
    top: np.uint32


def element_functions(
    element: ElementCodec, rounding: str = "nearest", nonfinite: str = "propagate"
) -> ElementFunctions:
    """The scalar functions of ``element``."""
    if element.kind == "minifloat" and element.mantissa == 0:
        element = powers_as_table(element)
    kind = KINDS[element.kind]
    top = bits_of(max(element.maximum, -element.minimum))
    return ElementFunctions(
        kind.encoder(element, rounding, nonfinite == "saturate"),
        kind.decoder(element),
        largest_finite(element),
        top,
    )


def powers_as_table(element: ElementCodec) -> ElementCodec:
    """A minifloat of powers of two as a table: rounding to places doesn't give the even code there."""
    decode = minifloat.decoder(element)
    values = tuple(float(decode(np.uint32(code))) for code in range(1 << element.bits))
    return element._replace(kind="table", values=values)


def largest_finite(element: ElementCodec):
    """A function giving the largest magnitude whose product with a scale is finite.

    It looks at all of them: leaving early made LLVM unroll the search and gather what it found.
    """
    magnitudes = stored_magnitudes(element)
    limits = magnitudes.view(np.uint32)
    count = len(magnitudes)

    @scalar
    def largest(scale):
        best = ZERO
        for i in range(count):
            fits = np.float64(magnitudes[i]) * np.float64(scale) < OVERFLOW
            best = max(best, limits[i] if fits else ZERO)
        return best

    return largest


# Products from here on round to infinity: half a step above the largest float32.
OVERFLOW = float(np.ldexp(1.0, 128) - np.ldexp(1.0, 103))


def stored_magnitudes(element: ElementCodec) -> np.ndarray:
    """float32 magnitudes that are stored, ascending."""
    if element.kind == "table":
        return table.magnitudes(element)
    decode = KINDS[element.kind].decoder(element)
    values = np.array([decode(np.uint32(code)) for code in range(1 << element.bits)], np.float32)
    kept = values[(values >= F(element.minimum)) & (values <= F(element.maximum))]
    return np.unique(np.abs(kept))
