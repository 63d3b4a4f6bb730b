"""Training on real digits: the accuracy that formats keep, and what the tape holds meanwhile."""

from __future__ import annotations

import os

import numpy as np
import pytest

import autoq as aq
import autoq.train.digits
import autoq.train.measure
from autoq.errors import ArgumentError, SchemeError
from autoq.train.digits import STANDARD, Recipe, as_signal, build, train
from autoq.train.measure import network_errors, tape_cost

INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT") == "1"


@pytest.fixture(scope="module", autouse=True)
def _few_units():
    """Narrow layers where kernels are interpreted."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (autoq.train.digits, autoq.train.measure) if INTERPRETED else ():
            patch.setattr(module, "WIDTHS", (64, 96, 96, 10))
        yield


@pytest.fixture(scope="module")
def digits():
    """All of them; a few where kernels are interpreted."""
    found = aq.data.digits(seed=0)
    return aq.data.Split(*(part[:64] for part in found)) if INTERPRETED else found


@pytest.fixture(scope="module")
def results(digits):
    return {recipe: train(recipe, digits) for recipe in (Recipe(*pair) for pair in STANDARD)}


@pytest.mark.slow
def test_float32_learns_and_quantized_runs_keep_up(results):
    accuracy = [result.test_accuracy[-1] for result in results.values()]
    assert accuracy[0] >= 0.96
    assert accuracy[1] >= accuracy[0] - 0.02
    assert min(accuracy[2:]) >= accuracy[0] - 0.03


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_to_the_bit(digits):
    first, second = (train(Recipe("mxfp8", "nvfp4", seed=5, epochs=2), digits) for _ in range(2))
    assert first.test_loss == second.test_loss
    states = first.model.state_dict(), second.model.state_dict()
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("pair", STANDARD)
def test_losses_are_the_same_on_every_device(digits, device, pair):
    on_device = train(Recipe(*pair, epochs=2), digits)
    assert on_device.model[0].weight.device == device
    with aq.default_device("cpu"):
        on_cpu = train(Recipe(*pair, epochs=2), digits)
    assert on_device.test_loss == pytest.approx(on_cpu.test_loss, rel=0.01)
    assert on_device.train_loss == pytest.approx(on_cpu.train_loss, rel=0.01)


def test_another_seed_gives_another_run(digits):
    losses = {train(Recipe(seed=seed, epochs=1), digits).test_loss[0] for seed in range(2)}
    assert len(losses) == 2


@pytest.mark.parametrize(
    ("signal", "bits"), [("float32", 32.0), ("mxfp8", 8.25), ("nvfp4", 4.5), ("int4", 5.0)]
)
def test_activations_are_kept_packed(digits, signal, bits):
    recipe = Recipe(signal)
    cost = tape_cost(build(recipe), recipe, digits.train_x[:64], digits.train_y[:64])
    assert cost.activation_bits == pytest.approx(bits, abs=0.01)


def test_the_signal_stays_in_its_scheme_up_to_the_logits(digits):
    recipe = Recipe("mxfp8", "nvfp4")
    signal, dtypes = as_signal(digits.train_x[:8], recipe), []
    for layer in build(recipe):
        signal = layer(signal)
        dtypes.append(signal.dtype)
    assert dtypes == [aq.mxfp8] * 4 + [aq.float32]


@pytest.mark.parametrize("name", sorted(aq.CATALOG))
def test_every_named_scheme_trains_as_a_signal(digits, name):
    result = train(Recipe(signal=name, epochs=1, batch_size=256), digits)
    assert np.isfinite(result.test_loss).all()


@pytest.mark.parametrize("name", sorted(aq.CATALOG))
def test_every_named_scheme_trains_as_weights(digits, name):
    result = train(Recipe(weights=name, epochs=1, batch_size=256), digits)
    assert np.isfinite(result.test_loss).all()


def test_errors_are_reported_for_what_is_quantized_and_nothing_else(digits):
    names = {
        pair: [
            error.name for error in network_errors(build(Recipe(*pair)), Recipe(*pair), digits.test_x[:32])
        ]
        for pair in STANDARD
    }
    signal, weights = (
        ["input", "Linear 1", "ReLU 1", "Linear 2", "ReLU 2"],
        ["weight 1", "weight 2", "weight 3"],
    )
    assert names[("float32", "float32")] == []
    assert names[("mxfp8", "float32")] == signal
    assert names[("mxfp8", "nvfp4")] == signal + weights


def test_an_unknown_scheme_is_refused_with_the_nearest_name():
    with pytest.raises(SchemeError, match="Did you mean 'mxfp8'"):
        Recipe(signal="mxfp88")
    with pytest.raises(SchemeError, match="Allowed: float32, mxfp8"):
        Recipe(weights="nothing like it")


def test_no_epochs_are_refused():
    with pytest.raises(ArgumentError, match="at least 1"):
        Recipe(epochs=0)
