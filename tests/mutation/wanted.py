"""Which schemes have a rule that is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoq.schemes import QuantScheme

Wanted = Callable[[QuantScheme], bool]


def any_scheme(scheme: QuantScheme) -> bool:
    return True


def kind(name: str) -> Wanted:
    return lambda scheme: scheme.element_format.kind == name


def drawn(scheme: QuantScheme) -> bool:
    return scheme.rounding != "nearest"


def saturating(scheme: QuantScheme) -> bool:
    return scheme.nonfinite == "saturate"


def mean(scheme: QuantScheme) -> bool:
    return scheme.calibration == "abs_mean"


def scaled(name: str) -> Wanted:
    return lambda scheme: scheme.scale == name


def ruled(*names: str) -> Wanted:
    return lambda scheme: scheme.scale_rule in names


# The function, what it is broken in, the text, its replacement, and the schemes that have the rule.
Change = tuple[Any, str, str, str, Wanted]
