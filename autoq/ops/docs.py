"""Docstrings of the ops whose forward is a NumPy function and has none of ours."""

from __future__ import annotations


def documented(operands: tuple[str, ...], summary: str, call: str, result: str) -> str:
    """The docstring of an element-wise op, with an example that runs.

    Example:
        >>> text = documented(("a", "b"), "a + b.", "aq.add(1.0, 2.0)", "tensor(3., float32)")
        >>> print(text.splitlines()[6])
            b: Any shape that broadcasts with `a`.
    """
    shapes = ["Any shape.", f"Any shape that broadcasts with `{operands[0]}`."]
    lines = [summary, "", "Element by element.", "", "Args:"]
    lines += [f"    {name}: {shape}" for name, shape in zip(operands, shapes, strict=False)]
    lines += ["", "Example:", "    >>> import autoq as aq", f"    >>> {call}", f"    {result}", ""]
    return "\n".join(lines)
