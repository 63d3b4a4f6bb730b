"""Batches: shuffled mini-batches that a seed and an epoch number determine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from autoq.devices import on_gpu
from autoq.errors import ArgumentError, DTypeError, ShapeError
from autoq.random import Generator
from autoq.tape.apply import plain
from autoq.tape.tensor import Tensor


class Split(NamedTuple):
    """Rows to train on and rows to test on.

    Attributes:
        train_x: ``(rows, ...)``.
        train_y: ``(rows, ...)`` or None.
        test_x: ``(rows, ...)``.
        test_y: ``(rows, ...)`` or None.
    """

    train_x: Any
    train_y: Any
    test_x: Any
    test_y: Any


class Batches:
    """Iterates over a data set in mini-batches; every iteration is one epoch, in an order of its own.

    The order of an epoch depends on the generator's seed and its number alone: to resume, set ``epoch``.

    Args:
        x: Rows along the first axis, ``(rows, ...)``, an array or a tensor: so are its batches, on the device
            of the rows.
        y: What belongs to the rows, ``(rows, ...)``; without it, batches are rows instead of pairs.
        batch_size: Rows of a batch; the last one may have fewer.
        rng: Generator whose seed orders the rows; not needed with ``shuffle=False``.
        shuffle: Whether rows are shuffled.
        drop_last: Whether a last batch of fewer rows is left out.

    Raises:
        ShapeError: For no rows, or x and y of different lengths.
        ArgumentError: For a batch size below 1, or shuffling without a generator.

    Example:
        >>> import autoq as aq, numpy as np
        >>> batches = Batches(np.arange(10), batch_size=4, rng=aq.Generator(0))
        >>> len(batches), [len(rows) for rows in batches], batches.epoch
        (3, [4, 4, 2], 1)
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        batch_size: int = 32,
        rng: Generator | None = None,
        *,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        self.x, self.y = _rows("Batches", x, y)
        if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise ArgumentError(
                f"Batches: batch_size={batch_size!r}.",
                "an integer of at least 1",
                "Pass how many rows a batch has.",
            )
        self.batch_size, self.shuffle, self.drop_last = int(batch_size), shuffle, drop_last
        self.rng = _generator("Batches", rng) if shuffle else rng
        self.epoch = 0

    def __len__(self) -> int:
        rows = len(self.x)
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        order = self.order(self.epoch)
        self.epoch += 1
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            rows = order[start : start + self.batch_size]
            yield self.x[rows] if self.y is None else (self.x[rows], self.y[rows])

    def order(self, epoch: int) -> np.ndarray:
        """The row numbers in the order in which epoch number ``epoch`` visits them, int64 ``(rows,)``."""
        if not self.shuffle or self.rng is None:
            return np.arange(len(self.x))
        return self.rng.spawn(f"epoch {epoch}").permutation(len(self.x))


def split(x: Any, y: Any, fraction: float, rng: Generator | None = None) -> Split:
    """Shuffle rows and set a part of them aside for testing.

    Args:
        x: ``(rows, ...)``.
        y: ``(rows, ...)`` or None.
        fraction: Part of the rows to test on, rounded to whole rows and at least one; in (0, 1).
        rng: Generator whose next draw orders the rows.

    Raises:
        ShapeError: For fewer than two rows, or x and y of different lengths.
        ArgumentError: For a fraction outside (0, 1), or no generator.

    Example:
        >>> import autoq as aq, numpy as np
        >>> parts = split(np.arange(10), None, 0.2, aq.Generator(0))
        >>> len(parts.train_x), len(parts.test_x)
        (8, 2)
    """
    x, y = _rows("split", x, y)
    if not isinstance(fraction, int | float | np.number) or not 0 < fraction < 1:
        raise ArgumentError(
            f"split: fraction={fraction!r}.", "0 < fraction < 1", "Pass the part to test on, as 0.2."
        )
    if len(x) < 2:
        raise ShapeError("split: a data set with 1 row.", "at least 2 rows", "Pass more rows.")
    tested = min(len(x) - 1, max(1, round(len(x) * fraction)))
    order = _generator("split", rng).permutation(len(x))
    test, train = order[:tested], order[tested:]
    if y is None:
        return Split(x[train], None, x[test], None)
    return Split(x[train], y[train], x[test], y[test])


def _array(owner: str, name: str, data: Any) -> Any:
    if isinstance(data, Tensor):
        return data.detach()
    data = plain(data)
    try:
        array = data if on_gpu(data) else np.asarray(data)
    except ValueError:
        raise ShapeError(
            f"{owner}: the rows of {name} have unequal lengths.", "rows of one shape", "Pad or cut the rows."
        ) from None
    if array.dtype.kind in "OSUV" and array.dtype.isbuiltin != 2:
        raise DTypeError(
            f"{owner}: {name} holds {array.dtype} values.",
            "numbers",
            "Encode text and categories as numbers.",
        )
    return array


def _rows(owner: str, x: Any, y: Any) -> tuple[Any, Any]:
    x = _array(owner, "x", x)
    y = None if y is None else _array(owner, "y", y)
    if x.ndim == 0 or len(x) == 0:
        raise ShapeError(
            f"{owner}: a data set with no rows: x has shape {x.shape}.",
            "at least one row along the first axis",
            "Check the path or the filter that the rows came from.",
        )
    if y is not None and (y.ndim == 0 or len(y) != len(x)):
        raise ShapeError(
            f"{owner}: x has {len(x)} rows, y has shape {y.shape}.",
            "as many entries of y as rows of x",
            "Pass x and y of the same rows.",
        )
    return x, y


def _generator(owner: str, rng: Generator | None) -> Generator:
    if not isinstance(rng, Generator):
        raise ArgumentError(
            f"{owner}: rng is {rng!r}; shuffling needs a generator.",
            "an aq.Generator",
            "Pass rng=aq.Generator(seed), with a seed of your choice.",
        )
    return rng
