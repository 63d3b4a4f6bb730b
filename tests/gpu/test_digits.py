"""The digits network trained on a GPU ends where it does on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import autoq as aq
from autoq.train import digits

pytestmark = pytest.mark.slow

DATA = aq.data.digits()
IMAGES = len(DATA.test_x)
NEIGHBOURS = 6


@contextmanager
def starting_weights_moved(monkeypatch: pytest.MonkeyPatch, steps: int) -> Iterator[None]:
    """Starting weights so many units in the last place further on."""
    build = digits.build

    def moved(recipe: digits.Recipe) -> aq.nn.Sequential:
        model = build(recipe)
        with aq.no_grad():
            for parameter in model.parameters():
                bits = parameter.numpy().view(np.int32) + steps
                parameter.assign(bits.view(np.float32))
        return model

    with monkeypatch.context() as patch:
        patch.setattr(digits, "build", moved)
        yield


def trained(recipe: digits.Recipe, device: str) -> digits.Result:
    with aq.default_device(device):
        return digits.train(recipe, DATA)


def test_float32_has_the_losses_of_the_cpu() -> None:
    """After every epoch: sums come in other orders, and nothing rounds coarsely enough to tell."""
    recipe = digits.Recipe()
    here, there = trained(recipe, "cpu"), trained(recipe, "cuda")
    np.testing.assert_allclose(there.train_loss, here.train_loss, rtol=0.01)
    np.testing.assert_allclose(there.test_loss, here.test_loss, rtol=0.01)
    assert abs(there.test_accuracy[-1] - here.test_accuracy[-1]) * IMAGES < 2.5


@pytest.mark.parametrize("pair", digits.STANDARD[1:], ids="-".join)
def test_packed_runs_end_among_those_of_the_cpu(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A last place that differs turns into a code that differs, and the run into another run.

    So the CPU's own runs from starting weights a few units in the last place apart say how far runs lie from
    each other: the GPU's ends within three standard deviations of them, and one percent.
    """
    recipe = digits.Recipe(*pair)
    runs = [trained(recipe, "cpu")]
    for steps in range(1, NEIGHBOURS):
        with starting_weights_moved(monkeypatch, steps):
            runs.append(trained(recipe, "cpu"))
    there = trained(recipe, "cuda")
    for losses in ("train_loss", "test_loss"):
        last = [getattr(run, losses)[-1] for run in runs]
        distance = abs(getattr(there, losses)[-1] - np.mean(last))
        assert distance <= 3 * np.std(last, ddof=1) + 0.01 * np.mean(last)
    hits = np.array([run.test_accuracy[-1] for run in runs]) * IMAGES
    assert abs(there.test_accuracy[-1] * IMAGES - hits).min() < 2.5
    print(recipe.name, [run.train_loss[-1] for run in runs], there.train_loss[-1])
