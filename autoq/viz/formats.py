"""Charts of number formats: which values exist, and what the rules for a block's scale do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from autoq.errors import ArgumentError
from autoq.schemes.catalog import scheme as find_scheme
from autoq.schemes.scheme import QuantScheme
from autoq.storage.qtensor import QTensor
from autoq.viz.style import COLOURS, MUTED, label_ends, new_figure, title

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
    for row, (scheme, colour) in enumerate(zip(chosen, _cycle(len(chosen)), strict=True)):
        values = relative_values(scheme)
        for ax, shown in zip(axes, (values, values[values > 0]), strict=True):
            ax.plot(shown, np.full(len(shown), row), linestyle="", marker="|", markersize=13, color=colour)
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
    values = np.unique(element.values[np.isfinite(element.values) & (element.values >= 0)])
    return values[values <= element.maximum] / element.maximum


def scale_rules(
    scheme: QuantScheme | str = "mxfp4", rules: Sequence[str] | None = None, octaves: int = 2
) -> Figure:
    """What each scale rule does to a block's largest value: the scale taken, and what is left of the value.

    Args:
        scheme: A scheme or its name; its rule is replaced by each of ``rules`` in turn.
        rules: Names of scale rules; all that the scheme's scale format offers by default.
        octaves: How many doublings to show, from the largest element value up.

    Example:
        >>> figure = scale_rules("mxfp4", rules=("floor", "round_up"))
        >>> [text.get_text() for text in figure.axes[1].texts]
        ['floor', 'round_up']
    """
    base = find_scheme(scheme)
    names = tuple(rules or base.scale_format.rules)
    amax = np.geomspace(1, 2**octaves, 1200, endpoint=False, dtype=np.float32) * base.element_format.maximum
    figure, (left, right) = new_figure(2, 9.0, 3.4)
    ends: tuple[list, list] = ([], [])
    for name, colour in zip(names, _cycle(len(names)), strict=True):
        scales, kept = scale_and_kept(base.replace(scale_rule=name), amax)
        for ax, values, end in zip((left, right), (scales, kept), ends, strict=True):
            ax.plot(
                amax, values, color=colour, linewidth=1.5, drawstyle="steps-post" if ax is left else "default"
            )
            end.append((amax[-1], values[-1], name, colour))
    right.axhline(1, color=MUTED, linewidth=0.8, linestyle=":", zorder=0)
    _finish(left, "scale of the block", f"{base.name}: the scale each rule takes")
    _finish(right, "decoded / exact", "What is left of the largest value")
    left.set_yscale("log", base=2)
    for ax, end in zip((left, right), ends, strict=True):
        label_ends(ax, end)
    return figure


def scale_and_kept(scheme: QuantScheme, amax: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scale of one block for each of its largest values, and the largest value decoded over exact.

    Args:
        scheme: A scheme with blocks along the last axis and no tensor scale.
        amax: (n,) float32 largest magnitudes.

    Returns:
        Two float32 arrays of shape (n,).
    """
    q = QTensor.quantize(amax[:, None], scheme)
    return scheme.scale_format.decode(q.scales)[:, 0], q.dequantize()[:, 0] / amax


def _finish(ax: Axes, label: str, heading: str) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xlabel("largest magnitude of the block", fontsize=8.5)
    ax.set_ylabel(label, fontsize=8.5)
    title(ax, heading)


def _row_label(scheme: QuantScheme) -> str:
    return f"{scheme.name}, {scheme.bits_per_value:g} bits"


def _cycle(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]
