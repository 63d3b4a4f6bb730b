"""What the pages register in their examples is forgotten after each page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autoq.schemes.catalog import _NAMES, CATALOG
from autoq.schemes.element import ELEMENTS
from autoq.tape.op import REGISTRY

TABLES = (CATALOG, _NAMES, ELEMENTS, REGISTRY)


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Put the tables of schemes, elements and operations back as they were."""
    before = [dict(table) for table in TABLES]
    yield
    for table, entries in zip(TABLES, before, strict=True):
        table.clear()
        table.update(entries)
