"""Timing side by side: every candidate in turn, many rounds, medians with their spread."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from autoq.kernels.cpu import pool


class Timing(NamedTuple):
    """Seconds a call: the median of the rounds and their quartiles."""

    median: float
    low: float
    high: float

    def milliseconds(self) -> str:
        """The median with its quartiles as text."""
        return f"{self.median * 1e3:.2f} ({self.low * 1e3:.2f} to {self.high * 1e3:.2f})"

    def microseconds(self) -> str:
        """The median with its quartiles as text."""
        return f"{self.median * 1e6:.1f} ({self.low * 1e6:.1f} to {self.high * 1e6:.1f})"


def side_by_side(
    candidates: Mapping[str, Callable[[], object]], rounds: int = 15, least: float = 2e-3
) -> dict[str, Timing]:
    """Time every candidate in each round, so that a busy moment of the machine hits all of them.

    Args:
        candidates: What to time, by name.
        rounds: Samples a candidate.
        least: Seconds a sample lasts at least; quick candidates are called many times a sample.
    """
    calls = {name: _calls(function, least) for name, function in candidates.items()}
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, function in candidates.items():
                samples[name].append(_sample(function, calls[name]))
    finally:
        if enabled:
            gc.enable()
    return {name: Timing(*np.percentile(seconds, (50, 25, 75))) for name, seconds in samples.items()}


def _calls(function: Callable[[], object], least: float) -> int:
    """How many calls last ``least`` seconds; warms the function up on the way."""
    function()
    calls = 1
    while (spent := _sample(function, calls) * calls) < least:
        calls = max(2 * calls, int(calls * least / max(spent, 1e-7)))
    return calls


def _sample(function: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


@contextmanager
def kernel_threads(count: int) -> Iterator[None]:
    """Let the kernels spread large arrays over this many threads, in this process."""
    before = os.environ.get("AUTOQ_NUM_THREADS")
    os.environ["AUTOQ_NUM_THREADS"] = str(count)
    pool.threads.cache_clear()
    try:
        yield
    finally:
        os.environ.pop("AUTOQ_NUM_THREADS")
        if before is not None:
            os.environ["AUTOQ_NUM_THREADS"] = before
        pool.threads.cache_clear()
