"""Element formats: one record for every way to store a value in two to eight bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ..errors import SchemeError

T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[Any]]
KINDS = ("minifloat", "integer", "table")


@dataclass(frozen=True)
class ElementFormat:
    """How a code of ``bits`` bits stands for a number.

    A ``minifloat`` has a sign, ``exponent_bits`` and ``mantissa_bits``; an ``integer`` is two's
    complement times ``step``; a ``table`` lists its value for every code.

    Args:
        name: The name schemes refer to it by.
        bits: Bits a code, 1 to 8.
        kind: ``"minifloat"``, ``"integer"`` or ``"table"``.
        maximum: Largest finite value that is stored; larger ones saturate to it.
        minimum: Smallest such value.
        exponent_bits: Exponent bits of a minifloat.
        mantissa_bits: Mantissa bits of a minifloat.
        bias: Exponent bias of a minifloat.
        step: Value of an integer's last place.
        has_inf: Whether an exponent of all ones and a mantissa of 0 is infinity.
        nan_codes: Codes that stand for NaN, the one that is stored first.
        table: Values of a table, one a code, in code order.

    Raises:
        SchemeError: If the fields do not describe a format.

    Example:
        >>> ELEMENTS["e2m1"].values[:8].tolist()
        [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]

    Source: OCP Microscaling Formats (MX) v1.0 §5.3; OCP 8-bit Floating Point v1.0.
    """

    name: str
    bits: int
    kind: str
    maximum: float
    minimum: float
    exponent_bits: int = 0
    mantissa_bits: int = 0
    bias: int = 0
    step: float = 1.0
    has_inf: bool = False
    nan_codes: tuple[int, ...] = ()
    table: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SchemeError(
                f"element {self.name!r}: kind is {self.kind!r}",
                " | ".join(KINDS),
                "Use a table for values that no formula gives.",
            )
        if not 1 <= self.bits <= 8:
            raise SchemeError(
                f"element {self.name!r}: {self.bits} bits", "1 to 8 bits", "Wider values are dense dtypes."
            )
        if self.kind == "minifloat" and self.bits != 1 + self.exponent_bits + self.mantissa_bits:
            raise SchemeError(
                f"element {self.name!r}: {self.bits} bits, but 1 + {self.exponent_bits} + "
                f"{self.mantissa_bits} in sign, exponent and mantissa",
                "bits == 1 + exponent_bits + mantissa_bits",
                "Correct one of the three.",
            )
        if self.kind == "table" and (self.table is None or len(self.table) != 1 << self.bits):
            raise SchemeError(
                f"element {self.name!r}: the table doesn't list every code",
                f"{1 << self.bits} values",
                "Give one value a code, in code order.",
            )
        missing = {self.maximum, self.minimum}.difference(self.values.tolist())
        if missing or not self.minimum < self.maximum:
            raise SchemeError(
                f"element {self.name!r}: range [{self.minimum}, {self.maximum}]",
                "two different values that some code has",
                "Correct minimum and maximum.",
            )

    @cached_property
    def values(self) -> Array:
        """float32 value of every code, shape (2**bits,), read-only."""
        codes = np.arange(1 << self.bits)
        if self.kind == "minifloat":
            values = self._minifloat_values(codes)
        elif self.kind == "integer":
            values = np.where(codes < 1 << (self.bits - 1), codes, codes - (1 << self.bits)) * self.step
        else:
            values = np.array(self.table, np.float64)
        values = np.asarray(values, np.float32)
        values[list(self.nan_codes)] = np.nan
        values.flags.writeable = False
        return values

    def _minifloat_values(self, codes: Array) -> Array:
        field = codes >> self.mantissa_bits & ((1 << self.exponent_bits) - 1)
        mantissa = np.ldexp((codes & ((1 << self.mantissa_bits) - 1)).astype(np.float64), -self.mantissa_bits)
        magnitude = np.ldexp(np.where(field > 0, 1 + mantissa, mantissa), np.maximum(field, 1) - self.bias)
        if self.has_inf:
            magnitude[(field == (1 << self.exponent_bits) - 1) & (mantissa == 0)] = np.inf
        signed: Array = np.where(codes >> (self.bits - 1), -magnitude, magnitude)
        return signed

    @property
    def half_range(self) -> float:
        """What an amax is divided by to give a scale: half the width of [minimum, maximum]."""
        return (self.maximum - self.minimum) / 2

    @property
    def maximum_exponent(self) -> int:
        """floor(log2(maximum)), the ``emax`` of the MX scale rules."""
        return math.frexp(self.maximum)[1] - 1

    @property
    def precision_bits(self) -> int:
        """Bits after the leading one of the largest value, which the scale rule ``even`` rounds to."""
        return self.mantissa_bits if self.kind == "minifloat" else self.bits - 2

    @property
    def nan_code(self) -> int | None:
        """The code that NaN is stored as, None where the format has none."""
        return self.nan_codes[0] if self.nan_codes else None


def _minifloat(
    name: str,
    exponent_bits: int,
    mantissa_bits: int,
    bias: int,
    maximum: float,
    has_inf: bool = False,
    nan_codes: tuple[int, ...] = (),
) -> ElementFormat:
    return ElementFormat(
        name,
        1 + exponent_bits + mantissa_bits,
        "minifloat",
        maximum,
        -maximum,
        exponent_bits,
        mantissa_bits,
        bias,
        has_inf=has_inf,
        nan_codes=nan_codes,
    )


def _integer(name: str, bits: int, step: float = 1.0, full: bool = False) -> ElementFormat:
    top = (1 << (bits - 1)) - 1
    return ElementFormat(name, bits, "integer", top * step, -(top + full) * step, step=step)


ELEMENTS: dict[str, ElementFormat] = {}


def register_element(element: ElementFormat) -> ElementFormat:
    """Make ``element`` known by its name, and return it.

    Raises:
        SchemeError: If the name already stands for a different format.

    Example:
        >>> from autoq.schemes import ELEMENTS, register_element
        >>> register_element(ELEMENTS["int8"]) is ELEMENTS["int8"]
        True
    """
    if ELEMENTS.setdefault(element.name, element) != element:
        raise SchemeError(
            f"element {element.name!r} already exists with other fields",
            "a new name, or the same record again",
            "Register it under another name.",
        )
    return element


for _element in (
    _minifloat("e4m3", 4, 3, 7, 448.0, nan_codes=(0x7F, 0xFF)),
    _minifloat("e5m2", 5, 2, 15, 57344.0, has_inf=True, nan_codes=(0x7F, 0x7D, 0x7E, 0xFD, 0xFE, 0xFF)),
    _minifloat("e3m2", 3, 2, 3, 28.0),
    _minifloat("e2m3", 2, 3, 1, 7.5),
    _minifloat("e2m1", 2, 1, 1, 6.0),
    _integer("mxint8", 8, step=1 / 64),
    _integer("int8", 8),
    _integer("int4", 4),
    _integer("int2", 2),
    _integer("int8_full", 8, full=True),
    _integer("int4_full", 4, full=True),
    _integer("int2_full", 2, full=True),
):
    register_element(_element)


def element(name: str) -> ElementFormat:
    """The element format called ``name``.

    Raises:
        SchemeError: If there is none, naming the nearest.

    Example:
        >>> element("e4m3").maximum
        448.0
    """
    return find(ELEMENTS, name, "element format")


def find(table: dict[str, T], name: str, kind: str) -> T:
    """``table[name]``, or a SchemeError that names the entries and the nearest one."""
    if isinstance(name, str) and name in table:
        return table[name]
    near = get_close_matches(str(name).lower(), table, n=1, cutoff=0.4)
    remedy = f"Did you mean {near[0]!r}?" if near else f"Pick one, or register your own {kind}."
    raise SchemeError(f"there is no {kind} {name!r}", ", ".join(table), remedy)
