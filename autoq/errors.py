"""Error classes: every message says what was given, what is allowed and what to do."""

from __future__ import annotations


class AutoqError(Exception):
    """Base of every error that autoq raises.

    Args:
        given: What was wrong, with the values at hand.
        allowed: What would have been accepted.
        remedy: What to do about it, as a sentence.

    Example:
        >>> print(AutoqError("block is 0", "block >= 1", "Pass block=(32,)."))
        block is 0
          Allowed: block >= 1
          Pass block=(32,).
    """

    def __init__(self, given: str, allowed: str | None = None, remedy: str | None = None) -> None:
        self.given, self.allowed, self.remedy = given, allowed, remedy
        lines = [given]
        if allowed is not None:
            lines.append(f"  Allowed: {allowed}")
        if remedy is not None:
            lines.append(f"  {remedy}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type, tuple[str, str | None, str | None]]:
        return type(self), (self.given, self.allowed, self.remedy)


class DTypeError(AutoqError, TypeError):
    """A dtype or a kind of object that the operation does not take."""


class ShapeError(AutoqError, ValueError):
    """Shapes, ranks or axes that do not fit each other."""


class SchemeError(AutoqError, ValueError):
    """An unknown, inconsistent or inapplicable quantization scheme."""


class ArgumentError(AutoqError, ValueError):
    """An argument outside its range."""


class DeviceError(AutoqError, RuntimeError):
    """A device that is missing, or operands on different devices."""


class CaptureError(AutoqError, RuntimeError):
    """A step that can't be captured, or a call that doesn't fit the captured one."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A tensor that the memory of a GPU has no room for."""


class IndexingError(AutoqError, IndexError):
    """An index outside an axis, or of a kind that indexing does not take."""


class GradientError(AutoqError, RuntimeError):
    """A gradient that cannot be had: freed, untracked, ambiguous or changed since."""


class UndifferentiableError(GradientError):
    """A gradient through an operation that has none."""


class NonFiniteError(AutoqError, ValueError):
    """NaN or infinity under ``nonfinite="raise"`` or ``detect_anomaly``."""


class ResolutionError(AutoqError, TypeError):
    """Two propagating inputs that disagree under strict dtype resolution."""


class StateError(AutoqError, ValueError):
    """A state dict whose entries do not fit the module or optimizer."""


class FileFormatError(AutoqError, ValueError):
    """A file that is truncated, corrupt or not of the expected format."""


class MissingPackageError(AutoqError, ImportError):
    """A package that only one of autoq's extras installs."""
