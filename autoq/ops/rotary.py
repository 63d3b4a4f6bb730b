"""Rotary position embedding: pairs of features turned by angles that grow with the position."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import DTypeError, ShapeError
from autoq.ops.axes import Shape
from autoq.ops.samples import moved
from autoq.tape.op import Op, register


def rope(x: Any, *, positions: Any = None, base: float = 10000.0, interleaved: bool = False) -> Any:
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

    Raises:
        ShapeError: An odd number of features, less than two axes, or positions that don't broadcast.
        DTypeError: Positions that aren't numbers.

    Example:
        >>> import autoq as aq
        >>> aq.rope([[1.0, 0.0], [1.0, 0.0]])
        tensor([[1.     0.    ]
                [0.5403... 0.8414...]], float32)
    """
    if x.ndim < 2 or x.shape[-1] % 2:
        raise ShapeError(
            f"rope: x is {x.shape}.", "(..., length, d) with d even.", "Split the heads so that d is even."
        )
    cos, sin = _turns(x.shape, _positions(x.shape, positions), base, x.dtype)
    out = np.empty(x.shape, x.dtype)
    half = x.shape[-1] // 2
    first, second = (
        (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(half), slice(half, None))
    )
    a, b = x[..., first], x[..., second]
    out[..., first] = a * cos - b * sin
    out[..., second] = b * cos + a * sin
    return out


def _positions(shape: Shape, positions: Any) -> Any:
    """One number a position, in float64."""
    if positions is None:
        return np.arange(shape[-2], dtype=np.float64)
    positions = np.asarray(positions)
    if positions.dtype.kind not in "iuf":
        raise DTypeError(f"rope: positions are {positions.dtype}.", "numbers.", "Pass integers.")
    try:
        np.broadcast_to(positions, shape[:-1])
    except ValueError:
        raise ShapeError(
            f"rope: positions are {positions.shape}, x is {shape}.",
            f"positions that broadcast to {shape[:-1]}.",
            "Insert an axis of length 1 for the heads.",
        ) from None
    return positions.astype(np.float64)


def _turns(shape: Shape, positions: Any, base: float, dtype: Any) -> tuple[Any, Any]:
    """Cosines and sines of the angles, (..., length, d / 2); float64 until the angles are small."""
    d = shape[-1]
    angles = positions[..., None] * float(base) ** (-np.arange(0, d, 2) / d)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def _rope_x(F: Any, g: Any, x_shape: Shape, positions: Any, base: float, interleaved: bool) -> Any:
    """The cotangent turned back."""
    back = -_positions(x_shape, positions)
    return F.rope(g, positions=back, base=base, interleaved=interleaved)


register(
    Op(
        "rope",
        rope,
        {"x": _rope_x},
        sample=moved(
            (2, 3, 4), {}, {"interleaved": True, "base": 100.0}, {"positions": np.array([[4], [7]])}
        ),
    )
)
