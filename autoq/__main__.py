"""The command line: ``python -m autoq formats`` and ``python -m autoq train digits``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from autoq import __version__
from autoq.cli.formats import formats_table
from autoq.errors import AutoqError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, or 2 where an argument names nothing.

    Args:
        arguments: The words after ``python -m autoq``; those of the process by default.
    """
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except AutoqError as error:
        print(f"autoq: {error}", file=sys.stderr)
        return 2
    return 0


def parser() -> argparse.ArgumentParser:
    """The parser of every command."""
    top = argparse.ArgumentParser(
        prog="python -m autoq", description="Autodiff around packed quantized tensors."
    )
    top.add_argument("--version", action="version", version=f"autoq {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    formats = commands.add_parser("formats", help="list every named scheme and its numbers")
    formats.set_defaults(run=lambda options: print(formats_table()))
    train = commands.add_parser("train", help="train a network on real data")
    tasks = train.add_subparsers(metavar="TASK", required=True)
    _add_digits(tasks.add_parser("digits", help="classify handwritten digits", description=DIGITS))
    return top


DIGITS = """Train a small network on scikit-learn's scanned digits, then print a table and draw its pictures.
Without --signal and --weights four networks are trained on the same seed: float32, an MXFP8 signal,
an MXFP8 signal with NVFP4 weights, and an int8 signal with int4 weights."""


def _add_digits(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--signal",
        metavar="NAME",
        help="scheme of the activations, or float32 (python -m autoq formats lists them)",
    )
    command.add_argument("--weights", metavar="NAME", help="scheme of the weights, or float32")
    command.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the split, the weights and the batches (%(default)s)",
    )
    command.add_argument(
        "--epochs", type=int, default=40, metavar="N", help="passes over the training set (%(default)s)"
    )
    command.add_argument("--batch-size", type=int, default=64, metavar="N", help="rows a step (%(default)s)")
    command.add_argument(
        "--lr", type=float, default=3e-3, metavar="RATE", help="learning rate at the start (%(default)s)"
    )
    command.add_argument(
        "--device", default="cpu", metavar="NAME", help="where to train: cpu, cuda or cuda:N (%(default)s)"
    )
    command.add_argument(
        "--out",
        type=Path,
        default=Path("runs/digits"),
        metavar="FOLDER",
        help="folder of the pictures (%(default)s)",
    )
    command.set_defaults(run=_run_digits)


def _run_digits(options: argparse.Namespace) -> None:
    from autoq.cli.digits import train_and_report

    train_and_report(options)


if __name__ == "__main__":
    sys.exit(main())
