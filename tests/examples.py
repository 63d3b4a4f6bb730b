"""How many examples a test draws: more in the nightly profile, few where kernels are interpreted."""

from __future__ import annotations

import os

PROFILE = os.environ.get("AUTOQ_TEST_PROFILE", "ci")
SCALE = {"nightly": 10.0, "coverage": 0.03}.get(PROFILE, 1.0)


def scaled(count: int) -> int:
    """So many examples in CI, and at least one in any profile."""
    return max(1, int(count * SCALE))
