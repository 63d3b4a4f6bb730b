"""Initializers: the right spread, from the generator that is passed."""

import math

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, ShapeError
from autoq.nn import init

SHAPE = (300, 200)
SPREAD = {
    init.kaiming_uniform: math.sqrt(2 / 200),
    init.kaiming_normal: math.sqrt(2 / 200),
    init.xavier_uniform: math.sqrt(2 / 500),
    init.xavier_normal: math.sqrt(2 / 500),
    init.normal: 1.0,
    init.uniform: 1 / math.sqrt(12),
}


@pytest.mark.parametrize("initializer", SPREAD)
def test_the_standard_deviation_is_the_formulas(initializer):
    values = initializer(SHAPE, rng=aq.Generator(0))
    assert values.shape == SHAPE
    assert values.dtype == np.float32
    assert values.std() == pytest.approx(SPREAD[initializer], rel=0.02)


@pytest.mark.parametrize("initializer", SPREAD)
def test_the_seed_decides_and_a_second_draw_differs(initializer, float_dtype):
    rng = aq.Generator(5)
    first, second = (
        initializer((8, 4), rng=rng, dtype=float_dtype),
        initializer((8, 4), rng=rng, dtype=float_dtype),
    )
    assert first.dtype == float_dtype
    np.testing.assert_array_equal(first, initializer((8, 4), rng=aq.Generator(5), dtype=float_dtype))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("initializer", SPREAD)
def test_a_missing_generator_is_an_error(initializer):
    with pytest.raises(ArgumentError, match=r"rng is None(.|\n)*Pass rng=aq.Generator\(seed\)"):
        initializer(SHAPE)


def test_convolution_shapes_count_their_receptive_field():
    values = init.kaiming_normal((64, 8, 5, 5), aq.Generator(0))
    assert values.std() == pytest.approx(math.sqrt(2 / 200), rel=0.05)


def test_zeros_and_ones_need_no_generator():
    assert init.zeros((2,)).tolist() == [0, 0]
    assert init.ones((2,), np.float64).dtype == np.float64


def test_fans_of_a_vector_are_an_error():
    with pytest.raises(ShapeError, match=r"shape \(3,\)"):
        init.xavier_uniform((3,), aq.Generator(0))


def test_an_unknown_nonlinearity_is_named():
    with pytest.raises(ArgumentError, match=r"'rely'(.|\n)*'relu'"):
        init.kaiming_uniform((3, 3), aq.Generator(0), "rely")
