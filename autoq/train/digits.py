"""Handwritten digits: a small network whose signal and weights may be quantized, trained from scratch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import autoq as aq
from autoq.data import Split
from autoq.errors import ArgumentError, SchemeError
from autoq.schemes.scheme import QuantScheme

FLOAT = "float32"
WIDTHS = (64, 256, 128, 10)


@dataclass(frozen=True)
class Recipe:
    """What is trained and how.

    Attributes:
        signal: Scheme of the input and of every activation up to the logits, or float32.
        weights: Scheme that the weights are trained through, or float32.
        seed: Of the split, the starting weights and the order of the batches.
        epochs: Passes over the training set.
        batch_size: Rows a step.
        lr: Learning rate of AdamW at the start; it falls to 0 along half a cosine.

    Raises:
        SchemeError: If ``signal`` or ``weights`` names nothing.
    """

    signal: str = FLOAT
    weights: str = FLOAT
    seed: int = 0
    epochs: int = 40
    batch_size: int = 64
    lr: float = 3e-3

    def __post_init__(self) -> None:
        scheme_or_float(self.signal)
        scheme_or_float(self.weights)
        if self.epochs < 1:
            raise ArgumentError(
                f"epochs is {self.epochs}.", "an integer of at least 1", "Train for one epoch or more."
            )

    @property
    def name(self) -> str:
        """What the run is called in tables and charts.

        Example:
            >>> Recipe().name, Recipe("mxfp8", "nvfp4").name
            ('float32', 'mxfp8 signal, nvfp4 weights')
        """
        named = {"signal": self.signal, "weights": self.weights}
        return ", ".join(f"{value} {part}" for part, value in named.items() if value != FLOAT) or FLOAT


# The four runs of `make train`, on the same seed.
STANDARD = (("float32", "float32"), ("mxfp8", "float32"), ("mxfp8", "nvfp4"), ("int8", "int4"))


def scheme_or_float(name: str) -> QuantScheme | None:
    """The scheme called ``name``; None for float32.

    Raises:
        SchemeError: If there is none, naming the nearest.
    """
    if name == FLOAT:
        return None
    try:
        return aq.scheme(name)
    except SchemeError as error:
        raise SchemeError(error.given, f"float32, {error.allowed}", error.remedy) from None


def build(recipe: Recipe) -> aq.nn.Sequential:
    """The network: 64 grey values, layers of 256 and 128 units with ReLU, ten float32 logits."""
    rng = aq.Generator(recipe.seed)
    weights = scheme_or_float(recipe.weights)
    layers: list[aq.nn.Module] = []
    for inputs, outputs in zip(WIDTHS[:-2], WIDTHS[1:-1], strict=True):
        layers += [aq.nn.Linear(inputs, outputs, weight_scheme=weights, rng=rng), aq.nn.ReLU()]
    head = aq.nn.Linear(*WIDTHS[-2:], weight_scheme=weights, rng=rng, out_dtype=aq.float32)
    return aq.nn.Sequential(*layers, head)


def as_signal(images: Any, recipe: Recipe) -> aq.Tensor:
    """The images as the first layer reads them: encoded once, in the scheme of the signal."""
    x, scheme = aq.tensor(images), scheme_or_float(recipe.signal)
    return x if scheme is None else x.quantize(scheme)


@dataclass
class Result:
    """A trained network and how it got there.

    Attributes:
        recipe: What was asked for.
        model: The network after the last step.
        train_loss: Cross-entropy on the whole training set after each epoch, in nats.
        test_loss: The same on the test set.
        test_accuracy: Share of the test set that is classified right after each epoch.
        epoch_seconds: Time of each epoch's steps, evaluation left out.
        steps: How many steps there were.
    """

    recipe: Recipe
    model: aq.nn.Sequential
    train_loss: list[float] = field(default_factory=list)
    test_loss: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)
    epoch_seconds: list[float] = field(default_factory=list)
    steps: int = 0

    @property
    def steps_per_second(self) -> float:
        """Training steps a second in the median epoch: the first one also compiles kernels."""
        return self.steps / len(self.epoch_seconds) / float(np.median(self.epoch_seconds))


def train(
    recipe: Recipe, digits: Split | None = None, progress: Callable[[Iterable[int]], Any] = iter
) -> Result:
    """Train a network from scratch, on the default device.

    Args:
        recipe: What to train and how.
        digits: The data; that of the recipe's seed by default.
        progress: Wraps the epochs, to show a bar.

    Example:
        >>> few = Split(*(part[:128] for part in aq.data.digits()))
        >>> result = train(Recipe(signal="mxfp8", epochs=2, batch_size=32), few)
        >>> result.steps, result.test_loss[-1] < result.test_loss[0]
        (8, True)
    """
    digits = digits or aq.data.digits(recipe.seed)
    model = build(recipe)
    rows = aq.tensor(digits.train_x), aq.tensor(digits.train_y)
    batches = aq.data.Batches(*rows, recipe.batch_size, aq.Generator(recipe.seed))
    optimizer = aq.optim.AdamW(model.parameters(), lr=recipe.lr)
    schedule = aq.optim.CosineSchedule(optimizer, steps=recipe.epochs * len(batches))
    result = Result(recipe, model)
    for _ in progress(range(recipe.epochs)):
        started = time.perf_counter()
        for images, labels in batches:
            loss = step(model, optimizer, as_signal(images, recipe), labels)
            schedule.step()
            result.steps += 1
        loss.item()  # a GPU is still at work until its last loss can be read
        result.epoch_seconds.append(time.perf_counter() - started)
        _record(result, digits)
    return result


def step(model: aq.nn.Module, optimizer: aq.optim.Optimizer, x: aq.Tensor, labels: Any) -> aq.Tensor:
    """One training step: forward, backward, update. Returns the loss, whose tape is used up."""
    loss = aq.nn.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def evaluate(model: aq.nn.Module, recipe: Recipe, images: np.ndarray, labels: Any) -> tuple[float, float]:
    """Mean cross-entropy in nats, and the share that is classified right."""
    with aq.no_grad():
        logits = model(as_signal(images, recipe))
        loss = aq.nn.cross_entropy(logits, labels).item()
    return loss, float(np.mean(logits.numpy().argmax(-1) == labels))


def _record(result: Result, digits: Split) -> None:
    loss, _ = evaluate(result.model, result.recipe, digits.train_x, digits.train_y)
    result.train_loss.append(loss)
    loss, accuracy = evaluate(result.model, result.recipe, digits.test_x, digits.test_y)
    result.test_loss.append(loss)
    result.test_accuracy.append(accuracy)
