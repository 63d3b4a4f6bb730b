"""The measured part of the performance page: charts and bars from the figures of the last benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parents[1] / "benchmarks" / "gpu_results.json"
NOTHING = "No figures of a GPU are recorded in this version: run `make bench-gpu` on one.\n"
Rows = list[dict[str, Any]]


def write_pages(folder: Path, figures: Path = FIGURES) -> None:
    """Write the text to include, and the charts that it shows, into ``folder``."""
    folder.mkdir(exist_ok=True)
    sections = json.loads(figures.read_text()) if figures.exists() else {}
    (folder / "performance_measured.md").write_text(page(sections, folder) if sections else NOTHING)


def page(sections: dict[str, Any], folder: Path) -> str:
    """The text: on what machine, the charts, and the bars."""
    parts = [next(iter(sections.values()))["machine"]]
    moving = rows_with(sections, "moved")
    if moving:
        save(memory_chart(moving), folder / "performance_memory.svg")
        parts.append("![Bytes moved a second as a fraction of a copy](generated/performance_memory.svg)")
    computing = [row for row in rows_with(sections, "flops") if "moved" in row]
    if computing:
        save(roofline(computing, copy_rate(sections)), folder / "performance_roofline.svg")
        parts.append("![Products under the roofline](generated/performance_roofline.svg)")
    bars = [row for section in sections.values() for row in section["rows"] if row["kind"] == "bar"]
    if bars:
        parts.append(bar_table(bars))
    return "\n\n".join(parts) + "\n"


def rows_with(sections: dict[str, Any], figure: str) -> Rows:
    """The timed rows that have a figure."""
    return [
        row
        for section in sections.values()
        for row in section["rows"]
        if row["kind"] == "time" and row.get(figure)
    ]


def copy_rate(sections: dict[str, Any]) -> float:
    """The highest copy rate of the run, bytes a second."""
    return max(
        row["rate"] for section in sections.values() for row in section["rows"] if row["kind"] == "copy"
    )


def memory_chart(rows: Rows) -> Any:
    """A line a kernel: how much of the copy's rate it reaches; peers hollow."""
    from autoq.viz.style import COLOURS, MUTED, new_figure, title

    rows = [row for row in rows if not row.get("flops")] or rows
    figure, (ax,) = new_figure(1, 7.5, 0.8 + 0.2 * len(rows))
    for place, row in enumerate(reversed(rows)):
        look = {"color": "none", "edgecolor": MUTED} if row["peer"] else {"color": COLOURS[1]}
        ax.barh(place, row["of_copy"], height=0.7, **look)
        ax.text(row["of_copy"] + 0.01, place, f"{row['of_copy']:.2f}", va="center", fontsize=6.5)
    ax.axvline(1.0, color=COLOURS[0], linewidth=0.8)
    ax.set_yticks(range(len(rows)), [row["name"] for row in reversed(rows)], fontsize=6.5)
    ax.set_xlim(0, max(1.08, 1.08 * max(row["of_copy"] for row in rows)))
    ax.set_xlabel("bytes that must move over the time, as a fraction of a copy", fontsize=8)
    title(ax, "A copy is the end of what memory allows; peers hollow")
    return figure


def roofline(rows: Rows, rate: float) -> Any:
    """Products: operations a second over operations a byte, under the roofs of the run."""
    from autoq.viz.style import COLOURS, MUTED, new_figure, title

    figure, (ax,) = new_figure(1, 7.5, 4.2)
    points = [(row["flops"] / row["moved"], row["flops"] / row["seconds"]) for row in rows]
    top = max(speed for _, speed in points)
    low, high = min(x for x, _ in points) / 2, max(x for x, _ in points) * 2
    ridge = top / rate
    ax.plot([low, ridge, max(high, 2 * ridge)], [low * rate, top, top], color=COLOURS[0], linewidth=1)
    for row, (x, y) in zip(rows, points, strict=True):
        face = "none" if row["peer"] else COLOURS[1]
        ax.plot(x, y, "o", markerfacecolor=face, markeredgecolor=MUTED if row["peer"] else COLOURS[1])
        ax.annotate(row["name"], (x, y), xytext=(4, -8), textcoords="offset points", fontsize=6)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.minorticks_off()
    ax.set_xlabel("floating-point operations a byte", fontsize=8)
    ax.set_ylabel("operations a second", fontsize=8)
    title(ax, "Products: the slope is the copy's rate, the flat part the fastest product of the run")
    return figure


def save(figure: Any, path: Path) -> None:
    """Write a chart as SVG, the same bytes every time."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "autoq", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})


def bar_table(bars: Rows) -> str:
    """The bars as Markdown: what was asked, what was reached."""
    lines = ["| bar | reached | asked | |", "|---|---:|---:|---|"]
    for row in bars:
        sign, verdict = "≤" if row["at_most"] else "≥", "met" if row["met"] else "missed"
        lines.append(f"| {row['name']} | {row['reached']:.3f} | {sign} {row['bar']:g} | {verdict} |")
    return "\n".join(lines)
