"""Sums over rows, columns and everything, of floats and packed signals; rows added by number; torch too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

import autoq as aq
from autoq.storage import convert
from gpu.dequantize import COLUMNS, VALUES, on_device, peer
from gpu.map import packed

AXES = {"rows": (1,), "columns": (0,), "everything": (0, 1)}
VOCABULARY, WIDTH, LOOKUPS = 32768, 1024, 65536
TOLERANCE = 1e-4  # of a sum of magnitudes about 1, by the root of its length


def run(report: Any) -> None:
    """All of it; what is timed is compared with float64 first."""
    import cupy

    size = report.size(VALUES, 1 << 16)
    columns = min(COLUMNS, size // 256)
    x = cupy.random.default_rng(0).standard_normal((size // columns, columns), dtype=np.float32)
    for name, axes in AXES.items():
        timed(report, cupy, f"sum of float32 over {name}", x, axes)
    narrow = x.reshape(-1, 16)
    for name, axes in AXES.items():
        timed(report, cupy, f"sum of float32 over {name}, 16 columns", narrow, axes)
    for scheme in ("mxfp8", "nvfp4"):
        packed_sums(report, cupy, scheme, size)
    scattered(report, cupy)
    if report.device and find_spec("torch") is not None:
        peers(report, x)


def total(x: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """What is timed."""
    from autoq.kernels.cuda.reduce import IDENTITY, summed

    return summed(IDENTITY.expression, [x], (), shape, axes)


def timed(report: Any, cupy: Any, name: str, x: Any, axes: tuple[int, ...]) -> None:
    """A sum of floats: near CuPy's in float64, the same bits twice."""
    first, again = total(x, x.shape, axes), total(x, x.shape, axes)
    expected = x.sum(axis=axes, dtype=np.float64).get()
    report.check(f"{name}: near float64", is_near(first.get(), expected, x.size // expected.size))
    report.check(f"{name}: the same bits again", bool((first.get() == again.get()).all()))
    report.time(name, partial(total, x, x.shape, axes), moved=x.nbytes + first.nbytes)
    report.time(f"CuPy's {name}", partial(x.sum, axis=axes), moved=x.nbytes + first.nbytes, peer=True)


def is_near(found: Any, expected: Any, length: int) -> bool:
    """Whether sums are right but for roundings."""
    return bool(np.abs(found - expected).max() <= TOLERANCE * length**0.5)


def packed_sums(report: Any, cupy: Any, scheme: str, size: int) -> None:
    """Sums of a packed signal, decoded where it is added."""
    stored = on_device(cupy, aq.scheme(scheme), size)
    shape = stored.shape[0] // stored.times, stored.shape[1]
    values = convert.dequantize(*stored.sample, stored.scheme, shape).astype(np.float64)
    for name, axes in AXES.items():
        found = total(packed(stored), stored.shape, axes)
        repeated = 1 if axes == (1,) else stored.times
        expected = values.sum(axis=axes) * repeated
        part = found.get()[: shape[0]] if axes == (1,) else found.get()
        title = f"sum of {scheme} over {name}"
        report.check(
            f"{title}: near float64", is_near(part, expected, values.size * repeated // expected.size)
        )
        report.time(
            title, partial(total, packed(stored), stored.shape, axes), moved=stored.nbytes + found.nbytes
        )


def scattered(report: Any, cupy: Any) -> None:
    """The gradient of an embedding: rows of a table added up by number."""
    from autoq.kernels.cuda.scatter import add_rows

    rng = cupy.random.default_rng(0)
    lookups, width = report.size(LOOKUPS, 64), report.size(WIDTH, 16)
    values = rng.standard_normal((1, lookups, width), dtype=np.float32)
    table = cupy.zeros((1, VOCABULARY, width), np.float32)
    for name, rows in (
        ("of all kinds", rng.integers(0, VOCABULARY, lookups)),
        ("one in four the same", rng.integers(0, VOCABULARY, lookups) * (rng.integers(0, 4, lookups) > 0)),
    ):
        table[...] = 0
        add_rows(table, rows, values)
        expected = np.zeros(table.shape[1:], np.float32)
        np.add.at(expected, rows.get(), values[0].get())
        report.check(f"rows added by number, {name}: NumPy's bits", np.array_equal(table[0].get(), expected))
        moved = 3 * values.nbytes
        report.time(f"rows added by number, {name}", partial(add_rows, table, rows, values), moved=moved)
        if report.device and find_spec("torch") is not None:
            report.time(f"torch index_add_, {name}", torch_rows(table, rows, values), moved=moved, peer=True)


def torch_rows(table: Any, rows: Any, values: Any) -> Callable[[], object]:
    """The same in torch, whose order isn't fixed."""
    import torch

    there, index, added = (torch.from_dlpack(array) for array in (table[0], rows, values[0]))
    return lambda: there.index_add_(0, index, added)


def peers(report: Any, x: Any) -> None:
    """torch's sums of the same array."""
    import torch

    same = torch.from_dlpack(x)
    for name, axes in AXES.items():
        peer(report, f"torch sum of float32 over {name}", partial(same.sum, dim=axes), x.nbytes)
