"""Dtype settings of modules: read from a dtype, a scheme or a name, and shown in a module's repr."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ArgumentError, DTypeError
from autoq.schemes import CATALOG, QuantScheme, scheme
from autoq.types import FLOATS, as_dtype, dtype_name


def dtype_setting(value: Any) -> Any:
    """None, or the float dtype or scheme that ``value`` is or names; ``"int8"`` names the scheme.

    Raises:
        DTypeError: For what is no float dtype.
        SchemeError: For a name that nothing has, with the nearest one.

    Example:
        >>> dtype_setting("mxfp8").name
        'mxfp8'
    """
    if value is None:
        return None
    found = scheme(value) if isinstance(value, str) and value in CATALOG else as_dtype(value)
    if isinstance(found, QuantScheme) or found in FLOATS:
        return found
    raise DTypeError(
        f"{dtype_name(found)} as the dtype of a signal.",
        "a float dtype or a QuantScheme",
        "Pass aq.int8, not np.int8.",
    )


def scheme_setting(name: str, value: Any) -> QuantScheme | None:
    """None, or the scheme that ``value`` is or names.

    Raises:
        DTypeError: For a dtype that is no scheme.
        SchemeError: For a name that nothing has, with the nearest one.
    """
    found = dtype_setting(value)
    if found is None or isinstance(found, QuantScheme):
        return found
    raise DTypeError(
        f"{name}={dtype_name(found)}.", "a QuantScheme, its name, or None", "Pass None for a float weight."
    )


def check_size(owner: str, name: str, size: Any) -> None:
    """Raise unless the size is an integer of at least 1.

    Raises:
        ArgumentError: It is not.
    """
    if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
        raise ArgumentError(
            f"{owner}: {name} is {size!r}.", "an integer of at least 1", "Pass the size of the axis."
        )


def setting_text(**settings: Any) -> str:
    """The settings that are not None, as ``signal=mxfp8, out_dtype=float32``.

    Example:
        >>> setting_text(signal="mxfp8", out_dtype=None)
        'signal=mxfp8'
    """
    return ", ".join(
        f"{key}={dtype_name(dtype_setting(value))}" for key, value in settings.items() if value is not None
    )
