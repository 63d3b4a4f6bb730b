"""The GPU benchmark of element-wise ops compares the sample's rows with the CPU, whatever their length."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoq.storage import QTensor

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    os.environ.get("AUTOQ_TEST_DEVICE", "cpu") != "cpu", reason="arrays on the CPU stand for the device's"
)


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scripts be imported as they are when they run."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


class Held(np.ndarray):
    """An array that is fetched from the device, as CuPy's are."""

    def get(self) -> Any:
        return np.asarray(self)


@pytest.mark.parametrize("shape", [(64,), (2, 1), (2, 64)])
def test_results_longer_than_the_sample_are_compared_over_its_rows(shape: tuple[int, ...]) -> None:
    from gpu.map import Work, is_right

    rng = np.random.default_rng(0)
    q = QTensor.quantize(rng.standard_normal((2, 64)), "mxfp8")
    other = rng.standard_normal(shape).astype(np.float32)
    out = np.tile(q.dequantize() + other, (50, 1)).view(Held)
    work = Work(np.add, [], [q, other], out, None)
    assert is_right(work, exact=True)
    out[1, 5] += 1.0
    assert not is_right(work, exact=True)
