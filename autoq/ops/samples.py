"""Sample operands of the ops, in the domain where each is smooth: what the registry tests run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = tuple[tuple[Any, ...], dict[str, Any]]
Sample = Callable[[np.random.Generator], list[Case]]

PAIRS = (((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 3)), ((2, 3), ()))


def unary(low: float, high: float, **static: Any) -> Sample:
    """One operand between `low` and `high`: a matrix and a 0-d array."""

    def sample(rng: np.random.Generator) -> list[Case]:
        return [((rng.uniform(low, high, shape),), dict(static)) for shape in ((3, 4), ())]

    return sample


def signed(low: float, high: float, **static: Any) -> Sample:
    """One operand of either sign whose magnitude lies between `low` and `high`: no value near 0."""

    def sample(rng: np.random.Generator) -> list[Case]:
        x = rng.uniform(low, high, (3, 4)) * rng.choice([-1.0, 1.0], (3, 4))
        return [((x,), dict(static)), ((x[0, 0],), dict(static))]

    return sample


def binary(a: tuple[float, float], b: tuple[float, float]) -> Sample:
    """Two operands in their intervals, over every way of broadcasting."""

    def sample(rng: np.random.Generator) -> list[Case]:
        return [((rng.uniform(*a, first), rng.uniform(*b, second)), {}) for first, second in PAIRS]

    return sample


def distinct(rng: np.random.Generator, shape: tuple[int, ...], shift: float = 0.0) -> np.ndarray:
    """Values a quarter apart in random order, so that none ties with another."""
    size = int(np.prod(shape))
    return (rng.permutation(size).reshape(shape) - size / 2) / 4 + 0.0625 + shift


def apart(rng: np.random.Generator) -> list[Case]:
    """Two operands that differ everywhere by at least 0.1."""
    return [((distinct(rng, first), distinct(rng, second, 0.1)), {}) for first, second in PAIRS]


def reduced(low: float, high: float, **static: Any) -> Sample:
    """One operand with the ways of naming axes to reduce."""
    options: tuple[dict[str, Any], ...] = (
        {},
        {"axis": 0},
        {"axis": -1, "keepdims": True},
        {"axis": (0, 2)},
        {"axis": (-1, 1), "keepdims": True},
    )

    def sample(rng: np.random.Generator) -> list[Case]:
        cases: list[Case] = [((rng.uniform(low, high, (2, 3, 4)),), static | option) for option in options]
        return [*cases, ((rng.uniform(low, high, ()),), dict(static))]

    return sample


def moved(shape: tuple[int, ...], *statics: dict[str, Any]) -> Sample:
    """One normally distributed operand of a shape, once for each set of static arguments."""

    def sample(rng: np.random.Generator) -> list[Case]:
        return [((rng.standard_normal(shape),), dict(static)) for static in statics]

    return sample
