"""The look of every chart: colours that colour-blind readers tell apart, few lines, labels at the lines."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito, "Color Universal Design": black first, the pale yellow left out.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
MUTED = "#6e6e6e"


def colour(position: int) -> str:
    """The colour of the line at ``position``; after the last one they start again."""
    return COLOURS[position % len(COLOURS)]


def new_figure(columns: int, width: float, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of one row of axes, in inches; it belongs to no window and needs no display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    # A notebook shows what has this method; figures that pyplot does not know are not shown otherwise.
    figure._repr_png_ = lambda: png(figure)
    grid = figure.subplots(1, columns, squeeze=False, **options)
    axes = list(grid[0])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8, colors=MUTED)
        ax.grid(axis="y", color="#e8e8e8", linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, axes


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def title(ax: Axes, text: str) -> None:
    """A title that reads as a sentence, flush left."""
    ax.set_title(text, loc="left", fontsize=9.5)


def label_ends(ax: Axes, ends: Sequence[tuple[float, float, str, str]], gap: float = 0.055) -> None:
    """Write names beside the ends of lines, moved apart so that none covers another.

    Args:
        ax: The axes, their data and scales already set.
        ends: ``(x, y, name, colour)`` of each line's end, in data coordinates.
        gap: Least distance of two labels, as a fraction of the axes' height.
    """
    ax.autoscale_view()  # of axes that share limits, those of the last data
    to_axes = ax.transData + ax.transAxes.inverted()
    wanted = [float(to_axes.transform((x, y))[1]) for x, y, _, _ in ends]
    for height, (_, _, name, shade) in zip(spread(wanted, gap), ends, strict=True):
        ax.text(1.01, height, name, color=shade, fontsize=8, va="center", transform=ax.transAxes)


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Positions at least ``gap`` apart, in the same order, as near to the wanted ones as moving up allows.

    Example:
        >>> spread([0.5, 0.5, 0.9], gap=0.1)
        [0.45, 0.55, 0.9]
    """
    order = np.argsort(positions, kind="stable")
    placed = np.asarray(positions, dtype=float)[order]
    for _ in range(100 * len(placed)):
        overlap = gap - np.diff(placed)
        if not (overlap > 1e-9).any():
            break
        worst = int(np.argmax(overlap))
        placed[worst] -= overlap[worst] / 2
        placed[worst + 1] += overlap[worst] / 2
    result = np.empty_like(placed)
    result[order] = placed
    return [round(float(value), 9) for value in result]
