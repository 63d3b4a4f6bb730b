"""Tables of text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Lay out cells in columns, the first ``left`` of them flush left and the others flush right.

    Args:
        header: One title a column.
        rows: One sequence of cells a line, as long as the header.
        left: How many leading columns are flush left.

    Example:
        >>> print(text_table(["name", "bits"], [["mxfp8", "8.25"], ["int4", "5"]]))
        name   bits
        -----  ----
        mxfp8  8.25
        int4      5
    """
    cells = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(_line(row, widths, left).rstrip() for row in cells)


def _line(row: Sequence[str], widths: Sequence[int], left: int) -> str:
    pairs = enumerate(zip(row, widths, strict=True))
    return "  ".join(cell.ljust(width) if i < left else cell.rjust(width) for i, (cell, width) in pairs)
