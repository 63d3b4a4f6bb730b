"""Casts between float dtypes, in the simulator: NumPy's bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from autoq.kernels.cuda.casts import cast

FLOATS = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)
# Ties of every dtype and beside them, numbers below the normal ones, and those that no dtype holds.
VALUES = np.array([
    *(0.0, -0.0, 1.0, 1 / 3, 65504.0, 65520.0, 3.4e38, 3.5e38, -1e300, np.inf, -np.inf, np.nan),
    *(1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-24, 1 - 2.0**-25),
    *(1e-40, -1e-40, 1e-45, 7e-46, 1.1754944e-38, 2.0**-126 - 2.0**-150, 6e-8, 3e-8, 2.9e-8, 5e-324),
])  # fmt: skip


PAIRS = [(source, target) for source in FLOATS for target in FLOATS if source is not target]


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_casts_are_those_of_numpy(source, target):
    x = VALUES.astype(source)
    for given in (x, x.reshape(-1, 2)[:, ::-1], x[:1].reshape(()), x[:0]):
        out = np.empty(given.shape, target)
        cast(given, out)
        expected = given.astype(target).astype(np.float64)
        np.testing.assert_array_equal(out.astype(np.float64), expected)
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(out)[known], np.signbit(expected)[known])
