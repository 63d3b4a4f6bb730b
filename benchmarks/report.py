"""RESULTS.md: one section a script, each with the machine and the versions it was measured on."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
HEAD = "# Results\n\nWhat the scripts in this folder measured last. Each section names its machine.\n"
PACKAGES = ("numpy", "numba", "ml_dtypes", "torch", "torchao")


def machine() -> str:
    """The processor, its cores and the versions at play, as one sentence."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and (found := re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text())):
        model = found[1]
    flags = cpuinfo.read_text() if cpuinfo.exists() else ""
    vectors = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    versions = ", ".join(f"{name} {installed(name)}" for name in PACKAGES)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{date.today()}; {model}, {cores} cores, {vectors}; Python {platform.python_version()}, {versions}."
    )


def installed(package: str) -> str:
    """A package's version, or ``not installed``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as Markdown; the first column flush left, the others flush right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_section(name: str, body: str, path: Path = RESULTS) -> None:
    """Put a section into the file, in place of the last one of that name."""
    section = f"<!-- {name} -->\n{body.strip()}\n<!-- end of {name} -->\n"
    text = path.read_text() if path.exists() else HEAD
    pattern = re.compile(rf"<!-- {name} -->.*<!-- end of {name} -->\n", re.DOTALL)
    found = pattern.search(text)
    text = pattern.sub(lambda _: section, text) if found else f"{text.rstrip()}\n\n{section}"
    path.write_text(text)
