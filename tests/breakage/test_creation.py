"""Creating tensors from arguments that make none."""

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, AutoqError, ShapeError

REFUSED = {
    "zeros of a name": (ShapeError, lambda: aq.zeros("a")),
    "zeros of None": (ShapeError, lambda: aq.zeros(None)),
    "zeros of 2.5": (ShapeError, lambda: aq.zeros(2.5)),
    "zeros of 2**70": (ShapeError, lambda: aq.zeros((2**70,))),
    "full of None": (AutoqError, lambda: aq.full((2,), None)),
    "full of a complex number": (AutoqError, lambda: aq.full((2,), 1j)),
    "full of a name": (AutoqError, lambda: aq.full((2,), "a")),
    "full of 10**400": (AutoqError, lambda: aq.full((2,), 10**400)),
    "full of rows": (ShapeError, lambda: aq.full((2,), [1, 2, 3])),
    "arange of None": (AutoqError, lambda: aq.arange(None)),
    "arange of a name": (AutoqError, lambda: aq.arange("a")),
    "arange without end": (ArgumentError, lambda: aq.arange(np.inf)),
    "linspace of 2.5 numbers": (ArgumentError, lambda: aq.linspace(0, 1, 2.5)),
    "linspace from a name": (AutoqError, lambda: aq.linspace("a", 1, 3)),
    "eye of -1": (ShapeError, lambda: aq.eye(-1)),
    "eye of 2.5": (ShapeError, lambda: aq.eye(2.5)),
    "uniform numbers of a shape of strings": (ShapeError, lambda: aq.Generator(0).uniform("a")),
    "normal numbers of a deviation of strings": (ArgumentError, lambda: aq.Generator(0).normal((3,), 0, "a")),
    "a permutation of 2.5": (ShapeError, lambda: aq.Generator(0).permutation(2.5)),
    "a permutation of -1": (ShapeError, lambda: aq.Generator(0).permutation(-1)),
    "zeros like None": (AutoqError, lambda: aq.zeros_like(None)),
    "zeros like a name": (AutoqError, lambda: aq.zeros_like("a")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_an_error_of_ours(case):
    error, call = REFUSED[case]
    with pytest.raises(error):
        call()


def test_likes_of_lists_and_numpy_sizes_are_taken():
    assert aq.ones_like([1.0, 2.0]).tolist() == [1.0, 1.0]
    assert aq.zeros(np.int64(2)).shape == (2,)
    assert aq.full((2,), aq.tensor(3.0)).tolist() == [3.0, 3.0]
