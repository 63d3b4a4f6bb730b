"""The handwritten digits: real scans, scaled and split by a seed."""

import sys

import numpy as np
import pytest

import autoq as aq
from autoq.errors import AutoqError


def test_the_digits_are_scaled_scans_with_their_labels():
    data = aq.data.digits(seed=0)
    assert (data.train_x.shape, data.test_x.shape) == ((1438, 64), (359, 64))
    assert data.train_x.dtype == np.float32
    assert (data.train_x.min(), data.train_x.max()) == (0.0, 1.0)
    assert np.unique(data.train_y).tolist() == list(range(10))
    assert data.train_y.dtype == np.int64


def test_the_seed_decides_the_split():
    first, again, other = (aq.data.digits(seed=seed).test_y for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(first, aq.data.digits(aq.Generator(0)).test_y)


def test_no_row_is_on_both_sides():
    data = aq.data.digits(seed=3, test_fraction=0.5)
    assert len(data.test_x) == 898
    every = np.concatenate([data.train_x, data.test_x])
    assert len(every) == 1797
    assert len(np.unique(every, axis=0)) == 1797


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"scikit-learn(.|\n)*pip install -e '\.\[train\]'") as caught:
        aq.data.digits()
    assert isinstance(caught.value, AutoqError)
