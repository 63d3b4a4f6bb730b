"""Rotary position embedding: pairs of features turned by angles that grow with the position."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.devices import array_namespace, beside
from autoq.errors import ShapeError
from autoq.ops.arguments import array, number, whole
from autoq.ops.axes import Shape
from autoq.ops.samples import moved
from autoq.tape.beside import held
from autoq.tape.op import Op, register


def rope(
    x: Any,
    *,
    positions: Any = None,
    base: float = 10000.0,
    interleaved: bool = False,
    heads: int | None = None,
) -> Any:
    """Pairs of features turned by angles that grow with the position.

    Pair i of d features at position p turns by p * base ** (-2 i / d), so that the product of a query and a
    key depends on the distance of their positions.

    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.

    Args:
        x: (..., length, d), d even: queries or keys with the positions on the last axis but one.
        positions: Numbers that broadcast to (..., length); None counts from 0.
        base: The slowest pair turns by about 1 / base a position.
        interleaved: Pairs are features (2 i, 2 i + 1), as in the paper; else (i, i + d / 2), as most
            language models store them.
        heads: With it, x is (..., length, heads * d): heads side by side, each turned by itself.

    Raises:
        ShapeError: An odd number of features, less than two axes, or positions that don't broadcast.
        DTypeError: Positions that aren't numbers.

    Example:
        >>> import autoq as aq
        >>> aq.rope([[1.0, 0.0], [1.0, 0.0]])
        tensor([[1.     0.    ]
                [0.5403... 0.8414...]], float32)
    """
    d = _features(x.shape, heads)
    cos, sin = _turns(d, _positions(x, x.shape, positions), base, x.dtype)
    split = x.reshape(*x.shape[:-1], x.shape[-1] // d if d else 1, d)
    out = array_namespace(x).empty(split.shape, x.dtype)
    first, second = (
        (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(d // 2), slice(d // 2, None))
    )
    a, b = split[..., first], split[..., second]
    out[..., first] = a * cos - b * sin
    out[..., second] = b * cos + a * sin
    return out.reshape(x.shape)


def _features(shape: Shape, heads: int | None) -> int:
    """Features of a head."""
    parts = 1 if heads is None else whole("rope", "heads", heads, least=1)
    if len(shape) < 2 or shape[-1] % (2 * parts):
        raise ShapeError(
            f"rope: x is {shape}" + (f", heads={heads}." if heads else "."),
            "(..., length, d) with d even, or with heads= (..., length, heads * d).",
            "Split the features so that every head has an even number.",
        )
    return shape[-1] // parts


def _positions(other: Any, shape: Shape, positions: Any) -> Any:
    """One number a position, in float64, on the device of another array."""
    if positions is None:
        return array_namespace(other).arange(shape[-2], dtype=np.float64)
    positions = beside(array("rope", "positions", positions), other)
    try:
        np.broadcast_to(positions, shape[:-1])
    except ValueError:
        raise ShapeError(
            f"rope: positions are {positions.shape}, x is {shape}.",
            f"positions that broadcast to {shape[:-1]}.",
            "Insert an axis of length 1 for the heads.",
        ) from None
    return positions.astype(np.float64)


def _turns(d: int, positions: Any, base: float, dtype: Any) -> tuple[Any, Any]:
    """Cosines and sines of the angles, (..., length, 1, d / 2), computed in float64."""
    base = number("rope", "base", base, above=0)
    exponents = -array_namespace(positions).arange(0, d, 2) / (d or 1)
    angles = positions[..., None, None] * base**exponents
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def _rope_x(
    F: Any, g: Any, x_shape: Shape, positions: Any, base: float, interleaved: bool, heads: int | None
) -> Any:
    """The cotangent turned back."""
    back = -_positions(held(g), x_shape, positions)
    return F.rope(g, positions=back, base=base, interleaved=interleaved, heads=heads)


register(
    Op(
        "rope",
        rope,
        {"x": _rope_x},
        sample=moved(
            (2, 3, 4),
            {},
            {"interleaved": True, "base": 100.0},
            {"positions": np.array([[4], [7]])},
            {"heads": 2},
        ),
    )
)
