"""Running sums, products and extrema, recurrences and changed entries on the device: the bits of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda import launch
from autoq.tape.apply import apply

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
SCANS = ("cumulative_sum", "cumulative_prod", "cummax", "cummin", "extremum_so_far")
SHAPES = ((7,), (513,), (33, 70), (5, 129, 3), (0, 3), (2, 0), (1, 1))


def values(*shape, seed=0):
    """Numbers of all sizes with repeats, some below the normal ones, and a NaN in the larger arrays."""
    rng = np.random.default_rng(seed)
    x = (rng.integers(-4, 5, shape) * np.ldexp(1 / 3, rng.integers(-3, 4, shape))).astype(np.float32)
    x.reshape(-1)[::7] = 1e-40
    if x.size > 100:
        x.reshape(-1)[x.size // 2] = np.nan
    return x


def both(function, *arrays, **options):
    """The result of a function on either device, as NumPy arrays."""
    return [function(*[aq.tensor(x, device=d) for x in arrays], **options).numpy() for d in ("cuda", "cpu")]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", SCANS)
def test_lines_are_those_of_the_cpu(name, shape):
    for axis in range(len(shape)):
        found, expected = both(lambda x, axis=axis: apply(name, x, axis=axis), values(*shape))
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [aq.float64, aq.float16, aq.bfloat16, aq.int32, aq.uint8])
@pytest.mark.parametrize("name", ["cumulative_sum", "cummax", "cummin"])
def test_other_dtypes(name, dtype):
    x = np.random.default_rng(1).integers(0, 9, (6, 40)).astype(dtype)
    found, expected = both(lambda x: apply(name, x, axis=1), x)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("name", ["cumulative_sum", "cummax", "cummin"])
@pytest.mark.parametrize("n", [1025, 5000, 1 << 21])
def test_long_lines_are_taken_in_pieces(name, n):
    x = np.random.default_rng(2).integers(-2, 3, n).astype(np.float32)  # whole numbers add up exactly
    found, expected = both(lambda x: apply(name, x, axis=0), x)
    np.testing.assert_array_equal(found, expected)


def test_running_sums_are_the_same_in_every_run():
    x = aq.tensor(np.random.default_rng(3).standard_normal(300_001).astype(np.float32), device="cuda")
    first = x.cumsum(axis=0).numpy()
    assert all(np.array_equal(x.cumsum(axis=0).numpy(), first) for _ in range(5))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_recurrences_are_those_of_the_cpu(axis):
    a, b = values(6, 35, 4, seed=4), values(6, 35, 4, seed=5)
    found, expected = both(lambda a, b: apply("linear_recurrence", a, b, axis=axis), a, b)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod", "cummax", "prod"])
def test_gradients_are_those_of_the_cpu(name):
    x, grads = values(9, 31, seed=6), []
    x[np.isnan(x)] = 0.0
    for device in ("cuda", "cpu"):
        leaf = aq.tensor(x, device=device, requires_grad=True)
        (apply(name, leaf, axis=1) * 0.5).sum().backward()
        grads.append(leaf.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-5, atol=1e-30)


def test_a_line_takes_one_launch():
    x = aq.tensor(values(64, 50), device="cuda")
    x.cumsum(axis=1)
    before = launch.launches
    x.cumsum(axis=1)
    assert launch.launches - before == 1


@pytest.mark.parametrize("there", [False, True])
def test_of_entries_set_several_times_the_last_value_stays(there):
    rng = np.random.default_rng(7)
    x, v = values(1000, seed=8), values(100_000, seed=9)
    places = rng.integers(0, 1000, 100_000)
    expected = x.copy()
    expected[places] = v
    index = aq.tensor(places, device="cuda") if there else places
    target, given = aq.tensor(x, device="cuda"), aq.tensor(v, device="cuda", requires_grad=True)
    new = target.at[index].set(given)
    np.testing.assert_array_equal(new.numpy(), expected)
    new.sum().backward()
    last = np.zeros(100_000, np.float32)
    last[list(dict(zip(places.tolist(), range(100_000), strict=True)).values())] = 1.0
    np.testing.assert_array_equal(given.grad.numpy(), last)
