"""These tests need a device. `make test` collects none of them: test_seam.py runs them on the stand-in."""

from __future__ import annotations

import os

collect_ignore_glob = ["test_*.py"] if os.environ.get("AUTOQ_TEST_DEVICE", "cpu") == "cpu" else []
