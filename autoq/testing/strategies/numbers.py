"""Shapes and arrays of floats, with what breaks quantizers: ties, outliers, subnormals, NaN."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy

Strategy: TypeAlias = st.SearchStrategy[Any]
QUARTERS = 4


def lifted(x: Any) -> Strategy:
    """A strategy: the argument itself, or one that always gives it.

    Example:
        >>> lifted(3), lifted(st.integers())
        (just(3), integers())
    """
    return x if isinstance(x, st.SearchStrategy) else st.just(x)


def shapes(
    min_dims: Any = 1, max_dims: Any = 3, min_side: Any = 1, max_side: Any = 6, last: Any = None
) -> Strategy:
    """Shapes of arrays: tuples of ints that shrink towards few and short axes.

    Args:
        min_dims: The fewest axes.
        max_dims: The most.
        min_side: The shortest an axis may be; 0 allows empty arrays.
        max_side: The longest.
        last: The length of the last axis, where it is to be another.

    Example:
        >>> from hypothesis import find
        >>> find(shapes(last=32), lambda shape: len(shape) == 2)
        (1, 32)
    """

    @st.composite
    def drawn(draw: Any) -> tuple[int, ...]:
        low, high = draw(lifted(min_dims)), draw(lifted(max_dims))
        short, long = draw(lifted(min_side)), draw(lifted(max_side))
        sides = draw(st.lists(st.integers(short, long), min_size=low, max_size=max(low, high)))
        if last is not None and sides:
            sides[-1] = draw(lifted(last))
        return tuple(sides)

    return drawn()


def arrays(
    shape: Any = None,
    dtype: Any = np.float32,
    magnitude: Any = 1.0,
    ties: Any = True,
    outliers: Any = False,
    subnormals: Any = False,
    nonfinite: Any = False,
) -> Strategy:
    """Float arrays.

    Args:
        shape: The shape; ``shapes()`` by default.
        dtype: The NumPy float dtype.
        magnitude: Values lie between minus and plus this.
        ties: Multiples of a quarter of the magnitude among them: equal values, zeros, values between codes.
        outliers: Values up to 1000 times larger among them.
        subnormals: Subnormal float32 values among them.
        nonfinite: NaN and infinities among them.

    Example:
        >>> from hypothesis import find
        >>> find(arrays((2,)), lambda x: x.sum() >= 1)
        array([0., 1.], dtype=float32)
    """

    @st.composite
    def drawn(draw: Any) -> np.ndarray:
        size = draw(shapes() if shape is None else lifted(shape))
        scale = float(draw(lifted(magnitude)))
        kinds = [_quarters()] if draw(lifted(ties)) else []
        kinds.append(st.floats(-1, 1, width=32, allow_subnormal=False))
        if draw(lifted(outliers)):
            kinds.append(st.integers(-1000, 1000).map(float))
        parts = [kind.map(lambda value: scale * value) for kind in kinds]
        if draw(lifted(subnormals)):
            parts.append(st.integers(-(2**22), 2**22).map(lambda k: k * 2.0**-149))
        if draw(lifted(nonfinite)):
            parts.append(st.sampled_from([np.nan, np.inf, -np.inf]))
        values = draw(numpy.arrays(np.float64, size, elements=st.one_of(parts)))
        return values.astype(draw(lifted(dtype)))

    return drawn()


def _quarters() -> Strategy:
    return st.integers(-QUARTERS, QUARTERS).map(lambda k: k / QUARTERS)
