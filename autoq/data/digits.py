"""Real handwritten digits, from the copy that scikit-learn ships."""

from __future__ import annotations

import numpy as np

from autoq.data.batches import Split, split
from autoq.errors import MissingPackageError
from autoq.random import Generator

ROWS, FEATURES, CLASSES = 1797, 64, 10


def digits(seed: int | Generator = 0, test_fraction: float = 0.2) -> Split:
    """1797 scans of 8 × 8 pixels with their labels, split at random.

    Source: E. Alpaydin & C. Kaynak 1998, "Optical Recognition of Handwritten
    Digits", UCI machine learning repository (its test part).

    Args:
        seed: Seed of the split, or a generator whose next draw orders the rows.
        test_fraction: Part of the rows to test on.

    Returns:
        Pixels float32 ``(rows, 64)`` in [0, 1], labels int64 ``(rows,)`` in 0 … 9.

    Raises:
        MissingPackageError: Without scikit-learn.
        ArgumentError: For a fraction outside (0, 1).

    Example:
        >>> data = digits(seed=0)
        >>> data.train_x.shape, data.test_x.shape, float(data.train_x.max())
        ((1438, 64), (359, 64), 1.0)
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingPackageError(
            "data.digits: scikit-learn, which ships the digits, is not installed.",
            "an environment with the extra 'train'",
            "Run pip install -e '.[train]' in autoq's checkout.",
        ) from error
    pixels, labels = load_digits(return_X_y=True)
    rng = seed if isinstance(seed, Generator) else Generator(seed)
    return split((pixels / 16.0).astype(np.float32), labels.astype(np.int64), test_fraction, rng)
