"""What one operation costs in Python: an addition of 16 values, and a chain of a hundred."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from report import markdown_table
from timing import side_by_side

import autoq as aq

LENGTH = 100


def section(rounds: int) -> str:
    """The table of costs an operation."""
    x = np.random.default_rng(0).standard_normal(16, dtype=np.float32)
    timings = side_by_side(_candidates(x), rounds, least=1e-2)
    rows = []
    for name, (bar, share) in _ROWS.items():
        if name in timings:
            timing = timings[name]
            text = type(timing)(*(value / share for value in timing)).microseconds()
            rows.append([name, text, bar])
    return "### Cost of an operation on 16 values\n\n" + markdown_table(
        ("operation", "µs (quartiles)", "bar"), rows
    )


_ROWS = {
    "NumPy add": ("", 1),
    "autoq add, untracked": ("1.5", 1),
    "autoq add, on the tape": ("2.5", 1),
    "torch add, untracked": ("", 1),
    "torch add, on the tape": ("", 1),
    "autoq chain of 100, forward and backward, each": ("5", LENGTH),
    "torch chain of 100, forward and backward, each": ("", LENGTH),
    "autoq MXFP8 add of 32 values, on the tape": ("", 1),
}


def _candidates(x: np.ndarray) -> dict[str, Callable[[], object]]:
    plain, tracked = aq.tensor(x), aq.tensor(x, requires_grad=True)
    packed = aq.tensor(np.tile(x, 2), requires_grad=True).quantize(aq.mxfp8)
    ours: dict[str, Callable[[], object]] = {
        "NumPy add": lambda: x + x,
        "autoq add, untracked": lambda: plain + plain,
        "autoq add, on the tape": lambda: tracked + tracked,
        "autoq chain of 100, forward and backward, each": lambda: _chain(tracked),
        "autoq MXFP8 add of 32 values, on the tape": lambda: packed + packed,
    }
    if find_spec("torch") is not None:
        ours.update(_torch(x))
    _chain(tracked)
    assert np.array_equal(tracked.grad.numpy(), np.full(16, LENGTH + 1, np.float32))
    return ours


def _chain(x: aq.Tensor) -> None:
    x.grad = None
    y = x
    for _ in range(LENGTH):
        y = y + x
    y.sum().backward()


def _torch(x: np.ndarray) -> dict[str, Callable[[], object]]:
    import torch

    plain, tracked = torch.from_numpy(x), torch.from_numpy(x.copy()).requires_grad_()

    def chain() -> None:
        tracked.grad = None
        y = tracked
        for _ in range(LENGTH):
            y = y + tracked
        y.sum().backward()

    return {
        "torch add, untracked": lambda: plain + plain,
        "torch add, on the tape": lambda: tracked + tracked,
        "torch chain of 100, forward and backward, each": chain,
    }
