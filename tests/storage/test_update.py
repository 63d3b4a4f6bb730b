"""Packed tensors with changed entries: in any scheme and view, what isn't touched keeps its bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoq.devices import to_host
from autoq.errors import IndexingError, ShapeError
from autoq.schemes import scheme
from autoq.storage import QTensor
from autoq.storage.axes import without_masks
from autoq.storage.update import updated
from tests.storage.tensors import check_invariants, quantized, small_names, tensors


def touched_blocks(q: QTensor, changed: np.ndarray) -> np.ndarray:
    """Which values lie in a block with a changed one."""
    if q.scheme.block is None:
        return changed
    stored = changed.transpose(q.layout.inverse)
    spread = np.zeros(stored.shape, bool)
    extents = q.scheme.extents(q.ndim)
    for place in zip(*np.nonzero(stored), strict=True):
        spread[tuple(slice(i // e * e, i // e * e + e) for i, e in zip(place, extents, strict=True))] = True
    return spread.transpose(q.layout.order)


@given(tensors(small_names, least=1), st.data())
def test_blocks_without_a_change_keep_codes_and_scales(q, data):
    index = tuple(
        data.draw(
            st.one_of(st.just(slice(None)), st.slices(n), st.integers(0, n - 1)) if n else st.just(slice(0))
        )
        for n in q.shape
    )
    before = q.dequantize()
    new = updated(q, index, 0.75, add=data.draw(st.booleans()))
    changed = np.zeros(q.shape, bool)
    changed[index] = True
    kept = ~touched_blocks(q, changed)
    np.testing.assert_array_equal(to_host(new.codes())[kept], to_host(q.codes())[kept])
    np.testing.assert_array_equal(to_host(new.dequantize())[kept], to_host(before)[kept])
    check_invariants(new)
    assert new.scheme == q.scheme
    assert new.layout == q.layout
    assert new.tensor_scale == q.tensor_scale


@given(tensors(small_names, least=1))
def test_setting_every_entry_to_what_it_is_changes_no_bit(q):
    assert updated(q, ..., q.dequantize()).same_bits(q)


def test_what_is_written_is_read_back_where_the_scheme_can_hold_it():
    q = quantized(np.zeros((3, 64), np.float32), scheme("mxfp8"))
    values = np.arange(32, dtype=np.float32) / 4
    values = quantized(values, q.scheme).dequantize()
    new = updated(q, (1, slice(32, None)), values)
    np.testing.assert_array_equal(to_host(new.dequantize())[1, 32:], to_host(values))
    assert not new.dequantize()[[0, 2]].any()


def test_entries_that_are_named_twice_are_added_to_twice():
    q = quantized(np.zeros((2, 32), np.float32), scheme("mxfp8"))
    assert updated(q, ([0, 0], [1, 1]), [1.0, 2.0], add=True).dequantize()[0, 1] == 3.0


@pytest.mark.parametrize(
    ("index", "values", "error"), [((0, 0, 0), 1.0, IndexingError), (0, [1.0, 2.0], ShapeError)]
)
def test_what_does_not_fit_is_refused_and_changes_nothing(index, values, error):
    q = quantized(np.ones((2, 32), np.float32), scheme("mxfp8"))
    with pytest.raises(error):
        updated(q, index, values)
    assert (q.dequantize() == 1).all()


MASK = np.array([True, False, True])
GRID = np.array([[True, False, True], [False, False, True]])
MASKED = {
    "one": MASK,
    "a list": [False, True, False],
    "nothing": np.zeros(3, bool),
    "two axes": np.array([GRID, ~GRID, GRID]),
    "behind a slice": (slice(None), GRID),
    "behind an Ellipsis": (..., np.ones(4, bool)),
    "two axes behind an Ellipsis": (..., np.ones((3, 4), bool)),
    "beside an integer": (MASK, 1),
    "apart from an integer": (MASK, slice(None), 0),
    "beside integers": (MASK, [0, 1]),
    "beside a mask": (MASK, slice(None), MASK),
    "behind None": (None, MASK, None, slice(1)),
    "around an Ellipsis": (MASK, ..., [True, False, True, False]),
    "beside True": (True, MASK),
    "without axes": np.array(True),
    "none": (1, slice(None, None, 2)),
}


@pytest.mark.parametrize("case", MASKED)
def test_positions_pick_what_masks_pick(case: str) -> None:
    x, index = np.arange(72).reshape(3, 2, 3, 4), MASKED[case]
    found = without_masks(index, x.shape)
    np.testing.assert_array_equal(x[found], x[index])
    new, expected = x.copy(), x.copy()
    new[found], expected[index] = -1, -1
    np.testing.assert_array_equal(new, expected)


@pytest.mark.parametrize(
    "index", [np.ones(2, bool), (..., np.ones(3, bool)), (slice(None), np.ones((3, 2), bool))]
)
def test_masks_of_another_shape_are_refused(index: object) -> None:
    with pytest.raises(IndexError, match="a mask of shape"):
        without_masks(index, (3, 2, 3, 4))
