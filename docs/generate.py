"""Pages that are written from the records: the reference of formats and that of operations."""

from __future__ import annotations

from pathlib import Path

import autoq as aq
from autoq.cli.formats import HEADER, format_rows
from autoq.ops.public import public
from autoq.tape.function import COMPOSED
from autoq.tape.op import REGISTRY

# Casts have arguments beyond their record's and are described beside the tensors.
CASTS = {"quantize", "quantize_grad"}


def write_pages(folder: Path) -> None:
    """Write every generated page into ``folder``."""
    folder.mkdir(exist_ok=True)
    (folder / "formats_table.md").write_text(formats_page())
    (folder / "ops.md").write_text(ops_page())


def formats_page() -> str:
    """The table of named schemes, as Markdown to include."""
    lines = [HEADER, ["---"] * len(HEADER), *format_rows()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def ops_page() -> str:
    """One entry an operation that is public: those of a record, those of several, and what creates."""
    head = (
        "# Operations\n\n"
        "Every operation takes tensors, arrays and numbers. It follows\n"
        "the [dtype rule](../concepts/dtypes.md); "
        "`out_dtype=` overrides the rule for one call.\n\n"
    )
    names = [name for name in {**REGISTRY, **COMPOSED} if hasattr(aq, name) and name not in CASTS]
    listed = {id(getattr(aq, name)) for name in names}  # an alias is its function under another name
    names += [name for name in public() if name not in CASTS and id(getattr(aq, name)) not in listed]
    return head + "".join(f"```{{eval-rst}}\n.. autofunction:: autoq.{name}\n```\n\n" for name in names)
