"""Steps, norms and scaling on GPUs: one launch of a kernel for all parameters of a group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from autoq.context import OBSERVERS, changed
from autoq.devices import array_namespace, device_of, on_gpu, to_host, using_device
from autoq.errors import CaptureError
from autoq.optim.slot import KINDS, Slot
from autoq.recording import recording
from autoq.storage.inputs import contiguous
from autoq.types import float32

if TYPE_CHECKING:
    from autoq.optim.optimizer import Optimizer


@cache
def kernels(name: str) -> Any:
    """A module of the kernels for CUDA, imported on first use: they bring the compiler along."""
    return import_module(f"autoq.kernels.cuda.{name}")


def any_on_gpu(slots: list[Slot]) -> bool:
    """Whether a parameter lies on a GPU."""
    for slot in slots:  # noqa: SIM110 (quicker than any() of a generator, on the CPU's way)
        if slot.parameter._value.__class__ is not np.ndarray:
            return True
    return False


def step_on_gpu(optimizer: Optimizer, index: int, group: Mapping[str, Any], slots: list[Slot]) -> list[Slot]:
    """Update the parameters of a group that lie on a GPU; the slots that no kernel is for are returned."""
    rest: list[Slot] = []
    names = optimizer.used_state(group)
    alike: dict[tuple[Any, ...], tuple[list[Slot], list[Any]]] = {}
    for slot in slots:
        gradient = slot.raw_gradient()
        if gradient is None:
            continue
        if not slot.ready(names):
            rest.append(slot)
            continue
        kind = "float32"
        if gradient.dtype is not float32 or not gradient.flags.c_contiguous:
            gradient, kind = _readable(gradient)
        found = alike.setdefault((index, *slot.place, kind, slot.steps), ([], []))
        found[0].append(slot)
        found[1].append(gradient)
    for key, (chosen, gradients) in alike.items():
        with using_device(key[1]):
            _launch(optimizer, key, group, chosen, gradients)
    return rest


def _readable(gradient: Any) -> tuple[Any, str]:
    """A gradient as kernels read it, and its dtype's name."""
    with using_device(device_of(gradient)):
        if gradient.dtype.name not in KINDS:
            gradient = gradient.astype(float32)
        return contiguous(gradient), gradient.dtype.name


def _launch(
    optimizer: Optimizer,
    key: tuple[Any, ...],
    group: Mapping[str, Any],
    slots: list[Slot],
    gradients: list[Any],
) -> None:
    """One launch for parameters of one device, dtype and count of steps."""
    if OBSERVERS:
        for slot in slots:
            changed(slot.parameter)
    update, made = kernels("update"), recording()
    rows = {update.VALUE: [slot.parameter.value for slot in slots], update.GRADIENT: gradients}
    for row, name in zip((update.FIRST, update.SECOND), optimizer.kernel_state(group), strict=False):
        rows[row] = [slot.state[name] for slot in slots]

    def numbers() -> tuple[float, ...]:
        for slot in slots:
            slot.steps += 1
        return optimizer.kernel_numbers(group, slots[0].steps)

    sizes = tuple([slot.parameter.size for slot in slots])
    if made is None:
        known = (*key[:-1], tuple([id(slot) for slot in slots]))
        table = optimizer.tables.get(known)
        if table is None:
            table = optimizer.tables[known] = update.Table(sizes)
    else:
        _keep(made, slots, gradients)
        _keep_options(made, optimizer.kernel_switches, group)
        table = update.Table(sizes, made.constant)
    table.point(rows)
    # Counted when nothing is left that may find no memory.
    options: Any = numbers() if made is None else made.follow(lambda: np.array(numbers(), np.float32))
    optimizer.run_kernel(update, table, (key[2], key[3]), options, group)
    for slot in slots:
        slot.parameter._version[0] += 1  # backward refuses saved values that changed (S29)


def _keep(made: Any, slots: list[Slot], gradients: list[Any]) -> None:
    """Tell a recording what the graph has the addresses of, and what to take back if the capture fails."""
    before = [slot.steps for slot in slots]

    def undo() -> None:
        for slot, steps in zip(slots, before, strict=True):
            slot.steps = steps

    made.on_failure(undo)
    made.keep(gradients)
    _keep_state(made, slots)
    made.require(partial(_are_counted_together, slots), _counted_apart)


