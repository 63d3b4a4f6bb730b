"""What the page about custom operations defines, for tests that need more than the page can show."""

from __future__ import annotations

import doctest
from functools import cache
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "extending" / "custom_op.md"
UNTIL = "## It behaves like a built-in"


@cache
def names() -> dict[str, Any]:
    """What the examples before the operations' first use define."""
    text = PAGE.read_text().partition(UNTIL)[0]
    found: dict[str, Any] = {"__name__": "__main__"}
    for example in doctest.DocTestParser().get_examples(text):
        exec(compile(example.source, str(PAGE), "exec"), found)
    return found
