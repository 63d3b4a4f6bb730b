"""The README's example prints what the README says, its table is right, and links lead somewhere."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import autoq as aq

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MADE = {"_build", "generated", "tutorials"}  # folders of docs that building it fills
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if not MADE & set(path.parts)]


def test_the_example_prints_what_it_says():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (claimed,) = re.findall(r"prints\n\n```\n(.*?)```", README, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), aq.default_device("cpu"):
        exec(compile(example, "README.md", "exec"), {})
    assert [line.rstrip() for line in printed.getvalue().splitlines()] == claimed.splitlines()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_pages_lead_somewhere(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose)
    assert [target for target in targets if not (page.parent / target).exists()] == []


def format_rows():
    table = README.split("## Formats")[1].split("## Where")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line[:2] == "| "
    ]
    for names, _, _, _, bits, _ in rows[1:]:
        schemes = re.findall(r"`(\w+)`", names)
        shown = bits.split(", ")
        for position, name in enumerate(schemes):
            yield name, float(shown[position if len(shown) > 1 else 0])


@pytest.mark.parametrize(("name", "bits"), list(format_rows()))
def test_the_table_of_formats_tells_the_bits(name, bits):
    assert round(aq.scheme(name).bits_per_value, 2) == bits
