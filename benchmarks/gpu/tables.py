"""Tables of the GPU benchmark, from the JSON of its sections: short ones to read, Markdown to keep."""

from __future__ import annotations

import json
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "cupy-cuda13x", "cupy-cuda12x", "numba-cuda", "nvmath-python", "torch", "torchao")
HEADER = ("work", "µs (quartiles)", "TB/s", "of copy", "TFLOP/s", "launches")


def load(folder: Path) -> dict[str, dict[str, Any]]:
    """The sections of a folder, by name."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {section["section"]: section for section in found if "section" in section}


def rows_of(section: dict[str, Any], *kinds: str) -> list[dict[str, Any]]:
    """A section's rows of some kinds."""
    return [row for row in section["rows"] if row["kind"] in kinds]


def cells(row: dict[str, Any]) -> list[str]:
    """A timed row as the cells of a table."""
    name = f"*{row['name']}*" if row.get("peer") else row["name"]
    if row["kind"] == "figure":
        return [name, f"{row['value']:,.4g} {row['unit']}", "", "", "", ""]
    times = " to ".join(f"{row[key] * 1e6:.1f}" for key in ("low", "high"))
    host = "" if row["kind"] == "time" else f" {row['kind']}"
    moved, flops = row.get("moved"), row.get("flops")
    return [
        name,
        f"{row['seconds'] * 1e6:.1f} ({times}){host}",
        f"{moved / row['seconds'] / 1e12:.2f}" if moved else "",
        f"{row['of_copy']:.3f}" if moved else "",
        f"{flops / row['seconds'] / 1e12:.0f}" if flops else "",
        "" if row.get("launches") is None else f"{row['launches']}",
    ]


def bar_line(row: dict[str, Any]) -> str:
    """A bar as a line: what was reached, what is asked."""
    sign = "<=" if row["at_most"] else ">="
    return (
        f"{'met   ' if row['met'] else 'MISSED'} {row['name']}: {row['reached']:.3f} / {sign} {row['bar']:g}"
    )


def summary(section: dict[str, Any]) -> str:
    """A section in a few lines for a terminal: how it ended, what is wrong, times, bars."""
    lines = [f"== {section['section']}: {section['state']}"]
    checks = rows_of(section, "check")
    wrong = [row for row in checks if not row["passed"]]
    lines += [f"  {len(checks) - len(wrong)} of {len(checks)} checks right"]
    lines += [f"  WRONG {row['name']} {row['detail']}" for row in wrong]
    for row in rows_of(section, "copy", "time", "host", "wall", "figure"):
        if row["kind"] == "copy":
            lines.append(f"  copy {row['rate'] / 1e12:.2f} TB/s")
        else:
            name, *rest = cells(row)
            lines.append(f"  {name.strip('*')}: {' | '.join(cell for cell in rest if cell)}")
    lines += [f"  note: {row['name']}" for row in rows_of(section, "note")]
    return "\n".join(lines + [f"  {bar_line(row)}" for row in rows_of(section, "bar")])


def short(section: dict[str, Any]) -> str:
    """What must not be missed of a section: how it ended, what is wrong, its bars."""
    wrong = [
        f"  WRONG {row['name']} {row['detail'][:200]}"
        for row in rows_of(section, "check")
        if not row["passed"]
    ]
    bars = [f"  {bar_line(row)}" for row in rows_of(section, "bar")]
    return "\n".join([f"== {section['section']}: {section['state'][:200]}", *wrong, *bars])


def markdown(section: dict[str, Any]) -> str:
    """A section for RESULTS.md."""
    from report import markdown_table

    parts = [f"### GPU: {section['section']}"]
    copies = rows_of(section, "copy")
    if copies:
        rate = f"{copies[0]['rate'] / 1e12:.2f} TB/s"
        parts.append(f"A device-to-device copy in this run: {rate}. Peers in italics.")
    timed = [cells(row) for row in rows_of(section, "time", "host", "wall", "figure")]
    if timed:
        parts.append(markdown_table(HEADER, timed))
    bars = rows_of(section, "bar")
    if bars:
        table = [
            [row["name"], f"{row['reached']:.3f}", f"{'≤' if row['at_most'] else '≥'} {row['bar']:g}",
             "met" if row["met"] else "missed"]
            for row in bars
        ]  # fmt: skip
        parts.append(markdown_table(("bar", "reached", "asked", ""), table))
    checks = rows_of(section, "check")
    right = sum(row["passed"] for row in checks)
    parts.append(f"Checked in the same run: {right} of {len(checks)} right.")
    parts += [row["name"] for row in rows_of(section, "note")]
    if section["state"] != "done":
        parts.append(f"The section ended early: {section['state']}.")
    return "\n\n".join(parts)


def machine() -> str:
    """The device and the versions at play, as one sentence; asks the device."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    driver = cupy.cuda.runtime.driverGetVersion()
    versions = ", ".join(f"{name} {found}" for name in PACKAGES if (found := installed(name)))
    return (
        f"{date.today()}; {properties['name'].decode()}, {properties['multiProcessorCount']} SMs, "
        f"CUDA {driver // 1000}.{driver % 1000 // 10} driver; Python {platform.python_version()}, {versions}."
    )


def installed(package: str) -> str:
    """A package's version, empty where it isn't installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
