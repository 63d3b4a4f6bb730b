"""A tape as an SVG drawing, written as text."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoq.tape.view import Entry, Tape

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 226, 46, 20, 34, 16
COLOURS = {"leaf": "#e8eef7", "packed": "#fdeccf", "dense": "#f4f4f4"}


def drawing(tape: Tape) -> str:
    """One box an entry, in rows by depth; packed results are tinted, lines show what was made of what.

    Example:
        >>> import autoq as aq
        >>> x = aq.tensor([1.0], requires_grad=True)
        >>> drawing(aq.Tape.of(x * x)).startswith("<svg ")
        True
    """
    places = _places(tape)
    width = max((x for x, _ in places), default=0) + WIDTH + MARGIN
    height = max((y for _, y in places), default=0) + HEIGHT + MARGIN
    lines = [_line(places[i], places[e.position]) for e in tape.entries for i in e.inputs]
    boxes = [_box(e, *places[e.position]) for e in tape.entries]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="11">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>'
    )
    return "\n".join([head, *lines, *boxes, "</svg>"])


def _places(tape: Tape) -> list[tuple[int, int]]:
    """The upper left corner of each entry's box: rows by depth, columns in order of arrival."""
    depth: list[int] = []
    for entry in tape.entries:
        depth.append(1 + max((depth[i] for i in entry.inputs), default=-1))
    _sink_leaves(tape, depth)
    filled: dict[int, int] = {}
    places = [(0, 0)] * len(depth)
    # Leaves last: the ops of a chain stay in the first column, one below the other.
    for entry in sorted(tape.entries, key=lambda e: (not e.inputs, e.position)):
        level = depth[entry.position]
        column = filled.get(level, 0)
        filled[level] = column + 1
        places[entry.position] = (MARGIN + column * (WIDTH + GAP_X), MARGIN + level * (HEIGHT + GAP_Y))
    return places


def _sink_leaves(tape: Tape, depth: list[int]) -> None:
    """Move each leaf to the row above its first use, so that lines stay short."""
    first_use: dict[int, int] = {}
    for entry in tape.entries:
        for i in entry.inputs:
            first_use[i] = min(first_use.get(i, depth[entry.position]), depth[entry.position])
    for entry in tape.entries:
        if not entry.inputs and entry.position in first_use:
            depth[entry.position] = first_use[entry.position] - 1


def _box(entry: Entry, x: int, y: int) -> str:
    from autoq.tape.view import type_name

    kind = "leaf" if entry.op == "leaf" else ("packed" if entry.type.is_quantized else "dense")
    saved = f" · {entry.saved_bytes:,} B saved" if entry.saved else ""
    title = f"{entry.position} {entry.op}" + (f" ({entry.note})" if entry.note else "") + saved
    return (
        f'<g><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" '
        f'fill="{COLOURS[kind]}" stroke="#99a"/>'
        f'<text x="{x + 8}" y="{y + 18}" font-weight="bold">{escape(title)}</text>'
        f'<text x="{x + 8}" y="{y + 35}" fill="#334">{escape(type_name(entry.type))} {entry.shape}</text></g>'
    )


def _line(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + WIDTH // 2, start[1] + HEIGHT
    x2, y2 = end[0] + WIDTH // 2, end[1] - 1
    bend = max(14, (y2 - y1) // 2)
    return (
        f'<path d="M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}" fill="none" stroke="#667" '
        'marker-end="url(#tip)"/>'
    )
