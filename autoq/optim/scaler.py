"""GradScaler: dynamic loss scaling, which keeps float16 gradients inside float16's range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoq.devices import on_gpu
from autoq.errors import ArgumentError, CaptureError, DTypeError, GradientError, StateError
from autoq.memory import within_memory
from autoq.optim.clip import scaled, squared_norm
from autoq.optim.fused import are_on_one_gpu, read, scaled_on_gpu
from autoq.optim.optimizer import Optimizer
from autoq.recording import in_captured_step, recording
from autoq.tape.delivery import tensor_of
from autoq.tape.tensor import Tensor


class GradScaler:
    """Multiplies the loss, divides the gradients, and skips steps whose gradients overflowed.

    The scale is halved after an overflow and doubled after ``interval`` steps without one.
    Source: Micikevicius et al. 2018, "Mixed Precision Training", §3.2.

    Args:
        scale: First factor of the loss; powers of two round nothing.
        growth: Factor of the scale after ``interval`` good steps.
        backoff: Factor of the scale after a bad step.
        interval: Good steps in a row before the scale grows.

    Raises:
        ArgumentError: Unless scale > 0, growth > 1, 0 < backoff < 1 and interval >= 1.

    Example:
        >>> import autoq as aq
        >>> p = aq.Parameter([1.0])
        >>> optimizer, scaler = aq.optim.SGD([p], lr=0.5), GradScaler(scale=1024.0)
        >>> scaler.scale((p * p).sum()).backward()
        >>> p.grad.item()
        2048.0
        >>> scaler.step(optimizer), p.item()
        (True, 0.0)
        >>> scaler.update()
    """

    def __init__(
        self, scale: float = 2.0**16, growth: float = 2.0, backoff: float = 0.5, interval: int = 2000
    ) -> None:
        numbers = all(isinstance(x, int | float | np.number) for x in (scale, growth, backoff))
        fine = numbers and 0 < scale < math.inf and growth > 1 and 0 < backoff < 1
        if not (fine and isinstance(interval, int | np.integer) and interval >= 1):
            raise ArgumentError(
                f"GradScaler: scale={scale}, growth={growth}, backoff={backoff}, interval={interval}.",
                "scale > 0, growth > 1, 0 < backoff < 1, interval >= 1",
                "Correct the value out of range.",
            )
        self.factor, self.growth, self.backoff, self.interval = float(scale), growth, backoff, interval
        self.good_steps = 0
        self._unscaled: dict[Optimizer, bool] = {}
        self._stepped: set[Optimizer] = set()

    def scale(self, loss: Any) -> Any:
        """The loss times the current factor; call ``backward`` on the result."""
        if not isinstance(loss, Tensor | int | float | np.number):
            raise DTypeError(
                f"GradScaler.scale of a {type(loss).__name__}.", "a tensor", "Pass the loss itself."
            )
        made, factor = recording(), self.factor
        if made is not None:
            made.require(lambda: self.factor == factor, _factor_changed)
        return loss * factor

    def unscale_(self, optimizer: Optimizer) -> bool:
        """Divide the optimizer's gradients by the factor, once a step; for clipping before ``step``.

        Returns:
            Whether all gradients are finite.

        Raises:
            GradientError: If the optimizer has stepped since the last ``update``.
        """
        if not isinstance(optimizer, Optimizer):
            raise DTypeError(
                f"GradScaler: a {type(optimizer).__name__} is no optimizer.",
                "autoq.optim.Optimizer",
                "Pass the optimizer.",
            )
        if optimizer in self._stepped:
            raise GradientError(
                "GradScaler: a second step of one optimizer without an update between.",
                "update() after the steps of an iteration",
                "Call scaler.update() once an iteration.",
            )
        found = self._unscaled.get(optimizer)
        if found is None:
            found = self._unscaled[optimizer] = self._unscale(optimizer)
        return found

    def step(self, optimizer: Optimizer) -> bool:
        """Unscale where that was not done, and step unless a gradient is not finite.

        Returns:
            Whether the step was taken.

        Raises:
            GradientError: If the optimizer has stepped since the last ``update``.
        """
        finite = self.unscale_(optimizer)
        self._stepped.add(optimizer)
        if finite:
            optimizer.step()
        return finite

    def update(self) -> None:
        """Adjust the factor to what the last steps saw; call it once an iteration, after ``step``."""
        if not all(self._unscaled.values()):
            self.factor, self.good_steps = self.factor * self.backoff, 0
        elif self._unscaled:
            self.good_steps += 1
            if self.good_steps == self.interval:
                self.factor, self.good_steps = self.factor * self.growth, 0
        self._unscaled, self._stepped = {}, set()

    def state_dict(self) -> dict[str, float]:
        """The factor and the good steps since it changed."""
        return {"factor": self.factor, "good_steps": self.good_steps}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on with a saved factor.

        Raises:
            StateError: If the entries are not those of :meth:`state_dict`.
        """
        if set(state) != {"factor", "good_steps"}:
            raise StateError(
                f"GradScaler.load_state_dict: {sorted(state)}.",
                "'factor' and 'good_steps'",
                "Pass a state_dict().",
            )
        self.factor, self.good_steps = float(state["factor"]), int(state["good_steps"])

    @within_memory("GradScaler")
    def _unscale(self, optimizer: Optimizer) -> bool:
        listed = [parameter for group in optimizer.groups for parameter in group["params"]]
        parameters = [parameter for parameter in listed if parameter.grad is not None]
        gradients = [parameter.grad.value for parameter in parameters]
        if in_captured_step() and any(on_gpu(gradient) for gradient in gradients):
            raise CaptureError(
                "GradScaler in a captured step on a GPU: whether it steps depends on values.",
                "a step without it under aq.capture",
                "Don't capture this step; or train in float32 or bfloat16, which need no loss scaling.",
            )
        if are_on_one_gpu(gradients):
            results, norm = scaled_on_gpu(gradients, 1.0 / self.factor)
            finite = math.isfinite(read(norm))
        else:
            results = [scaled(gradient, 1.0 / self.factor) for gradient in gradients]
            finite = all(math.isfinite(squared_norm(gradient)) for gradient in results)
        for parameter, gradient in zip(parameters, results, strict=True):
            parameter.grad = tensor_of(gradient)
        return finite


def _factor_changed() -> CaptureError:
    return CaptureError(
        "the factor of a GradScaler changed since a step that scales by it was captured.",
        "the same factor in all calls",
        "Call .reset() on the captured step after such a change, or scale the loss by a tensor argument.",
    )
