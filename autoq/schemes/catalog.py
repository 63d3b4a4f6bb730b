"""The named schemes, and looking one up by its name."""

from __future__ import annotations

from ..errors import SchemeError
from .element import find
from .scheme import QuantScheme

CATALOG: dict[str, QuantScheme] = {}
_NAMES: dict[QuantScheme, str] = {}


def register_scheme(name: str, scheme: QuantScheme) -> QuantScheme:
    """Make ``scheme`` known as ``name``, and return it. The first name of a scheme is the one it prints.

    Raises:
        SchemeError: If the name already stands for a different scheme.

    Example:
        >>> from autoq.schemes import CATALOG, register_scheme
        >>> register_scheme("mxfp8", CATALOG["mxfp8"]).name
        'mxfp8'
    """
    if CATALOG.setdefault(name, scheme) != scheme:
        raise SchemeError(
            f"scheme {name!r} already exists with other fields",
            "a new name, or the same scheme again",
            "Register it under another name.",
        )
    _NAMES.setdefault(scheme, name)
    return scheme


def catalog_name(scheme: QuantScheme) -> str | None:
    """The first name that ``scheme`` was registered under, None if it was not."""
    return _NAMES.get(scheme)


def scheme(name: str | QuantScheme) -> QuantScheme:
    """The scheme called ``name``; a scheme is returned as it is.

    Raises:
        SchemeError: If there is none, naming the nearest.

    Example:
        >>> scheme("nvfp4").bits_per_value
        4.5
    """
    return name if isinstance(name, QuantScheme) else find(CATALOG, name, "scheme")


def _mx(element: str, block: tuple[int, ...] = (32,)) -> QuantScheme:
    return QuantScheme(element, block, "ue8m0")


# OCP Microscaling Formats (MX) v1.0 §5.2.
mxfp8 = register_scheme("mxfp8", _mx("e4m3"))
mxfp8_e4m3 = register_scheme("mxfp8_e4m3", _mx("e4m3"))
mxfp8_e5m2 = register_scheme("mxfp8_e5m2", _mx("e5m2"))
mxfp6_e3m2 = register_scheme("mxfp6_e3m2", _mx("e3m2"))
mxfp6_e2m3 = register_scheme("mxfp6_e2m3", _mx("e2m3"))
mxfp4 = register_scheme("mxfp4", _mx("e2m1"))
mxint8 = register_scheme("mxint8", _mx("mxint8"))
mxfp8_2d = register_scheme("mxfp8_2d", _mx("e4m3", (32, 32)))

nvfp4 = register_scheme("nvfp4", QuantScheme("e2m1", (16,), "ue4m3", tensor_scale=True, scale_rule="te"))
nvfp4_2d = register_scheme("nvfp4_2d", nvfp4.replace(block=(16, 16)))
nvfp4_single = register_scheme("nvfp4_single", QuantScheme("e2m1", (16,), "ue4m3", scale_rule="nearest"))

int8 = register_scheme("int8", QuantScheme("int8"))
int4 = register_scheme("int4", QuantScheme("int4"))
int2 = register_scheme("int2", QuantScheme("int2"))
int8_full = register_scheme("int8_full", QuantScheme("int8_full"))
int4_full = register_scheme("int4_full", QuantScheme("int4_full"))
int2_full = register_scheme("int2_full", QuantScheme("int2_full"))

fp8_e4m3 = register_scheme("fp8_e4m3", QuantScheme("e4m3", None))
fp8_e5m2 = register_scheme("fp8_e5m2", QuantScheme("e5m2", None))
fp8_block = register_scheme("fp8_block", QuantScheme("e4m3", (1, 128)))
fp8_block_2d = register_scheme("fp8_block_2d", QuantScheme("e4m3", (128, 128)))
