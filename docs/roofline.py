"""The measured part of the performance page: charts and bars from the figures of the last benchmark."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parents[1] / "benchmarks" / "gpu_results.json"
NOTHING = "No figures of a GPU are recorded in this version: run `make bench-gpu` on one.\n"
Rows = list[dict[str, Any]]
PRODUCTS = ("matmul",)  # sections that stand under the roofline alone
BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}  # of a number on a line
VARIANT = re.compile(
    r": | tiles by |\d (threads|waves)|rows of (64|1024|16384|131072)\b|bfloat16 rows|FP8 words|fast sums"
)


def write_pages(folder: Path, figures: Path = FIGURES) -> None:
    """Write the text to include, and the charts that it shows, into ``folder``."""
    folder.mkdir(exist_ok=True)
    sections = json.loads(figures.read_text()) if figures.exists() else {}
    (folder / "performance_measured.md").write_text(page(sections, folder) if sections else NOTHING)


def page(sections: dict[str, Any], folder: Path) -> str:
    """The text: on what machine, the charts, and the bars."""
    parts = [next(iter(sections.values()))["machine"]]
    for name, section in sections.items():
        moving = [row for row in rows_with({name: section}, "moved") if is_usual(row["name"])]
        if moving and name not in PRODUCTS:
            save(memory_chart(moving, name), folder / f"performance_{name}.svg")
            parts.append(
                f"![{name}: bytes a second as a fraction of a copy's](generated/performance_{name}.svg)"
            )
    computing = [row for row in rows_with(sections, "flops") if "moved" in row and is_usual(row["name"])]
    if computing:
        save(roofline(computing, copy_rate(sections)), folder / "performance_roofline.svg")
        parts.append("![Products under the roofline](generated/performance_roofline.svg)")
    bars = [row for section in sections.values() for row in section["rows"] if row["kind"] == "bar"]
    if bars:
        parts.append(bar_table(bars))
    return "\n\n".join(parts) + "\n"


def is_usual(name: str) -> bool:
    """Whether a row is no variant of another: other launches, or rows of other lengths.

    Example:
        >>> is_usual("mxfp8 from float32"), is_usual("softmax, 8 waves"), is_usual("softmax, rows of 4096")
        (True, False, True)
    """
    return VARIANT.search(name) is None


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


def memory_chart(rows: Rows, section: str) -> Any:
    """A line a kernel: how much of the copy's rate it reaches; peers hollow."""
    from autoq.viz.style import COLOURS, MUTED, new_figure, title

    figure, (ax,) = new_figure(1, 7.5, 1.1 + 0.17 * len(rows))
    for place, row in enumerate(reversed(rows)):
        look = {"color": "none", "edgecolor": MUTED} if row["peer"] else {"color": COLOURS[1]}
        ax.barh(place, row["of_copy"], height=0.7, **look)
        ax.text(row["of_copy"] + 0.01, place, f"{row['of_copy']:.2f}", va="center", fontsize=6.5, bbox=BEHIND)
    ax.axvline(1.0, color=COLOURS[0], linewidth=0.8)
    ax.set_yticks(range(len(rows)), [row["name"] for row in reversed(rows)], fontsize=6.5)
    ax.set_ylim(-0.7, len(rows) - 0.3)
    ax.set_xlim(0, max(1.08, 1.08 * max(row["of_copy"] for row in rows)))
    ax.set_xlabel("bytes that must move over the time, as a fraction of a copy", fontsize=8)
    title(ax, f"{section.capitalize()}: a copy is the end of what memory allows; peers hollow")
    return figure


def roofline(rows: Rows, rate: float) -> Any:
    """Products: operations a second over operations a byte, under the roofs of the run."""
    from autoq.viz.style import COLOURS, MUTED, new_figure, title

    figure, (ax,) = new_figure(1, 7.5, max(4.2, 0.2 * len(rows)))
    points = [(row["flops"] / row["moved"], row["flops"] / row["seconds"]) for row in rows]
    top = max(speed for _, speed in points)
    low, high = min(x for x, _ in points) / 2, max(x for x, _ in points) * 2
    ridge = top / rate
    ax.plot([low, ridge, max(high, 2 * ridge)], [low * rate, top, top], color=COLOURS[0], linewidth=1)
    # Names in a column beside the axes, in the order of the points, each with a line to its own.
    named = sorted(zip(rows, points, strict=True), key=lambda pair: pair[1][1])
    for place, (row, (x, y)) in enumerate(named):
        face = "none" if row["peer"] else COLOURS[1]
        ax.plot(x, y, "o", markerfacecolor=face, markeredgecolor=MUTED if row["peer"] else COLOURS[1])
        ax.annotate(
            f"{row['name']}: {y / 1e12:,.0f} T/s",
            (x, y),
            xytext=(1.03, (place + 0.5) / len(named)),
            textcoords="axes fraction",
            fontsize=6,
            va="center",
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.3, "relpos": (0, 0.5)},
        )
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
        figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})


def bar_table(bars: Rows) -> str:
    """The bars as Markdown: what was asked, what was reached."""
    lines = ["| bar | reached | asked | |", "|---|---:|---:|---|"]
    for row in bars:
        sign, verdict = "≤" if row["at_most"] else "≥", "met" if row["met"] else "missed"
        lines.append(f"| {row['name']} | {row['reached']:.3f} | {sign} {row['bar']:g} | {verdict} |")
    return "\n".join(lines)
