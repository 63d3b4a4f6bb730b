"""What CuPy offers, as a table that the stand-in is held to; run as a program it writes the table anew.

``python -m tests.device.names`` needs CuPy installed, no device. A line of the table is a name with its
package, then ``ufunc``, or ``function`` and the names of its parameters; ``?`` where CuPy doesn't tell them.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any, NamedTuple

TABLE = Path(__file__).with_name("cupy_names.txt")
PACKAGES = ("cupy", "cupy.linalg", "cupy.lib.stride_tricks", "cupyx")


class Offered(NamedTuple):
    """One name of CuPy.

    Attributes:
        ufunc: Whether it is a universal function.
        parameters: What it may be called with; None where that isn't known.
    """

    ufunc: bool
    parameters: tuple[str, ...] | None


def offered() -> dict[str, Offered]:
    """The table, by full name."""
    found = {}
    for line in TABLE.read_text().splitlines():
        name, kind, *parameters = line.split()
        found[name] = Offered(kind == "ufunc", None if parameters == ["?"] else tuple(parameters))
    return found


def write() -> None:
    """Write the table from the CuPy that is installed."""
    lines = []
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(dir(module)):
            line = _line(f"{package}.{name}", getattr(module, name))
            if line is not None and not name.startswith("_"):
                lines.append(line)
    TABLE.write_text("\n".join(lines) + "\n")


def _line(name: str, value: Any) -> str | None:
    if type(value).__name__ in ("ufunc", "_GUFunc"):
        return f"{name} ufunc"
    if not inspect.isroutine(value):
        return None
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return f"{name} function ?"
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return " ".join([name, "function", *(stars.get(p.kind, "") + p.name for p in parameters)])


if __name__ == "__main__":
    write()
