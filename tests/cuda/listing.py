"""The kernels that are compiled without a device, as the files in ``representatives`` list them.

A file lists the kernels of one area, and may say more of them:

``REPRESENTATIVES``: tuples ``(factory, parameters)``, one a branch of the kernel's code; with a compute
    capability as a third member where older devices never compile it.
``every()``: all combinations, for ``make test-ptx``.
``ALLOWED``: by a factory's name, what its PTX may hold that others' may not, each with the reason.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any, NamedTuple

Capability = tuple[int, int]
CAPABILITIES: list[Capability] = [(8, 0), (9, 0), (10, 0)]
ALL = os.environ.get("AUTOQ_TEST_PTX") == "all"


class Listed(NamedTuple):
    """A kernel to compile.

    Attributes:
        area: The file that lists it.
        factory: Makes the kernel.
        parameters: Of the factory.
        oldest: Compute capability of the oldest device that it is compiled for.
        allowed: Text in its PTX that is refused in others, and why it may be there.
    """

    area: str
    factory: Any
    parameters: tuple[Any, ...]
    oldest: Capability
    allowed: dict[str, str]


def listed() -> list[Listed]:
    """The kernels to compile: the representatives, or all combinations under ``AUTOQ_TEST_PTX=all``."""
    found = []
    for path in sorted((Path(__file__).parent / "representatives").glob("*.py")):
        area = importlib.import_module(f"{__package__}.representatives.{path.stem}")
        allowed = getattr(area, "ALLOWED", {})
        for factory, parameters, *oldest in _entries(area):
            reasons = allowed.get(factory.__name__, {})
            found.append(Listed(path.stem, factory, parameters, *(oldest or CAPABILITIES[:1]), reasons))
    return found


def _entries(area: Any) -> list[tuple[Any, ...]]:
    entries = list(area.REPRESENTATIVES)
    if ALL and hasattr(area, "every"):
        entries += [entry for entry in area.every() if entry not in entries]
    return entries


def cases() -> list[tuple[str, Listed, Capability]]:
    """A name for a test, a kernel and a device's compute capability, for each that belong together."""
    return [
        (f"{kernel.area}-{number}-{kernel.factory.__name__}-sm_{major}{minor}", kernel, (major, minor))
        for number, kernel in enumerate(listed())
        for major, minor in CAPABILITIES
        if (major, minor) >= kernel.oldest
    ]
