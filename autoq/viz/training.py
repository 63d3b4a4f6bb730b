"""Charts of a training run: its loss, what quantization costs each layer, where the weights lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autoq.viz.error import TensorError, on_host, scale_of_each_value
from autoq.viz.style import COLOURS, MARKERS, colour, label_ends, new_figure, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from autoq.storage.qtensor import QTensor


def loss_curves(
    train: Mapping[str, Sequence[float]],
    test: Mapping[str, Sequence[float]] | None = None,
    label: str = "cross-entropy, nats",
) -> Figure:
    """A loss after each epoch, on the training set and on the test set, one line a run.

    Args:
        train: Loss after epochs 1, 2, … by the name of the run.
        test: The same on the test set; without it there is one panel.
        label: What the loss is, and its unit.

    Example:
        >>> figure = loss_curves({"float32": [2.0, 1.0]}, {"float32": [2.1, 1.3]})
        >>> figure.axes[1].lines[0].get_ydata().tolist()
        [2.1, 1.3]
    """
    panels = {"Training set": train} if test is None else {"Training set": train, "Test set": test}
    figure, axes = new_figure(len(panels), 4.5 * len(panels), 3.4, sharey=True)
    for ax, (heading, losses) in zip(axes, panels.items(), strict=True):
        for position, values in enumerate(losses.values()):
            marker = "o" if len(values) == 1 else ""  # a line of one point shows nothing
            epochs = np.arange(1, len(values) + 1)
            ax.plot(epochs, values, color=colour(position), linewidth=1.5, marker=marker, markersize=4.5)
        ax.set_yscale("log")
        ax.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        ax.set_xlabel("epoch", fontsize=8.5)
        title(ax, heading)
    axes[0].set_ylabel(label, fontsize=8.5)
    runs = enumerate((train if test is None else test).items())
    label_ends(axes[-1], [(len(values), values[-1], name, colour(i)) for i, (name, values) in runs])
    return figure


def quantization_error(errors: Mapping[str, Sequence[TensorError]]) -> Figure:
    """What encoding costs each tensor of a network: SQNR, share saturated, share flushed to zero.

    Args:
        errors: Records from the first layer to the last, by the name of the run. Runs may have
            different tensors; a run whose tensors are all exact is left out by giving none.

    Example:
        >>> figure = quantization_error({"mxfp8": [TensorError("input", 31.0, 0.0, 0.01)]})
        >>> [ax.get_xlabel() for ax in figure.axes]
        ['SQNR, dB', 'saturated, %', 'flushed to zero, %']
    """
    names = list(dict.fromkeys(error.name for run in errors.values() for error in run))
    figure, axes = new_figure(3, 9.0, 1.4 + 0.42 * len(names), sharey=True)
    for ax, (label, value) in zip(axes, _MEASURES.items(), strict=True):
        for position, (run, records) in enumerate(errors.items()):
            heights = [names.index(record.name) + _offset(position, len(errors)) for record in records]
            values = [value(record) for record in records]
            look = {
                "color": colour(1 + position),
                "marker": MARKERS[position % len(MARKERS)],
                "markersize": 4.5,
            }
            ax.plot(values, heights, linestyle="", label=run, clip_on=False, zorder=5, **look)
        ax.set_xlabel(label, fontsize=8.5)
        ax.set_xlim(0, max(1.0, 1.15 * ax.get_xlim()[1]))
    _mark_exact(axes[0], names, errors)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), frameon=False, fontsize=8.5)
    return figure


def _mark_exact(ax: Axes, names: Sequence[str], errors: Mapping[str, Sequence[TensorError]]) -> None:
    """Write ``exact`` where a tensor has no error at all: infinity has no place on an axis."""
    for position, records in enumerate(errors.values()):
        for record in records:
            if np.isinf(record.sqnr):
                place = (1.0, names.index(record.name) + _offset(position, len(errors)))
                style = {"color": colour(1 + position), "fontsize": 7.5, "ha": "right", "va": "center"}
                ax.text(*place, "exact", transform=ax.get_yaxis_transform(), **style)


def _offset(position: int, runs: int) -> float:
    """How far below its row a run's marker lies, so that equal values do not hide each other."""
    return 0.24 * (position - (runs - 1) / 2)


_MEASURES = {
    "SQNR, dB": lambda error: error.sqnr,
    "saturated, %": lambda error: 100 * error.saturated,
    "flushed to zero, %": lambda error: 100 * error.flushed,
}


def weight_histogram(weights: Mapping[str, tuple[Any, QTensor | None]], bins: int = 120) -> Figure:
    """Where the weights lie between the values that their format can represent, one panel a run.

    Weights are shown divided by the scale of their block, where the representable values stand still.

    Args:
        weights: By the name of the run: the float weights, and their encoding or None; arrays and QTensors,
            or tensors, on any device.
        bins: Bars a panel.

    Example:
        >>> import autoq as aq
        >>> w = np.linspace(-1, 1, 64, dtype=np.float32)
        >>> figure = weight_histogram({"int4": (w, aq.QTensor.quantize(w, aq.int4))})
        >>> figure.axes[0].get_xlabel()
        'weight / scale of its block'
    """
    figure, axes = new_figure(len(weights), max(4.5, 3.4 * len(weights)), 3.0)
    for ax, (name, (values, q)) in zip(axes, weights.items(), strict=True):
        values, q = on_host(values), getattr(q, "qtensor", q)
        title(ax, name if q is None else f"{name}\n")
        if q is None:
            _histogram(ax, values.ravel(), bins, "weight")
        else:
            _scaled_histogram(ax, values, q.to("cpu"), bins)
    axes[0].set_ylabel("weights", fontsize=8.5)
    return figure


def _scaled_histogram(ax: Axes, values: np.ndarray, q: QTensor, bins: int) -> None:
    scales = scale_of_each_value(q)
    units = np.divide(values, scales, out=np.zeros(values.shape, np.float32), where=scales > 0)
    element = q.scheme.element_format
    marks = np.unique(element.values[np.isfinite(element.values)])
    marks = marks[(marks >= element.minimum) & (marks <= element.maximum)]
    _histogram(ax, units.ravel(), bins, "weight / scale of its block")
    # A rug where there are too many values for a line each.
    top = 1.0 if len(marks) <= 40 else 0.06
    place = ax.get_xaxis_transform()
    ax.vlines(marks, 0, top, color=COLOURS[2], linewidth=0.8, transform=place)
    style = {"va": "bottom", "fontsize": 8, "color": COLOURS[2], "transform": ax.transAxes}
    ax.text(0.0, 1.01, f"{len(marks)} representable values", **style)


def _histogram(ax: Axes, values: np.ndarray, bins: int, label: str) -> None:
    ax.hist(values, bins=bins, color="#9fc5dd", linewidth=0)
    ax.set_xlabel(label, fontsize=8.5)
