"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autoq.errors import ArgumentError
from autoq.optim.optimizer import Optimizer
from autoq.optim.slot import Slot


class SGD(Optimizer):
    """Gradient descent: ``d = g + weight_decay·p``; ``v = momentum·v + d``; ``p = p - lr·v``.

    With ``nesterov`` the step is ``lr·(d + momentum·v)``. Source: Sutskever et al. 2013, "On the importance
    of initialization and momentum in deep learning", with the learning rate outside the velocity.

    Args:
        parameters: Parameters, a module, or a list of groups: ``{"params": [...], "lr": ...}``.
        lr: Learning rate.
        momentum: Decay of the velocity, in [0, 1).
        nesterov: Whether to look ahead along the velocity; needs a momentum.
        weight_decay: L2 term added to the gradient.

    Raises:
        ArgumentError: For an option out of range, no parameters, or a duplicate.
        DTypeError: For a packed parameter.

    Example:
        >>> import autoq as aq
        >>> p = aq.Parameter([1.0, 2.0])
        >>> optimizer = SGD([p], lr=0.5)
        >>> (p * p).sum().backward()
        >>> optimizer.step()
        >>> p.numpy()
        array([0., 0.], dtype=float32)
    """

    state_names = ("velocity",)
    scratch_count = 2

    def __init__(
        self,
        parameters: Any,
        lr: float,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
        for group in self.groups:
            if group["nesterov"] and not group["momentum"]:
                raise ArgumentError(
                    "SGD: nesterov=True with momentum=0.",
                    "a momentum above 0",
                    "Pass momentum=0.9, or drop nesterov.",
                )

    def _update(self, value: Any, gradient: Any, slot: Slot, options: Mapping[str, Any]) -> None:
        scratch, ahead = slot.scratch
        momentum, decay = options["momentum"], options["weight_decay"]
        if decay:
            np.multiply(value, decay, out=scratch)
            gradient = np.add(scratch, gradient, out=scratch)
        if momentum:
            velocity = slot.state["velocity"]
            velocity *= momentum
            velocity += gradient
            if options["nesterov"]:
                gradient = np.add(gradient, np.multiply(velocity, momentum, out=ahead), out=ahead)
            else:
                gradient = velocity
        np.multiply(gradient, options["lr"], out=scratch)
        value -= scratch

    kernel_of = _update
    kernel_switches = ("momentum", "nesterov", "weight_decay")

    def kernel_state(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The velocity, where there is a momentum."""
        return self.state_names if options["momentum"] else ()

    def kernel_numbers(self, options: Mapping[str, Any], steps: int) -> tuple[float, ...]:
        """Learning rate, momentum, weight decay."""
        return float(options["lr"]), float(options["momentum"]), float(options["weight_decay"])

    def run_kernel(
        self, update: Any, table: Any, kinds: tuple[str, str], numbers: Any, options: Mapping[str, Any]
    ) -> None:
        """One launch of SGD's kernel."""
        momentum, decay = options["momentum"] != 0, options["weight_decay"] != 0
        update.sgd(table, kinds, numbers, momentum, bool(options["nesterov"]), decay)
