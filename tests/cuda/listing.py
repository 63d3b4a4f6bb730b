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

from autoq.kernels.codec import ElementCodec

Capability = tuple[int, int]
CAPABILITIES: list[Capability] = [(8, 0), (9, 0), (10, 0)]
MAIN: Capability = (9, 0)
BITS = {"bool": 8, "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}
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
    """A name for a test, a kernel and a device's compute capability, for each that is compiled.

    Every kernel is compiled for ``MAIN``; for the others, unless ``ALL``, the first of each template and
    widths of elements.
    """
    found, seen = [], set()
    for number, kernel in enumerate(listed()):
        for major, minor in CAPABILITIES:
            one = kernel.factory, widths(kernel.parameters), (major, minor)
            if (major, minor) >= kernel.oldest and (ALL or (major, minor) == MAIN or one not in seen):
                seen.add(one)
                name = f"{kernel.area}-{number}-{kernel.factory.__name__}-sm_{major}{minor}"
                found.append((name, kernel, (major, minor)))
    return found


def widths(parameters: tuple[Any, ...]) -> Any:
    """Bits of the packed elements that a kernel reads and writes, or of its dtypes where none is packed.

    The parameters themselves where they are neither, as those of packing, which are the bits.
    """
    packed, plain, left = set(), set(), [*parameters]
    while left:
        each = left.pop()
        if isinstance(each, ElementCodec):
            packed.add(each.bits)
        elif isinstance(each, tuple):
            left += each
        elif each in BITS:
            plain.add(BITS[each])
    return frozenset(packed or plain) or parameters
