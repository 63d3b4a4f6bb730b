"""Slot: one parameter, its state arrays and the arrays that an update works in."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from autoq.context import using
from autoq.devices import (
    SEVERAL,
    array_namespace,
    device_of,
    is_array,
    on_gpu,
    to_device,
    two_devices,
    using_device,
)
from autoq.errors import CaptureError, DTypeError, ShapeError
from autoq.recording import recording
from autoq.tape.parameter import Parameter
from autoq.tape.tensor import Tensor

KINDS = ("float32", "float16", "bfloat16")  # of what kernels read and write


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
        place: Device and dtype of the parameter, where ``ready`` found kernels for it.
    """

    __slots__ = ("_in_place", "_seen", "dtype", "parameter", "place", "scratch", "state", "steps")

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter
        own: np.dtype[Any] = parameter.value.dtype
        self.dtype = own if own == np.float64 else np.dtype(np.float32)
        self._in_place = own == self.dtype
        self.steps = 0
        self.state: dict[str, Any] = {}
        self.scratch: tuple[Any, ...] = ()
        self._seen: Any = None
        self.place = ("", "")

    def start(self, names: Iterable[str]) -> None:
        """Make the state arrays that aren't there, of zeros, on the parameter's device."""
        value, made = self.parameter.value, recording()
        with using_device(device_of(value)):
            for name in names:
                if name in self.state:
                    continue
                if made is not None and on_gpu(value):
                    # Filled once, now: a graph would fill it with zeros in each replay, and not before.
                    self.state[name] = made.constant(np.zeros(self.parameter.shape, self.dtype))
                else:
                    self.state[name] = array_namespace(value).zeros(self.parameter.shape, self.dtype)

    def follow(self) -> None:
        """Move the state arrays to where the parameter is now."""
        device = device_of(self.parameter.value)
        for name, array in self.state.items():
            self.state[name] = to_device(array, device)

    def ready(self, names: Collection[str]) -> bool:
        """Whether a kernel can step the parameter, with its state beside it; looked at once an array."""
        value: Any = self.parameter._value
        if value is self._seen and len(self.state) >= len(names):
            return True
        if not (on_gpu(value) and value.flags.c_contiguous and value.dtype.name in KINDS):
            return False
        self.start(names)
        self.follow()
        self._seen, self.place = value, (device_of(value), value.dtype.name)
        return True

    def take(self, state: dict[str, Any]) -> None:
        """Take over state arrays in the slot's dtype, copied to the parameter's device."""
        device = device_of(self.parameter.value)
        self.state = {name: to_device(array.astype(self.dtype), device) for name, array in state.items()}
        self._seen = None

    def gradient(self) -> Any:
        """The gradient in the slot's dtype; None if the parameter has none."""
        value = self.raw_gradient()
        return value if value is None or value.dtype is self.dtype else value.astype(self.dtype, copy=False)

    def raw_gradient(self) -> Any:
        """The gradient's array; None if the parameter has none."""
        gradient: Any = self.parameter.grad
        if gradient is None:
            return None
        value: Any = gradient.value if isinstance(gradient, Tensor) else gradient
        own: Any = self.parameter.value
        if value.__class__ is not own.__class__ or value.shape != own.shape:
            if is_array(value) and value.shape == own.shape:
                raise two_devices("step", [own, value], ["parameter", "gradient"])
            raise _odd_gradient(self.parameter)
        if SEVERAL and device_of(value) != device_of(own):
            raise two_devices("step", [own, value], ["parameter", "gradient"])
        return value

    def working_value(self) -> Any:
        """The array to update: the parameter's own where dtypes agree, else a cast copy."""
        value: Any = self.parameter.value
        if on_gpu(value):
            return value.astype(self.dtype, copy=not self._in_place)
        return value if self._in_place and value.flags.writeable else np.array(value, self.dtype)

    def is_on_host(self) -> bool:
        """Whether the state and the working space are there, on the CPU."""
        arrays = (*self.scratch, *self.state.values())
        return bool(self.scratch) and all(array.__class__ is np.ndarray for array in arrays)

    def working_space(self, count: int) -> None:
        """Make arrays that an update may overwrite where there are none: on a GPU for this step alone."""
        value: Any = self.parameter.value
        if on_gpu(value) or not self.scratch or on_gpu(self.scratch[0]):
            empty = array_namespace(value).empty
            self.scratch = tuple([empty(value.shape, self.dtype) for _ in range(count)])

    def store(self, value: Any) -> None:
        """Make an updated working value the parameter's, and let backward know that it changed."""
        if value is self.parameter.value:
            self.parameter._version[0] += 1  # backward refuses saved values that changed (S29)
            return
        with using(grad=False):
            self.parameter.assign(value)


class RecordedSlot:
    """A slot as an update on arrays gets it under capture: without a count of steps.

    Arithmetic on arrays takes the count as a number, which would be the same in every replay.
    """

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def __getattr__(self, name: str) -> Any:
        if name != "steps":
            return getattr(self._slot, name)
        parameter = self._slot.parameter
        raise CaptureError(
            f"a captured step of an optimizer that counts its steps, on a parameter {parameter.shape} "
            f"{parameter.value.dtype.name} that no kernel is for.",
            f"{', '.join(KINDS)} with the optimizers of aq.optim, or arithmetic that takes no count",
            "Call optimizer.step() outside of the captured step, or make the parameters float32.",
        )
