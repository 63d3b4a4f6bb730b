"""``python -m autoq train digits``: train the networks, print a table, draw the pictures."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from autoq.cli.table import text_table
from autoq.context import current
from autoq.data import Split
from autoq.data import digits as load_digits
from autoq.devices import default_device
from autoq.errors import ArgumentError, MissingPackageError
from autoq.train.digits import FLOAT, STANDARD, WIDTHS, Recipe, Result, train
from autoq.train.measure import TapeCost, network_errors, tape_cost
from autoq.viz import loss_curves, quantization_error, weight_histogram

HEADER = ("run", "test accuracy", "test loss", "bits an activation", "bytes on the tape", "steps/s")


def train_and_report(options: argparse.Namespace) -> None:
    """Train what the options ask for, print the table and write the pictures into ``options.out``."""
    check_packages()
    recipes = recipes_of(options)
    with default_device(options.device), one_blas_thread():
        make_folder(options.out)
        digits = load_digits(options.seed)
        print(headline(digits, recipes[0]))
        results = [train(recipe, digits, bar(recipe.name)) for recipe in recipes]
        print(report(results, digits))
        for path in draw(results, digits, options.out):
            print(path)


def headline(digits: Split, recipe: Recipe) -> str:
    """What is trained on what, in one line."""
    widths, device = "-".join(map(str, WIDTHS)), current().device
    return (
        f"{len(digits.train_x):,} scanned digits to train on, {len(digits.test_x):,} to test on; "
        f"layers {widths}, {recipe.epochs} epochs, seed {recipe.seed}"
        f"{'' if device == 'cpu' else f', on {device}'}"
    )


def one_blas_thread() -> Any:
    """A context in which NumPy's products use one thread: at these sizes more only wait for each other."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas")


def check_packages() -> None:
    """Make sure that the data, the bars and the charts can be had.

    Raises:
        MissingPackageError: If a package of the extra ``train`` is missing.
    """
    missing = [name for name in ("matplotlib", "sklearn", "threadpoolctl", "tqdm") if find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"train digits: {', '.join(missing)} not installed.",
            "an environment with the extra 'train'",
            "Run pip install -e '.[train]' in autoq's checkout, or make train.",
        )


def make_folder(folder: Path) -> None:
    """Make sure that the folder exists, before time is spent on what goes into it.

    Raises:
        ArgumentError: If the path is a file, leads through one, or can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except (FileExistsError, NotADirectoryError):
        raise ArgumentError(f"--out {folder} is a file.", "a folder", "Pass the path of a folder.") from None
    except OSError as error:
        raise ArgumentError(
            f"--out {folder} can't be written: {error.strerror}.",
            "a folder that can be made and written",
            "Pass another folder.",
        ) from None


def recipes_of(options: argparse.Namespace) -> list[Recipe]:
    """The four standard runs, or the one that ``--signal`` and ``--weights`` describe."""
    pairs: Sequence[tuple[str, str]] = STANDARD
    if options.signal is not None or options.weights is not None:
        pairs = [(options.signal or FLOAT, options.weights or FLOAT)]
    common = {
        "seed": options.seed,
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "lr": options.lr,
    }
    return [Recipe(signal, weights, **common) for signal, weights in pairs]


def bar(name: str) -> Any:
    """A wrapper that shows a progress bar over epochs."""
    from tqdm import tqdm

    return lambda epochs: tqdm(epochs, desc=f"{name:28}", unit="epoch", ncols=88)


def report(results: Sequence[Result], digits: Split) -> str:
    """The table of a set of runs."""
    return text_table(HEADER, [_row(result, digits) for result in results])


def _row(result: Result, digits: Split) -> tuple[str, ...]:
    cost = _cost(result, digits)
    return (
        result.recipe.name,
        f"{100 * result.test_accuracy[-1]:.2f} %",
        f"{result.test_loss[-1]:.4f}",
        f"{cost.activation_bits:.2f}",
        f"{cost.saved_bytes:,}",
        f"{result.steps_per_second:,.0f}",
    )


def _cost(result: Result, digits: Split) -> TapeCost:
    rows = slice(result.recipe.batch_size)
    return tape_cost(result.model, result.recipe, digits.train_x[rows], np.asarray(digits.train_y)[rows])


def draw(results: Sequence[Result], digits: Split, folder: Path) -> list[Path]:
    """Write the charts as PNG files into ``folder``, which exists, and return their paths."""
    named = {result.recipe.name: result for result in results}
    charts = {
        "loss": loss_curves(
            {name: result.train_loss for name, result in named.items()},
            {name: result.test_loss for name, result in named.items()},
        ),
        "weights": weight_histogram(_first_weights(results)),
    }
    errors = {
        name: network_errors(result.model, result.recipe, digits.test_x) for name, result in named.items()
    }
    errors = {name: records for name, records in errors.items() if records}
    if errors:
        charts["quantization_error"] = quantization_error(errors)
    paths = [folder / f"{name}.png" for name in charts]
    for path, chart in zip(paths, charts.values(), strict=True):
        chart.savefig(path)
    return paths


def _first_weights(results: Sequence[Result]) -> dict[str, tuple[Any, Any]]:
    """The first layer's weights of every run that quantizes them; of the first run where none does."""
    quantized = [result for result in results if result.recipe.weights != FLOAT]
    chosen = {result.recipe.name: result.model[0] for result in quantized or results[:1]}
    return {
        name: (layer.weight.numpy(), layer.packed_weight() if quantized else None)
        for name, layer in chosen.items()
    }
