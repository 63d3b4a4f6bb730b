"""The suite's own tests as a check: run by pytest in a process that has the mutant in place."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Failed(Exception):
    """A process noticed the mutant."""


def forked(check: Callable[[], None]) -> None:
    """Run a check in a copy of this process; Failed if it raises there."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            check()
            status = 0
        os._exit(status)
    if os.waitpid(pid, 0)[1]:
        raise Failed


def tests(*arguments: str) -> None:
    """Run tests of the suite until the first fails; Failed if one does."""

    def run() -> None:
        import pytest

        os.chdir(ROOT)
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments])
        if code == pytest.ExitCode.TESTS_FAILED:
            raise Failed
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            os.abort()

    forked(run)
