"""The suites of other implementations' numbers, and the codecs compared with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autoq.testing.codecs import Oracle, Storage

SUITES = Path(__file__).parent.parent / "data" / "vectors"


@pytest.fixture(params=[Oracle, Storage], ids=["oracle", "storage"])
def codec(request: pytest.FixtureRequest) -> type:
    return request.param


@pytest.fixture(scope="session")
def suite() -> Callable[[str], dict[str, np.ndarray]]:
    """The arrays of a suite by its name."""

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(SUITES / f"{name}.npz") as arrays:
            return {key: arrays[key] for key in arrays.files}

    return load
