"""Sphinx: Markdown pages, the API from docstrings, the tutorials executed and rendered."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import generate  # noqa: E402
import roofline  # noqa: E402

import autoq  # noqa: E402

project = "autoq"
author = "The autoq maintainers"
copyright = f"2025, {author}"
release = autoq.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
SCRIPTS = ["conf.py", "conftest.py", "generate.py", "layout_table.py", "roofline.py"]
INCLUDED = ["generated/formats_table.md", "generated/performance_measured.md"]
exclude_patterns = ["_build", *SCRIPTS, *INCLUDED]
html_theme = "furo"
html_title = "autoq"
html_static_path = ["style"]
html_css_files = ["width.css"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True


def copy_tutorials() -> None:
    """Bring the tutorials beside the pages: Sphinx reads nothing outside its own folder."""
    target = DOCS / "tutorials"
    target.mkdir(exist_ok=True)
    for script in sorted((DOCS.parent / "tutorials").glob("*.py")):
        shutil.copy(script, target / script.name)


def setup(app: Any) -> None:
    """Change pages as they are read: the empty lines that end examples, the links out of this folder."""
    app.connect("source-read", _without_last_line)
    app.connect("source-read", _with_links)


def _without_last_line(app: Any, page: str, source: list[str]) -> None:
    """Drop the empty line that ends each example: doctest needs it, a reader doesn't."""
    source[0] = source[0].replace("\n\n```\n", "\n```\n")


def _with_links(app: Any, page: str, source: list[str]) -> None:
    """Let links out of this folder lead to the tutorials' copies in it, and fetch other files."""
    folder = (DOCS / page).parent.resolve()

    def found(link: re.Match[str]) -> str:
        file = (folder / link[2]).resolve()
        if file.is_relative_to(DOCS.resolve()):
            return link[0]
        copy = DOCS.resolve() / "tutorials" / file.name
        if copy.exists():
            return f"[{link[1]}]({os.path.relpath(copy.with_suffix(''), folder)})"
        return f"{{download}}`{link[1]} <{link[2]}>`"

    source[0] = re.sub(r"\[([^]]+)\]\((\.\./[^)#]+)\)", found, source[0])


copy_tutorials()
generate.write_pages(DOCS / "generated")
roofline.write_pages(DOCS / "generated")