def _are_counted_together(slots: list[Slot]) -> bool:
    """Whether parameters had as many steps each: the graph has one count for all."""
    return len({slot.steps for slot in slots}) == 1


def _keep_state(made: Any, slots: list[Slot]) -> None:
    """Tell a recording that the graph has the addresses of state arrays."""
    for slot in slots:
        for name in slot.state:
            made.unchanged(
                f"the state of an optimizer, {name!r},", lambda slot=slot, name=name: slot.state.get(name)
            )


def record_arrays(made: Any, slot: Slot, group: Mapping[str, Any]) -> None:
    """Count a step whose arithmetic is on arrays, now and in replays, which must have the options of now."""
    before = slot.steps
    made.on_failure(lambda: setattr(slot, "steps", before))
    made.each_time(lambda: setattr(slot, "steps", slot.steps + 1))
    _keep_state(made, [slot])
    for name in group.keys() - {"params"}:
        made.require(
            lambda name=name, value=group[name]: bool(group[name] == value),
            partial(_other_option, name, slot),
        )


def _counted_apart() -> CaptureError:
    return CaptureError(
        "an optimizer's parameters had as many steps each when a step was captured, and now they have not.",
        "parameters that are always stepped together",
        "Step them in the captured step alone, in an optimizer of their own, or call .reset() on it.",
    )


def _other_option(name: str, slot: Slot) -> CaptureError:
    dtype = slot.parameter.value.dtype.name
    return CaptureError(
        f"the option {name!r} of an optimizer changed since its step of a {dtype} parameter was captured.",
        f"options that change for parameters of {', '.join(KINDS)} with the optimizers of aq.optim",
        "Call optimizer.step() outside of the captured step, or .reset() on it after a change.",
    )


def _keep_options(made: Any, switches: tuple[str, ...], group: Mapping[str, Any]) -> None:
    """Tell a recording which options its kernel leaves out, being 0: replays follow the others."""
    for name in switches:
        if not group[name] or isinstance(group[name], bool):
            made.unchanged(f"the option {name!r} of an optimizer", lambda name=name: bool(group[name]))


def are_on_one_gpu(gradients: list[Any]) -> bool:
    """Whether kernels take the gradients together: of one float dtype on one GPU."""
    first = gradients[0] if gradients else None
    return (
        first is not None
        and on_gpu(first)
        and first.dtype.name in KINDS
        and all(on_gpu(g) and g.dtype == first.dtype and device_of(g) == device_of(first) for g in gradients)
    )


def scaled_on_gpu(
    gradients: list[Any], factor: float | None, most: float = math.inf
) -> tuple[list[Any], Any]:
    """Gradients times a factor, and their L2 norm as an array without axes, three launches in all.

    Args:
        gradients: As of ``are_on_one_gpu``.
        factor: The factor; None for the one that limits their norm to ``most``.
        most: The limit.

    Returns:
        float32 arrays, and the norm, float64: before scaling where it is limited, else after.
    """
    update, gradient_kernels, made = kernels("update"), kernels("gradients"), recording()
    with using_device(device_of(gradients[0])):
        xp, kind = array_namespace(gradients[0]), gradients[0].dtype.name
        given = [contiguous(g) for g in gradients]
        results = [xp.empty(g.shape, np.float32) for g in given]
        table = update.Table(tuple([g.size for g in given]), None if made is None else made.constant)
        table.point({update.GRADIENT: given, update.VALUE: results})
        if factor is None:
            norm, limit = gradient_kernels.norm(table, kind, most)
            gradient_kernels.scale(table, kind, limit)
            return results, norm
        gradient_kernels.scale(table, kind, float(factor))
        table.point({update.GRADIENT: results})
        return results, gradient_kernels.norm(table, "float32")[0]


def read(norm: Any) -> float:
    """A norm as a number, which waits for the GPU."""
    return float(to_host(norm))
