"""The charts draw what the data says: points, labels and counts are read back from the figures."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.viz.formats import largest_value, relative_values
from autoq.viz.style import spread
from autoq.viz.training import TensorError

WEIGHTS = np.random.default_rng(0).standard_normal((16, 64), dtype=np.float32)


def labels(ax):
    return {text.get_text(): text for text in ax.texts}


def test_loss_curves_draw_each_run_in_both_panels_and_name_it_in_its_colour():
    train, test = {"a": [2.0, 1.0, 0.5], "b": [2.0, 1.5, 1.2]}, {"a": [2.1, 1.4, 0.9], "b": [2.2, 1.9, 1.7]}
    figure = aq.viz.loss_curves(train, test)
    for ax, losses in zip(figure.axes, (train, test), strict=True):
        assert [line.get_ydata().tolist() for line in ax.lines] == list(losses.values())
        assert ax.lines[0].get_xdata().tolist() == [1, 2, 3]
    named = labels(figure.axes[1])
    assert named["a"].get_position()[1] < named["b"].get_position()[1]
    for ax in figure.axes:
        assert [named[name].get_color() for name in test] == [line.get_color() for line in ax.lines]


def test_names_stand_where_the_lines_end_also_outside_the_limits_of_the_first_panel():
    figure = aq.viz.loss_curves({"a": [2.0, 1.9], "b": [2.1, 2.0]}, {"a": [2.2, 3.0], "b": [2.2, 9.0]})
    ax = figure.axes[1]
    for line, name in zip(ax.lines, ("a", "b"), strict=True):
        end = (ax.transData + ax.transAxes.inverted()).transform((2, line.get_ydata()[-1]))[1]
        assert 0 < end < 1
        assert labels(ax)[name].get_position()[1] == pytest.approx(end, abs=1e-6)


def test_one_epoch_shows_as_points_over_its_number():
    figure = aq.viz.loss_curves({"a": [2.0], "b": [2.1]}, {"a": [2.2], "b": [2.3]})
    for ax in figure.axes:
        assert [line.get_marker() for line in ax.lines] == ["o", "o"]
        assert [tick for tick in ax.get_xticks() if 0.9 < tick < 1.1] == [1.0]
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_without_a_test_set_there_is_one_panel_with_the_label_that_is_asked_for():
    (ax,) = aq.viz.loss_curves({"a": [2.0, 1.0, 0.5]}, label="mean squared error").axes
    assert ax.get_ylabel() == "mean squared error"
    assert list(labels(ax)) == ["a"]


def test_epochs_are_whole_numbers_on_the_axis():
    losses = {"a": [1.0, 0.9, 0.8, 0.7, 0.6]}
    for ax in aq.viz.loss_curves(losses, losses).axes:
        assert all(tick == round(tick) for tick in ax.get_xticks())


def test_more_runs_than_colours_are_all_drawn():
    losses = {f"run {i}": [1.0, 1.0 / (i + 1)] for i in range(9)}
    figure = aq.viz.loss_curves(losses, losses)
    assert [len(ax.lines) for ax in figure.axes] == [9, 9]
    errors = {name: [TensorError("input", 20.0, 0.0, 0.0)] for name in losses}
    assert [len(ax.lines) for ax in aq.viz.quantization_error(errors).axes] == [9, 9, 9]


def test_a_notebook_shows_a_chart():
    figure = aq.viz.representable_values("mxfp4")
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_labels_of_nearby_lines_do_not_overlap():
    placed = spread([0.5, 0.501, 0.499, 0.1], gap=0.05)
    assert np.all(np.diff(np.sort(placed)) >= 0.05 - 1e-6)
    assert np.argsort(placed).tolist() == [3, 2, 0, 1]


def test_quantization_error_puts_each_record_in_its_row_and_panel():
    runs = {
        "mxfp8": [TensorError("input", 30.0, 0.0, 0.25), TensorError("layer", 28.0, 0.1, 0.0)],
        "int4": [TensorError("layer", 15.0, 0.0, 0.5)],
    }
    sqnr, saturated, flushed = aq.viz.quantization_error(runs).axes
    assert [text.get_text() for text in sqnr.get_yticklabels()] == ["input", "layer"]
    assert sqnr.lines[0].get_xdata().tolist() == [30.0, 28.0]
    assert saturated.lines[0].get_xdata().tolist() == [0.0, 10.0]
    assert flushed.lines[1].get_xdata().tolist() == [50.0]
    assert [round(y) for y in flushed.lines[1].get_ydata()] == [1]


def test_an_exact_tensor_is_written_as_exact():
    figure = aq.viz.quantization_error(
        {"run": [TensorError("input", 20.0, 0, 0), TensorError("relu", np.inf, 0, 0)]}
    )
    assert "exact" in labels(figure.axes[0])


def test_weight_histogram_counts_every_weight_and_marks_every_representable_value():
    q = aq.QTensor.quantize(WEIGHTS, aq.nvfp4)
    packed, plain = aq.viz.weight_histogram({"nvfp4": (WEIGHTS, q), "float32": (WEIGHTS, None)}).axes
    assert sum(bar.get_height() for bar in packed.patches) == WEIGHTS.size
    assert sum(bar.get_height() for bar in plain.patches) == WEIGHTS.size
    marks = [segment[0][0] for segment in packed.collections[0].get_segments()]
    assert marks == sorted({*(-v for v in E2M1), *E2M1})
    assert "15 representable values" in labels(packed)
    assert not plain.collections


E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def test_representable_values_are_those_of_the_record_over_the_largest():
    assert relative_values(aq.mxfp4).tolist() == pytest.approx([v / 6 for v in E2M1])
    assert len(relative_values(aq.int8)) == 128
    even, octaves = aq.viz.representable_values("mxfp4", aq.int4).axes
    assert len(even.lines[0].get_xdata()) == 8
    assert len(octaves.lines[0].get_xdata()) == 7
    assert [text.get_text() for text in even.get_yticklabels()] == ["mxfp4, 4.25 bits", "int4, 5 bits"]


def test_representable_values_of_nothing_is_an_error_that_says_what_to_pass():
    with pytest.raises(aq.errors.ArgumentError, match="one or more"):
        aq.viz.representable_values()


@pytest.mark.parametrize(
    ("rule", "scales", "left"),
    [("floor", [1.0, 1.0], 0.75), ("round_up", [1.0, 2.0], 1.0), ("ceil", [2.0, 2.0], 1.0)],
)
def test_scale_rules_show_where_the_largest_value_saturates(rule, scales, left):
    amax = np.array([6.0, 8.0 - 2**-20], np.float32)
    taken, kept, beyond = largest_value(aq.mxfp4.replace(scale_rule=rule), amax)
    assert taken.tolist() == scales
    assert kept[1] == pytest.approx(left, rel=1e-6)
    assert beyond.tolist() == [False, rule == "floor"]


def test_scale_rules_draw_one_panel_a_rule_and_mark_saturation_in_it():
    panels = {ax.get_title(loc="left"): ax for ax in aq.viz.scale_rules("mxfp4").axes}
    assert list(panels) == ["round_up", "floor", "ceil", "even"]
    assert [name for name, ax in panels.items() if "saturates" in labels(ax)] == ["floor"]
    assert {"×1", "×2"} <= set(labels(panels["floor"]))
