"""Twenty seeds of the digits runs: accuracy, and the paired difference of test loss to float32."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from report import machine, markdown_table, write_section

from autoq.data import digits as load_digits
from autoq.train.digits import STANDARD, Recipe, Result, train

SEEDS = 20
# Student's t, two-sided 95 %, by degrees of freedom (Fisher and Yates, "Statistical Tables", table III).
T95 = {4: 2.776, 9: 2.262, 14: 2.145, 19: 2.093, 29: 2.045}


def main() -> None:
    """Train every run on every seed and write the section."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=SEEDS, choices=[n + 1 for n in T95])
    body = section(options.parse_args().seeds)
    print(body)
    write_section("seeds", f"{body}\n\n{machine()}")


def section(seeds: int = SEEDS) -> str:
    """The table of the four runs over ``seeds`` seeds."""
    results = [run_all(seed) for seed in range(seeds)]
    base = [runs[0] for runs in results]
    rows = [_row([runs[i] for runs in results], base) for i in range(len(STANDARD))]
    header = (
        "run",
        "test accuracy, %",
        "seeds 0-4, %",
        "accuracy minus float32, points",
        "test loss, nats",
        "loss minus float32, nats (95 % interval)",
    )
    text = (
        f"Digits, 80/20 split, {seeds} seeds. Differences are paired: the same seed means the same split, "
        "starting weights and batches."
    )
    return f"### Accuracy of quantized training\n\n{text}\n\n{markdown_table(header, rows)}"


def run_all(seed: int) -> list[Result]:
    """The four standard runs of one seed, on one split."""
    data = load_digits(seed)
    return [train(Recipe(signal, weights, seed=seed), data) for signal, weights in STANDARD]


def _row(results: Sequence[Result], base: Sequence[Result]) -> list[str]:
    accuracy = 100 * np.array([result.test_accuracy[-1] for result in results])
    reference = 100 * np.array([result.test_accuracy[-1] for result in base])
    loss = np.array([result.test_loss[-1] for result in results])
    difference = loss - np.array([result.test_loss[-1] for result in base])
    middle, half = paired_interval(difference)
    shown = (
        f"{middle:+.4f} ({middle - half:+.4f} to {middle + half:+.4f})"
        if results is not base and half
        else "0"
    )
    return [
        results[0].recipe.name,
        f"{accuracy.mean():.2f}",
        f"{accuracy[:5].mean():.2f}",
        f"{np.mean(accuracy - reference):+.2f}",
        f"{loss.mean():.4f}",
        shown,
    ]


def paired_interval(differences: np.ndarray) -> tuple[float, float]:
    """The mean of paired differences, and the half width of its 95 % interval by Student's t."""
    half = T95[len(differences) - 1] * differences.std(ddof=1) / np.sqrt(len(differences))
    return float(differences.mean()), float(half)


if __name__ == "__main__":
    main()
