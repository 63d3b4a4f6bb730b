"""What a check raises: assertion errors that say what was expected, what was found and where."""

from __future__ import annotations

from autoq.errors import AutoqError


class CheckError(AutoqError, AssertionError):
    """A check that failed; the base of the others."""


class GradientMismatch(CheckError):
    """A gradient that isn't the derivative of what ran forward."""


class ControlFlowDiverged(CheckError):
    """A program that ran other operations, or encoded elsewhere, when its inputs moved by a small step."""


class VacuousCheck(CheckError):
    """A check through rounding that rounding had no influence on, so that it shows nothing."""


class BitsDiffer(CheckError):
    """Two ways to the same packed values that don't agree."""
