"""Adam and AdamW."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from autoq.optim.optimizer import Optimizer
from autoq.optim.slot import Slot


class Adam(Optimizer):
    """Steps along the gradient's running mean over the root of its running square.

    ``m = β₁·m + (1-β₁)·g``; ``s = β₂·s + (1-β₂)·g²``; ``p = p - lr · m̂ / (√ŝ + eps)`` with ``m̂ = m/(1-β₁ᵗ)``,
    ``ŝ = s/(1-β₂ᵗ)``. Source: Kingma & Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1.

    Args:
        parameters: Parameters, a module, or a list of groups: ``{"params": [...], "lr": ...}``.
        lr: Learning rate.
        betas: Decay of the mean and of the square.
        eps: Added to the root.
        weight_decay: L2 term added to the gradient.

    Raises:
        ArgumentError: For an option out of range, no parameters, or a duplicate.
        DTypeError: For a packed parameter.

    Example:
        >>> import autoq as aq
        >>> p = aq.Parameter([1.0, -2.0])
        >>> optimizer = Adam([p], lr=0.5)
        >>> (p * p).sum().backward()
        >>> optimizer.step()
        >>> p.numpy().round(4)
        array([ 0.5, -1.5], dtype=float32)
    """

    state_names = ("mean", "square")
    scratch_count = 2
    decoupled = False

    def __init__(
        self,
        parameters: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _update(self, value: Any, gradient: Any, slot: Slot, options: Mapping[str, Any]) -> None:
        lr, decay = options["lr"], options["weight_decay"]
        scratch, other = slot.scratch
        if decay and self.decoupled:
            value *= 1.0 - lr * decay
        elif decay:
            np.multiply(value, decay, out=other)
            gradient = np.add(other, gradient, out=other)
        beta1, beta2 = options["betas"]
        _average(slot.state["mean"], gradient, beta1, scratch)
        _average(slot.state["square"], np.square(gradient, out=other), beta2, scratch)
        mean_bias, square_bias = 1.0 - beta1**slot.steps, 1.0 - beta2**slot.steps
        np.sqrt(slot.state["square"], out=scratch)
        scratch *= 1.0 / math.sqrt(square_bias)
        scratch += options["eps"]
        np.divide(slot.state["mean"], scratch, out=scratch)
        scratch *= lr / mean_bias
        value -= scratch

    kernel_of = _update
    kernel_switches = ("weight_decay",)

    def kernel_numbers(self, options: Mapping[str, Any], steps: int) -> tuple[float, ...]:
        """The factors of ``_update`` in the order of the kernel."""
        lr, decay = options["lr"], options["weight_decay"]
        beta1, beta2 = options["betas"]
        root = 1.0 / math.sqrt(1.0 - beta2**steps)
        first = 1.0 - lr * decay if self.decoupled else decay
        numbers = (
            first,
            beta1,
            1.0 - beta1,
            beta2,
            1.0 - beta2,
            root,
            options["eps"],
            lr / (1.0 - beta1**steps),
        )
        return tuple([float(x) for x in numbers])

    def run_kernel(
        self, update: Any, table: Any, kinds: tuple[str, str], numbers: Any, options: Mapping[str, Any]
    ) -> None:
        """One launch of Adam's kernel."""
        way = "decoupled" if self.decoupled else "coupled"
        update.adam(table, kinds, numbers, way if options["weight_decay"] else "")


class AdamW(Adam):
    """Adam whose weight decay acts on the parameter itself: ``p = p - lr·weight_decay·p`` before the step.

    Source: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2. Arguments and
    errors are those of :class:`Adam`.

    Example:
        >>> import autoq as aq
        >>> AdamW([aq.Parameter([1.0])], lr=0.001)
        AdamW(1 parameters, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)
    """

    decoupled = True

    def __init__(
        self,
        parameters: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)


def _average(running: Any, new: Any, beta: float, scratch: Any) -> None:
    """``running = beta · running + (1 - beta) · new``, in place."""
    running *= beta
    running += np.multiply(new, 1.0 - beta, out=scratch)
