"""The kernels of the page about custom operations in the simulator: the values of its kernels for the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda import launch
from autoq.ops.on_device.elementwise import elementwise
from tests.custom.page import names

SHAPES = [
    ((3, 40), (40,)),
    ((2, 3, 8), (8,)),
    ((3, 1), (1, 40)),
    ((2, 3), ()),
    ((), ()),
    ((130,), (130,)),
    ((2, 0), (0,)),
]


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


@pytest.mark.parametrize(("one", "two"), SHAPES)
def test_the_value_and_the_slope_are_those_of_the_cpu(one: tuple[int, ...], two: tuple[int, ...]) -> None:
    page, x, bias = names(), floats(*one), floats(*two, seed=1)
    before = launch.launches
    value = page["launched"](page["value_on_gpu"], x, bias)
    expected = page["value_kernel"](x, bias)
    assert launch.launches - before == (1 if expected.size else 0)
    np.testing.assert_allclose(value, expected, rtol=2e-6, atol=1e-7)
    assert value.shape == expected.shape
    g = floats(*expected.shape, seed=2)
    slope = page["launched"](page["slope_on_gpu"], g, x, bias)
    np.testing.assert_allclose(slope, page["slope_kernel"](g, x, bias), rtol=2e-6, atol=1e-7)


def test_operands_of_float64_and_numbers() -> None:
    page, x = names(), floats(2, 8).astype(np.float64)
    value = page["launched"](page["value_on_gpu"], x, 0.5)
    assert value.dtype == np.float64
    np.testing.assert_allclose(value, page["value_kernel"](x, 0.5), rtol=1e-14)


def test_an_op_called_like_another_one_is_traced_by_itself() -> None:
    rules = {"a": lambda F, g: g, "b": lambda F, g: g}
    where = aq.custom_op(lambda a, b: a + 2.0 * b, vjp=rules, name="where", elementwise=True)
    a, b = floats(3, 40), floats(3, 40, seed=1)
    found = elementwise(where.op, (a, b), {}, np.dtype(np.float32), np.dtype(np.float32))
    np.testing.assert_array_equal(found, a + np.float32(2) * b)
