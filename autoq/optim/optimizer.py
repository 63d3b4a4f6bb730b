"""Optimizer: parameter groups, their state, and the update loop that the methods share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from autoq.context import OBSERVERS, changed
from autoq.devices import on_gpu, to_host, using_device
from autoq.errors import ArgumentError, DTypeError, StateError
from autoq.memory import within_memory
from autoq.optim.fused import any_on_gpu, record_arrays, step_on_gpu
from autoq.optim.slot import RecordedSlot, Slot
from autoq.recording import recording
from autoq.tape.parameter import Parameter, QParameter


class Optimizer:
    """Base of the methods: a subclass names its state arrays and updates one array in place.

    Arithmetic and state are float32 (float64 for float64 parameters); the result is cast to the parameter's
    dtype. A parameter without a gradient is skipped.

    Args:
        parameters: Parameters, a module, or groups: dicts with "params" and options of their own.
        options: What the groups' options default to; ``lr`` among them.

    Raises:
        ArgumentError: For no parameters, a duplicate, or an unknown option.
        DTypeError: For a packed parameter, or something that is no parameter.
    """

    state_names: ClassVar[tuple[str, ...]] = ()
    scratch_count: ClassVar[int] = 1
    kernel_of: ClassVar[Any] = None  # the _update whose arithmetic the kernels have
    kernel_switches: ClassVar[tuple[str, ...]] = ()  # options that decide by being 0 or not what it computes

    def __init__(self, parameters: Any, **options: Any) -> None:
        name = type(self).__name__
        for key, value in options.items():
            check_option(name, key, value)
        self.groups = _groups(name, _listed(parameters), options)
        self._slots: list[list[Slot]] = []
        self.tables: dict[Any, Any] = {}  # of kernels, by the parameters that they step
        scratch: dict[Any, list[np.ndarray]] = {}
        seen: set[int] = set()
        for group in self.groups:
            slots = [Slot(_checked(name, parameter, seen)) for parameter in group["params"]]
            self._slots.append(slots)
        _share_scratch([slot for slots in self._slots for slot in slots], self.scratch_count, scratch)

    @property
    def lr(self) -> float:
        """The learning rate of the first group; setting it sets that of all groups."""
        return float(self.groups[0]["lr"])

    @lr.setter
    def lr(self, value: float) -> None:
        check_option(type(self).__name__, "lr", value)
        for group in self.groups:
            group["lr"] = value

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for slots in self._slots:
            for slot in slots:
                slot.parameter.grad = None

    @within_memory("a step")
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        made = recording()
        if made is not None:
            made.idle += [s.parameter for slots in self._slots for s in slots if s.parameter.grad is None]
        for index, (group, slots) in enumerate(zip(self.groups, self._slots, strict=True)):
            if self._has_kernel and any_on_gpu(slots):
                slots = step_on_gpu(self, index, group, slots)
            for slot in slots:
                with using_device(slot.parameter.device):
                    gradient = slot.gradient()
                    if gradient is not None:
                        self._step(slot, gradient, group)

    def _step(self, slot: Slot, gradient: Any, group: Mapping[str, Any]) -> None:
        """Update one parameter by the method's arithmetic on arrays."""
        value = slot.working_value()
        names = self.used_state(group)
        if len(slot.state) < len(names):
            slot.start(names)
        if value.__class__ is not np.ndarray or not slot.is_on_host():
            slot.follow()
            slot.working_space(self.scratch_count)
        made = recording()
        if OBSERVERS:
            changed(slot.parameter)
        if made is None:
            slot.steps += 1
            self._update(value, gradient, slot, group)
        else:
            record_arrays(made, slot, group)
            self._update(value, gradient, RecordedSlot(slot), group)
        slot.store(value)

    @property
    def _has_kernel(self) -> bool:
        """Whether the kernels compute what this class does: not for one that changes the arithmetic."""
        own = type(self)
        return own.kernel_of is not None and own._update is own.kernel_of

    def used_state(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The state arrays that a group's options call for; all, where the arithmetic is changed."""
        return self.kernel_state(options) if self._has_kernel else self.state_names

    def kernel_state(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The state arrays that the kernel reads and writes."""
        return self.state_names

    def kernel_numbers(self, options: Mapping[str, Any], steps: int) -> tuple[float, ...]:
        """What the kernel takes of a group's options for a step, counted from 1."""
        raise NotImplementedError(f"{type(self).__name__} has no kernel.")

    def run_kernel(
        self, update: Any, table: Any, kinds: tuple[str, str], numbers: Any, options: Mapping[str, Any]
    ) -> None:
        """Launch the kernel on the parameters of a table; ``numbers`` as above, or an array of them."""
        raise NotImplementedError(f"{type(self).__name__} has no kernel.")

    def _update(self, value: Any, gradient: Any, slot: Any, options: Mapping[str, Any]) -> None:
        """Change ``value`` and the state arrays in place; ``gradient`` must stay as it is."""
        raise NotImplementedError(f"{type(self).__name__} has no _update.")

    def state_dict(self) -> dict[str, np.ndarray]:
        """Options, step counts and state arrays as one flat dict of arrays, which ``aq.io.save`` can store.

        Example:
            >>> import autoq as aq
            >>> sorted(aq.optim.SGD([aq.Parameter([1.0])], lr=0.1, momentum=0.9).state_dict())[:2]
            ['group.0.lr', 'group.0.momentum']
        """
        state: dict[str, np.ndarray] = {}
        for index, group in enumerate(self.groups):
            for key, value in group.items():
                if key != "params":
                    state[f"group.{index}.{key}"] = np.asarray(value)
        for index, slot in enumerate(self._flat()):
            state[f"state.{index}.steps"] = np.asarray(slot.steps)
            for name, array in slot.state.items():
                state[f"state.{index}.{name}"] = to_host(array).copy()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state dict of an optimizer of the same method over the same parameters.

        Raises:
            StateError: Naming what is missing, unknown or misshapen; the optimizer is left as it was.
        """
        if not isinstance(state, Mapping):
            raise StateError(
                f"{type(self).__name__}.load_state_dict of a {type(state).__name__}.",
                "a dict of arrays by name",
                "Pass what state_dict() or aq.io.load returned; this one is unchanged.",
            )
        arrays = {key: to_host(value) for key, value in state.items()}
        faults = self._faults(arrays)
        for key, array in arrays.items():
            if not faults and key.startswith("group."):
                check_option(type(self).__name__, key.split(".", 2)[2], array.tolist())
        if faults:
            raise StateError(
                f"{type(self).__name__}.load_state_dict: {'; '.join(faults)}.",
                "the state dict of the same method over the same parameters",
                "Build the optimizer as it was saved; this one is unchanged.",
            )
        for index, group in enumerate(self.groups):
            for key in group.keys() - {"params"}:
                value = arrays[f"group.{index}.{key}"].tolist()
                group[key] = tuple(value) if isinstance(value, list) else value
        for index, slot in enumerate(self._flat()):
            slot.steps = int(arrays[f"state.{index}.steps"])
            names = [name for name in self.state_names if f"state.{index}.{name}" in arrays]
            slot.take({name: arrays[f"state.{index}.{name}"] for name in names})

    def _flat(self) -> list[Slot]:
        return [slot for slots in self._slots for slot in slots]

    def _faults(self, arrays: Mapping[str, np.ndarray]) -> list[str]:
        expected: dict[str, tuple[int, ...]] = {}
        for index, group in enumerate(self.groups):
            expected |= {f"group.{index}.{key}": np.shape(group[key]) for key in group if key != "params"}
        for index, slot in enumerate(self._flat()):
            expected[f"state.{index}.steps"] = ()
            names = [f"state.{index}.{name}" for name in self.state_names]
            if any(name in arrays for name in names):
                expected |= dict.fromkeys(names, slot.parameter.shape)
        faults = [f"missing {key!r}" for key in expected if key not in arrays]
        faults += [f"unknown {key!r}" for key in arrays if key not in expected]
        faults += [
            f"{key!r} has shape {arrays[key].shape}, not {tuple(shape)}"
            for key, shape in expected.items()
            if key in arrays and arrays[key].shape != tuple(shape)
        ]
        return faults

    def __repr__(self) -> str:
        lines = []
        for group in self.groups:
            options = ", ".join(f"{key}={value}" for key, value in group.items() if key != "params")
            lines.append(f"{type(self).__name__}({len(group['params'])} parameters, {options})")
        return "\n".join(lines)


def check_option(owner: str, name: str, value: Any) -> None:
    """Raise ArgumentError unless ``value`` is in the range of the option ``name``."""
    allowed, holds = _RANGES.get(name, ("", lambda _: True))
    try:
        fine = bool(holds(value))
    except (TypeError, ValueError):
        fine = False
    if not fine:
        raise ArgumentError(f"{owner}: {name}={value!r}.", allowed, f"Pass {name} in this range.")


_RANGES: dict[str, tuple[str, Any]] = {
    "lr": ("lr >= 0", lambda x: 0 <= x < np.inf),
    "momentum": ("0 <= momentum < 1", lambda x: 0 <= x < 1),
    "betas": ("two numbers in [0, 1)", lambda x: len(x) == 2 and all(0 <= b < 1 for b in x)),
    "eps": ("eps > 0", lambda x: 0 < x < np.inf),
    "weight_decay": ("weight_decay >= 0", lambda x: 0 <= x < np.inf),
}


def _listed(parameters: Any) -> list[Any]:
    """A list of parameters, from one or from a module."""
    own = getattr(parameters, "parameters", None)
    if own is None and not isinstance(parameters, Iterable):
        raise DTypeError(
            f"an optimizer of a {type(parameters).__name__}.",
            "parameters, a module, or groups",
            "Pass model.parameters().",
        )
    return list(parameters if own is None else own())


def _groups(owner: str, parameters: list[Any], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not parameters:
        raise ArgumentError(
            f"{owner}: no parameters.",
            "at least one",
            "Pass model.parameters(); a generator is used up by one walk.",
        )
    given = parameters if isinstance(parameters[0], dict) else [{"params": parameters}]
    groups = []
    for group in given:
        unknown = set(group) - {"params"} - set(options)
        if "params" not in group or unknown:
            raise ArgumentError(
                f"{owner}: a group with {sorted(map(str, group))}.",
                "'params' and any of " + ", ".join(map(repr, options)),
                "Correct the group's keys.",
            )
        for key in group.keys() - {"params"}:
            check_option(owner, key, group[key])
        groups.append({**options, **group, "params": _listed(group["params"])})
    return groups


def _checked(owner: str, parameter: Any, seen: set[int]) -> Parameter:
    if not isinstance(parameter, (Parameter, QParameter)):
        raise DTypeError(
            f"{owner}: a {type(parameter).__name__} is no parameter.",
            "aq.Parameter",
            "Pass model.parameters(), or wrap the data in aq.Parameter(...).",
        )
    if isinstance(parameter, QParameter):
        raise DTypeError(
            f"{owner}: a parameter packed as {parameter.dtype.name} {parameter.shape} can't be updated.",
            "float parameters",
            "Train a float master through the scheme: nn.Linear(..., weight_scheme=...).",
        )
    if id(parameter) in seen:
        raise ArgumentError(
            f"{owner}: the parameter of shape {parameter.shape} is listed twice.",
            "each parameter once",
            "Put it in one group; model.parameters() lists shared parameters once.",
        )
    seen.add(id(parameter))
    return parameter


def _share_scratch(slots: list[Slot], count: int, buffers: dict[Any, list[np.ndarray]]) -> None:
    """Give all slots of one dtype views of the same scratch arrays, as large as the largest parameter."""
    sizes: dict[Any, int] = {}
    slots = [slot for slot in slots if not on_gpu(slot.parameter.value)]
    for slot in slots:
        sizes[slot.dtype] = max(sizes.get(slot.dtype, 0), slot.parameter.size)
    for dtype, size in sizes.items():
        buffers[dtype] = [np.empty(size, dtype) for _ in range(count)]
    for slot in slots:
        shape, size = slot.parameter.shape, slot.parameter.size
        slot.scratch = tuple(buffer[:size].reshape(shape) for buffer in buffers[slot.dtype])
