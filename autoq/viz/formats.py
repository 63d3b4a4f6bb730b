"""Charts of number formats: which values exist, and what the rules for a block's scale do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from autoq.errors import ArgumentError
from autoq.schemes.catalog import scheme as find_scheme
from autoq.schemes.scheme import QuantScheme
from autoq.storage.qtensor import QTensor
from autoq.viz.error import saturated
from autoq.viz.style import COLOURS, MUTED, colour, new_figure, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def representable_values(*schemes: QuantScheme | str) -> Figure:
    """The values a block can hold when its largest magnitude is 1: evenly spaced axis, and octaves.

    Args:
        *schemes: Schemes or their names, drawn from the top down.

    Example:
        >>> figure = representable_values("int4", "mxfp4")
        >>> [round(float(x), 3) for x in figure.axes[0].lines[1].get_xdata()]
        [0.0, 0.083, 0.167, 0.25, 0.333, 0.5, 0.667, 1.0]
    """
    chosen = [find_scheme(item) for item in schemes]
    if not chosen:
        raise ArgumentError("representable_values: no scheme", "one or more", 'Pass a name, such as "mxfp8".')
    figure, axes = new_figure(2, 9.0, 1.2 + 0.4 * len(chosen), sharey=True)
    for row, scheme in enumerate(chosen):
        values = relative_values(scheme)
        for ax, shown in zip(axes, (values, values[values > 0]), strict=True):
            ax.plot(
                shown,
                np.full(len(shown), row),
                linestyle="",
                marker="|",
                markersize=13,
                markeredgewidth=1,
                color=colour(row),
            )
    axes[0].set_yticks(range(len(chosen)), [_row_label(scheme) for scheme in chosen])
    axes[0].set_ylim(len(chosen) - 0.4, -0.6)
    axes[1].set_xscale("log", base=2)
    for ax, text in zip(axes, ("Evenly spaced axis", "Octaves: zero is left out"), strict=True):
        ax.set_xlabel("magnitude / largest of the block", fontsize=8.5)
        title(ax, text)
    return figure


def relative_values(scheme: QuantScheme) -> np.ndarray:
    """The magnitudes of a scheme's element, ascending, divided by the largest."""
    element = scheme.element_format
    values = np.unique(np.abs(element.values[np.isfinite(element.values) & (element.values >= 0)]))
    return values[values <= element.maximum] / element.maximum


def scale_rules(
    scheme: QuantScheme | str = "mxfp4", rules: Sequence[str] | None = None, octaves: int = 2
) -> Figure:
    """What each scale rule leaves of a block's largest value: decoded over exact, one panel a rule.

    Dotted lines separate the scales that the rule takes, ×1, ×2 and so on. The curve is red where the
    value saturates (S20).

    Args:
        scheme: A scheme or its name; its rule is replaced by each of ``rules`` in turn.
        rules: Names of scale rules; all that the scheme's scale format offers by default.
        octaves: How many doublings to show, from the largest element value up.

    Example:
        >>> figure = scale_rules("mxfp4", rules=("floor", "round_up"))
        >>> [ax.get_title(loc="left") for ax in figure.axes]
        ['floor', 'round_up']
    """
    base = find_scheme(scheme)
    names = tuple(rules or base.scale_format.rules)
    amax = np.geomspace(1, 2**octaves, 1200, dtype=np.float32) * np.float32(base.element_format.maximum)
    figure, axes = new_figure(len(names), 2.3 * len(names), 2.9, sharey=True, sharex=True)
    for ax, name in zip(axes, names, strict=True):
        _draw_rule(ax, base.replace(scale_rule=name), amax)
        title(ax, name)
    axes[0].set_ylabel("decoded / exact", fontsize=8.5)
    figure.supxlabel(f"largest magnitude of a block in {base.name}", fontsize=8.5)
    return figure


def _draw_rule(ax: Axes, scheme: QuantScheme, amax: np.ndarray) -> None:
    scales, kept, beyond = largest_value(scheme, amax)
    ax.axhline(1, color=MUTED, linewidth=0.8)
    ax.plot(amax, np.where(beyond, np.nan, kept), color=COLOURS[1], linewidth=1.5)
    ax.plot(amax, np.where(beyond, kept, np.nan), color=COLOURS[2], linewidth=2.2)
    ax.set_xscale("log", base=2)
    edges = [0, *(np.flatnonzero(np.diff(scales)) + 1), len(amax)]
    for start, stop in zip(edges[:-1], edges[1:], strict=True):
        if start:
            ax.axvline(amax[start], color=MUTED, linewidth=0.8, linestyle=":")
        middle = float(np.sqrt(amax[start] * amax[stop - 1]))
        if stop - start > len(amax) // 12:
            style = {"ha": "center", "fontsize": 7.5, "color": MUTED, "transform": ax.get_xaxis_transform()}
            ax.text(middle, 0.97, f"×{scales[start]:g}", **style)
    if beyond.any():
        worst = int(np.argmin(np.where(beyond, kept, np.inf)))
        style = {"ha": "right", "va": "top", "fontsize": 8, "color": COLOURS[2]}
        ax.annotate("saturates", (amax[worst], kept[worst]), (-4, 2), textcoords="offset points", **style)


def largest_value(scheme: QuantScheme, amax: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The fate of the largest value of a block, for many blocks.

    Args:
        scheme: A scheme with blocks along the last axis and no tensor scale.
        amax: (n,) float32 largest magnitudes.

    Returns:
        Three arrays of shape (n,): the block's scale, decoded over exact, and whether the value saturates.
    """
    q = QTensor.quantize(amax[:, None], scheme)
    kept = q.dequantize()[:, 0] / amax
    return scheme.scale_format.decode(q.scales)[:, 0], kept, saturated(amax[:, None], q)[:, 0]


def _row_label(scheme: QuantScheme) -> str:
    return f"{scheme.name}, {scheme.bits_per_value:g} bits"
