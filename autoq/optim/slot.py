"""Slot: one parameter, its state arrays and the arrays that an update works in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from autoq.context import using
from autoq.errors import DTypeError, ShapeError
from autoq.tape.parameter import Parameter
from autoq.tape.tensor import Tensor


def _odd_gradient(parameter: Parameter) -> ShapeError | DTypeError:
    gradient: Any = parameter.grad
    shape = getattr(gradient, "shape", None)
    kind = DTypeError if shape == parameter.shape or shape is None else ShapeError
    given = f"{gradient.dtype.name} {shape}" if hasattr(gradient, "dtype") else repr(gradient)
    return kind(
        f"step: a parameter of shape {parameter.shape} has the gradient {given}.",
        "a dense tensor of the parameter's shape, or None",
        "Let backward fill .grad, or decode what is set by hand with .dequantize().",
    )


class Slot:
    """One parameter as its optimizer sees it.

    Attributes:
        parameter: The parameter.
        dtype: What arithmetic and state are in: float64 for float64 parameters, else float32.
        steps: How many updates there were.
        state: State arrays by name; empty before the first update.
        scratch: Arrays of the parameter's shape that an update may overwrite.
    """

    __slots__ = ("_in_place", "dtype", "parameter", "scratch", "state", "steps")

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter
        own: np.dtype[Any] = parameter.value.dtype
        self.dtype = own if own == np.float64 else np.dtype(np.float32)
        self._in_place = own == self.dtype
        self.steps = 0
        self.state: dict[str, np.ndarray] = {}
        self.scratch: tuple[np.ndarray, ...] = ()

    def start(self, names: Iterable[str]) -> None:
        """Make the state arrays, of zeros."""
        self.state = {name: np.zeros(self.parameter.shape, self.dtype) for name in names}

    def gradient(self) -> np.ndarray | None:
        """The gradient in the slot's dtype; None if the parameter has none."""
        gradient: Any = self.parameter.grad
        if gradient is None:
            return None
        value: Any = gradient.value if isinstance(gradient, Tensor) else gradient
        if value.__class__ is not np.ndarray or value.shape != self.parameter.value.shape:
            raise _odd_gradient(self.parameter)
        return value if value.dtype is self.dtype else value.astype(self.dtype, copy=False)

    def working_value(self) -> np.ndarray:
        """The array to update: the parameter's own where dtypes agree, else a cast copy."""
        value = self.parameter.value
        return value if self._in_place and value.flags.writeable else np.array(value, self.dtype)

    def store(self, value: np.ndarray) -> None:
        """Make an updated working value the parameter's, and let backward know that it changed."""
        if value is self.parameter.value:
            self.parameter._version[0] += 1  # backward refuses saved values that changed (S29)
            return
        with using(grad=False):
            self.parameter.assign(value)
