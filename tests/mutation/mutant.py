"""What a mutant is: a change of one rule, and how it is put in place and taken back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

Check = tuple[str, Callable[[], None]]


@dataclass(frozen=True)
class Mutant:
    """One change of one rule, and the checks that should fail of it.

    Attributes:
        kind: What sort of change: a row of the table.
        subject: What is changed.
        change: How.
        checks: Names and checks, the cheapest first; each raises if it notices.
        applied: Puts the change in place while the checks run, where they don't get it as an argument.
        equivalent: Why no check can notice; empty for mutants that have to be caught.
    """

    kind: str
    subject: str
    change: str
    checks: list[Check]
    applied: Callable[[], AbstractContextManager[None]] = nullcontext
    equivalent: str = ""

    def caught_by(self) -> str:
        """The first check that notices; empty if none does."""
        with self.applied():
            for name, check in self.checks:
                try:
                    check()
                except Exception:  # whatever a broken rule leads to: a wrong value, a shape, an attribute
                    return name
        return ""

    def __str__(self) -> str:
        return f"{self.subject}: {self.change}"
