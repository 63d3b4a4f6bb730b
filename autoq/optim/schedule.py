"""Learning-rate schedules: a factor of each group's own rate, as a function of the step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from autoq.errors import ArgumentError, DTypeError, StateError
from autoq.optim.optimizer import Optimizer
from autoq.recording import recording


class Schedule:
    """Base of the schedules: sets the rate of step 0 at once and that of the next step on every ``step()``.

    Args:
        optimizer: Its groups' rates at this moment are what the factors multiply.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise DTypeError(
                f"{type(self).__name__} of a {type(optimizer).__name__}.",
                "autoq.optim.Optimizer",
                "Pass the optimizer whose rate is scheduled.",
            )
        self.optimizer = optimizer
        self.base = [float(group["lr"]) for group in optimizer.groups]
        self.count = 0
        self._set()

    def factor(self, step: int) -> float:
        """The factor of step ``step``, counted from 0."""
        raise NotImplementedError(f"{type(self).__name__} has no factor(step).")

    def step(self) -> None:
        """Go on to the next step; call it after ``optimizer.step()``."""
        made = recording()
        if made is None:
            self._advance()
            return
        before = self.count
        made.on_failure(lambda: self._go_to(before))
        made.each_time(self._advance)

    def _advance(self) -> None:
        self._go_to(self.count + 1)

    def _go_to(self, count: int) -> None:
        self.count = count
        self._set()

    @property
    def lr(self) -> float:
        """The rate of the first group now."""
        return self.optimizer.lr

    def state_dict(self) -> dict[str, Any]:
        """The step and the groups' base rates."""
        return {"count": self.count, "base": list(self.base)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved step.

        Raises:
            StateError: If the entries are not those of :meth:`state_dict` for as many groups.
        """
        if set(state) != {"count", "base"} or len(state["base"]) != len(self.base):
            raise StateError(
                f"{type(self).__name__}.load_state_dict: {dict(state)!r}.",
                f"'count' and 'base', {len(self.base)} rates",
                "Pass what state_dict() of the same schedule returned.",
            )
        self.count, self.base = int(state["count"]), [float(rate) for rate in state["base"]]
        self._set()

    def _set(self) -> None:
        factor = self.factor(self.count)
        for group, base in zip(self.optimizer.groups, self.base, strict=True):
            group["lr"] = base * factor


class LinearWarmup(Schedule):
    """Rises in equal steps to the full rate: ``(step + 1) / steps``, then stays (Goyal et al. 2017, §2.2).

    Args:
        optimizer: The optimizer whose rates are set.
        steps: Steps until the full rate.

    Raises:
        ArgumentError: If ``steps`` is below 1.

    Example:
        >>> import autoq as aq
        >>> schedule = LinearWarmup(aq.optim.SGD([aq.Parameter([1.0])], lr=1.0), steps=4)
        >>> rates = [schedule.lr]
        >>> for _ in range(4):
        ...     schedule.step()
        ...     rates.append(schedule.lr)
        >>> rates
        [0.25, 0.5, 0.75, 1.0, 1.0]
    """

    def __init__(self, optimizer: Optimizer, steps: int) -> None:
        self.steps = _count("LinearWarmup", "steps", steps, 1)
        super().__init__(optimizer)

    def factor(self, step: int) -> float:
        """The factor of step ``step``, counted from 0."""
        return min(1.0, (step + 1) / self.steps)


class CosineSchedule(Schedule):
    """Linear warm-up, then half a cosine from the full rate down to ``final`` times it, where it stays.

    Source: Loshchilov & Hutter 2017, "SGDR: Stochastic Gradient Descent with Warm Restarts", equation 5,
    without the restarts.

    Args:
        optimizer: The optimizer whose rates are set.
        steps: All steps, warm-up included.
        warmup: Steps of the warm-up.
        final: Factor of the rate at the end.

    Raises:
        ArgumentError: If the warm-up is not shorter than the whole, or a count is negative.

    Example:
        >>> import autoq as aq
        >>> schedule = CosineSchedule(aq.optim.SGD([aq.Parameter([1.0])], lr=1.0), steps=5, warmup=1)
        >>> [round(schedule.factor(step), 3) for step in range(6)]
        [1.0, 1.0, 0.854, 0.5, 0.146, 0.0]
    """

    def __init__(self, optimizer: Optimizer, steps: int, warmup: int = 0, final: float = 0.0) -> None:
        self.steps = _count("CosineSchedule", "steps", steps, 1)
        self.warmup = _count("CosineSchedule", "warmup", warmup, 0)
        if not isinstance(final, int | float | np.number) or not 0 <= final < math.inf:
            raise ArgumentError(f"CosineSchedule: final={final!r}.", "numbers from 0", "Pass a factor.")
        self.final = float(final)
        if self.warmup >= self.steps:
            raise ArgumentError(
                f"CosineSchedule: warmup={warmup} of steps={steps}.",
                "warmup < steps",
                "Pass the number of all steps.",
            )
        super().__init__(optimizer)

    def factor(self, step: int) -> float:
        """The factor of step ``step``, counted from 0."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        done = min(1.0, (step - self.warmup) / (self.steps - self.warmup))
        return self.final + (1.0 - self.final) * 0.5 * (1.0 + math.cos(math.pi * done))


def _count(owner: str, name: str, value: Any, least: int) -> int:
    if not isinstance(value, int) or value < least:
        raise ArgumentError(
            f"{owner}: {name}={value!r}.", f"an integer >= {least}", f"Pass the number of {name}."
        )
    return value
