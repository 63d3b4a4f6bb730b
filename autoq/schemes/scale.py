"""Scale formats: one record for every way to store the scale of a block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import SchemeError
from .element import Array, find


@dataclass(frozen=True)
class ScaleFormat:
    """How the scale of a block is stored, and the rules that may choose it.

    Args:
        name: The name schemes refer to it by.
        dtype: Name of the stored NumPy dtype: ``uint8`` for codes, else the float dtype itself.
        maximum: Largest finite scale.
        smallest: The scale a zero block stores.
        mantissa_bits: Bits after the leading one.
        minimum_exponent: Exponent of the smallest normal scale.
        rules: Scale rules where the block scale is the only one.
        two_level_rules: Scale rules under a tensor scale; none where a tensor scale isn't allowed.
        nan_code: The code of NaN in coded formats, None in float ones.

    Example:
        >>> SCALES["ue8m0"].decode(np.array([127, 128], np.uint8)).tolist()
        [1.0, 2.0]

    Source: OCP Microscaling Formats (MX) v1.0 §5.4.
    """

    name: str
    dtype: str
    maximum: float
    smallest: float
    mantissa_bits: int
    minimum_exponent: int
    rules: tuple[str, ...] = ("round_up", "nearest")
    two_level_rules: tuple[str, ...] = ()
    nan_code: int | None = None

    @cached_property
    def stored_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of a stored scale."""
        return np.dtype(getattr(ml_dtypes, self.dtype) if self.dtype == "bfloat16" else self.dtype)

    @property
    def bits(self) -> int:
        """Bits a stored scale takes."""
        return self.stored_dtype.itemsize * 8

    @property
    def coded(self) -> bool:
        """Whether scales are stored as codes rather than as floats."""
        return self.nan_code is not None

    @cached_property
    def values(self) -> Array:
        """float32 value of every code of a coded format, shape (256,), read-only."""
        codes = np.arange(256)
        field, mantissa = codes >> self.mantissa_bits, codes & ((1 << self.mantissa_bits) - 1)
        if self.mantissa_bits == 0:
            values = np.ldexp(1.0, field + self.minimum_exponent)
        else:
            fraction = np.ldexp(mantissa.astype(np.float64), -self.mantissa_bits)
            values = np.ldexp(
                np.where(field > 0, 1 + fraction, fraction), np.maximum(field, 1) - 1 + self.minimum_exponent
            )
        values = np.where(codes >= (self.nan_code or 256), np.nan, values).astype(np.float32)
        values.flags.writeable = False
        return values

    def decode(self, stored: Array) -> Array:
        """float32 values of stored scales, of the same shape."""
        return self.values[stored] if self.coded else np.asarray(stored).astype(np.float32)


SCALES: dict[str, ScaleFormat] = {}


def register_scale(scale: ScaleFormat) -> ScaleFormat:
    """Make ``scale`` known by its name, and return it.

    Raises:
        SchemeError: If the name already stands for a different format.

    Example:
        >>> from autoq.schemes import SCALES, register_scale
        >>> register_scale(SCALES["f32"]) is SCALES["f32"]
        True
    """
    if SCALES.setdefault(scale.name, scale) != scale:
        raise SchemeError(
            f"scale {scale.name!r} already exists with other fields",
            "a new name, or the same record again",
            "Register it under another name.",
        )
    return scale


NVFP4_RULES = ("te", "torchao", "four_over_six")

for _scale in (
    ScaleFormat(
        "ue8m0",
        "uint8",
        2.0**127,
        2.0**-127,
        0,
        -127,
        rules=("round_up", "floor", "ceil", "even"),
        nan_code=0xFF,
    ),
    ScaleFormat(
        "ue4m3", "uint8", 448.0, 0.0, 3, -6, two_level_rules=("round_up", *NVFP4_RULES), nan_code=0x7F
    ),
    ScaleFormat("f32", "float32", float(np.finfo(np.float32).max), 2.0**-126, 23, -126),
    ScaleFormat("f16", "float16", 65504.0, 2.0**-24, 10, -14, two_level_rules=("round_up", "nearest")),
    ScaleFormat("bf16", "bfloat16", float(ml_dtypes.finfo(ml_dtypes.bfloat16).max), 2.0**-126, 7, -126),
):
    register_scale(_scale)


def scale(name: str) -> ScaleFormat:
    """The scale format called ``name``.

    Raises:
        SchemeError: If there is none, naming the nearest.

    Example:
        >>> scale("ue4m3").maximum
        448.0
    """
    return find(SCALES, name, "scale format")
