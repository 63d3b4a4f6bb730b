"""``python -m autoq formats``: every named scheme and its numbers, read off the records."""

from __future__ import annotations

import math

from autoq.cli.table import text_table
from autoq.schemes.catalog import CATALOG
from autoq.schemes.element import ElementFormat
from autoq.schemes.scheme import QuantScheme

HEADER = ("scheme", "element", "block", "scale", "bits a value", "max", "min normal", "min subnormal")


def formats_table() -> str:
    """All named schemes as a table of text.

    ``bits a value`` counts the block scales. The last three columns are magnitudes of the element,
    before the scale; integers have no normal values, their least one is given as subnormal.

    Example:
        >>> from autoq.cli.formats import formats_table
        >>> formats_table().splitlines()[2].split()
        ['mxfp8', 'e4m3', '32', 'ue8m0', '8.25', '448', '2^-6', '2^-9']
    """
    return text_table(HEADER, format_rows(), left=2)


def format_rows() -> list[tuple[str, ...]]:
    """One row of text a named scheme, under ``HEADER``."""
    return [(name, *_row(scheme)) for name, scheme in CATALOG.items()]


def _row(scheme: QuantScheme) -> tuple[str, ...]:
    block = "tensor" if scheme.block is None else " x ".join(map(str, scheme.block))
    scale = f"{scheme.scale} + f32" if scheme.tensor_scale else scheme.scale
    element = scheme.element_format
    normal, subnormal = smallest_magnitudes(element)
    numbers = (element.maximum, normal, subnormal)
    return scheme.element, block, scale, f"{scheme.bits_per_value:g}", *map(spelled, numbers)


def smallest_magnitudes(element: ElementFormat) -> tuple[float | None, float | None]:
    """The least normal and the least subnormal magnitude of an element format; None where it has none.

    Example:
        >>> from autoq.schemes.element import ELEMENTS
        >>> smallest_magnitudes(ELEMENTS["e2m1"])
        (1.0, 0.5)
    """
    positive = element.values[element.values > 0]
    normal = math.ldexp(1.0, 1 - element.bias) if element.kind == "minifloat" else None
    least = float(positive.min())
    return normal, least if least != normal else None


def spelled(number: float | None) -> str:
    """A number as text: powers of two below 1 as such, ``-`` for none.

    Example:
        >>> spelled(0.015625), spelled(448.0), spelled(None)
        ('2^-6', '448', '-')
    """
    if number is None:
        return "-"
    mantissa, exponent = math.frexp(number)
    return f"2^{exponent - 1}" if mantissa == 0.5 and number < 1 else f"{number:.8g}"
