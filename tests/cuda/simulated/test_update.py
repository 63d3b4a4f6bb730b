"""Optimizer steps by the device's kernels, in the simulator: the bits of autoq.optim."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda import gradients, update
from autoq.optim import SGD, Adam, AdamW

SIZES = (5, 1030, 0, 1)
HALF, BFLOAT = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)


def arrays(seed: int, dtype=np.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(n).astype(dtype) for n in SIZES]


def cpu_steps(method, dtype, count, **options):
    """Parameters and state arrays after some steps on the CPU."""
    parameters = [aq.Parameter(x) for x in arrays(0, dtype)]
    optimizer = method(parameters, lr=0.05, **options)
    for step in range(count):
        for parameter, g in zip(parameters, arrays(step + 1), strict=True):
            parameter.grad = aq.tensor(g)
        optimizer.step()
    slots = optimizer._flat()
    state = {name: [slot.state[name] for slot in slots] for name in slots[0].state}
    return [parameter.value for parameter in parameters], state


def given(options: tuple[float, ...], stored: bool):
    return np.array(options, np.float32) if stored else options


def assert_same_bits(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("momentum", "nesterov", "decay", "stored"),
    [(0.0, False, 0.0, True), (0.9, False, 0.1, False), (0.9, True, 0.0, False)],
)
def test_sgd_has_the_bits_of_the_cpu(momentum, nesterov, decay, stored, dtype):
    expected, state = cpu_steps(SGD, dtype, 2, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    values, velocity = arrays(0, dtype), [np.zeros(n, np.float32) for n in SIZES]
    table = update.Table(SIZES)
    for step in range(2):
        gradient = arrays(step + 1)  # a table holds addresses alone
        table.point({update.VALUE: values, update.GRADIENT: gradient, update.FIRST: velocity})
        options = given((0.05, momentum, decay), stored)
        kinds = (np.dtype(dtype).name, "float32")
        update.sgd(table, kinds, options, momentum > 0, nesterov, decay > 0)
    assert_same_bits(values, expected)
    if momentum:
        assert_same_bits(velocity, state["velocity"])


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("method", "weight_decay", "stored"), [(Adam, 0.0, False), (Adam, 0.1, True), (AdamW, 0.1, False)]
)
def test_adam_has_the_bits_of_the_cpu(method, weight_decay, stored, dtype):
    expected, state = cpu_steps(method, dtype, 2, weight_decay=weight_decay)
    values = arrays(0, dtype)
    mean, square = ([np.zeros(n, np.float32) for n in SIZES] for _ in range(2))
    table = update.Table(SIZES)
    decay = "" if not weight_decay else "decoupled" if method is AdamW else "coupled"
    for step in range(1, 3):
        rows = {
            update.VALUE: values,
            update.GRADIENT: arrays(step),
            update.FIRST: mean,
            update.SECOND: square,
        }
        table.point(rows)
        first = 1.0 - 0.05 * weight_decay if method is AdamW else weight_decay
        root, rate = 1.0 / math.sqrt(1.0 - 0.999**step), 0.05 / (1.0 - 0.9**step)
        options = (first, 0.9, 1.0 - 0.9, 0.999, 1.0 - 0.999, root, 1e-8, rate)
        update.adam(table, (np.dtype(dtype).name, "float32"), given(options, stored), decay)
    assert_same_bits(values, expected)
    assert_same_bits(mean, state["mean"])
    assert_same_bits(square, state["square"])


def test_a_table_is_copied_only_when_an_address_changes():
    table, a, b = update.Table((4,), np.copy), np.zeros(4, np.float32), np.zeros(4, np.float32)
    table.point({update.VALUE: [a]})
    table.array[...] = 7
    table.point({update.VALUE: [a]})
    assert (table.array == 7).all()
    table.point({update.VALUE: [b]})
    assert table.array[update.VALUE, 0] == update.address_of(b)


@pytest.mark.parametrize(
    ("values", "part"), [(0, 1 << 11), (1 << 22, 1 << 11), ((1 << 22) + 1, 1 << 12), (1 << 30, 1 << 16)]
)
def test_parts_grow_with_the_model(values, part):
    assert update.part_of(values) == part


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_common_norm_and_its_factor(dtype):
    found = arrays(3, dtype)
    exact = math.sqrt(sum(float(np.sum(g.astype(np.float64) ** 2)) for g in found))
    table, kind = update.Table(SIZES), np.dtype(dtype).name
    table.point({update.GRADIENT: found})
    norm, factor = gradients.norm(table, kind, 1.0)
    assert norm == pytest.approx(exact, rel=1e-14)
    assert factor == np.float32(1.0 / norm)
    assert gradients.norm(table, kind, 1e9)[1] == 1


@pytest.mark.parametrize("large", [1e30, 1e-30])
def test_a_norm_neither_overflows_nor_vanishes(large):
    table, g = update.Table((8,)), np.full(8, large, np.float32)
    table.point({update.GRADIENT: [g]})
    assert gradients.norm(table, "float32")[0] == pytest.approx(large * math.sqrt(8), rel=1e-6)


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_a_norm_that_is_not_finite_limits_nothing(odd):
    g = np.ones(8, np.float32)
    g[3] = odd
    table = update.Table((8,))
    table.point({update.GRADIENT: [g]})
    norm, factor = gradients.norm(table, "float32", 1.0)
    assert not np.isfinite(norm)
    assert factor == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("stored", [False, True])
def test_scaled_gradients_are_float32(dtype, stored):
    found, results = arrays(4, dtype), [np.zeros(n, np.float32) for n in SIZES]
    table = update.Table(SIZES)
    table.point({update.GRADIENT: found, update.VALUE: results})
    gradients.scale(table, np.dtype(dtype).name, np.array(0.3, np.float32) if stored else 0.3)
    assert_same_bits(results, [np.multiply(g, 0.3, dtype=np.float32) for g in found])
