"""The records that kernels are specialised on: plain hashable numbers and names, nothing of autoq above."""

from __future__ import annotations

from typing import NamedTuple


class ElementCodec(NamedTuple):
    """An element format as kernels see it.

    Attributes:
        name: For messages and caches.
        kind: ``"minifloat"``, ``"integer"`` (two's complement times ``step``) or ``"table"``.
        bits: Bits a code, at most 8.
        mantissa: Mantissa bits of a minifloat.
        bias: Exponent bias of a minifloat.
        maximum: Largest value that is stored.
        minimum: Smallest value that is stored.
        step: Value of an integer's last place.
        max_code: Code of ``maximum``.
        has_inf: Whether the minifloat code after ``max_code`` is infinity.
        nan_code: The code that NaN is stored as, -1 where there is none.
        values: The value of every code of a table, else None.
    """

    name: str
    kind: str
    bits: int
    mantissa: int
    bias: int
    maximum: float
    minimum: float
    step: float
    max_code: int
    has_inf: bool
    nan_code: int
    values: tuple[float, ...] | None = None

    @property
    def half_range(self) -> float:
        """What an amax is divided by to give a scale."""
        return (self.maximum - self.minimum) / 2

    @property
    def precision(self) -> int:
        """Bits after the leading one of the largest value."""
        return self.mantissa if self.kind == "minifloat" else self.bits - 2


class Codec(NamedTuple):
    """Everything that a compiled kernel is specialised on.

    Attributes:
        element: The element format.
        scale: ``"ue8m0"``, ``"ue4m3"``, ``"f32"``, ``"f16"`` or ``"bf16"``.
        rule: How a block's scale is chosen.
        two_level: Whether a float32 tensor scale multiplies the block scales.
        rounding: ``"nearest"``, ``"stochastic"`` (16-bit draws) or ``"stochastic8"``.
        nonfinite: ``"propagate"`` or ``"saturate"``.
        calibration: ``"abs_max"`` or ``"abs_mean"``.
        given: Whether the scales are given rather than calibrated.

    Example:
        >>> e2m1 = ElementCodec("e2m1", "minifloat", 4, 1, 1, 6.0, -6.0, 1.0, 7, False, -1)
        >>> Codec(e2m1, "ue8m0", "round_up").element.half_range
        6.0
    """

    element: ElementCodec
    scale: str
    rule: str
    two_level: bool = False
    rounding: str = "nearest"
    nonfinite: str = "propagate"
    calibration: str = "abs_max"
    given: bool = False
