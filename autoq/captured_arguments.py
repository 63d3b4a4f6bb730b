"""Arguments of a captured step: what they were in the first call, and the memory that later ones go to."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from autoq import devices
from autoq.captured_memory import nothing_taken, put, taker
from autoq.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from autoq.storage import QTensor
from autoq.tape.node import LEAF
from autoq.tape.tensor import Tensor, tensor
from autoq.tape.trees import mapped
from autoq.types import dtype_name


class Arguments:
    """The arguments of the first call as the step gets them, tensors in memory that stays.

    Args:
        signature: The step's, which names the arguments in errors.
        args: Positional arguments.
        kwargs: The others.
        device: Where arrays are moved to.

    Raises:
        ArgumentError: A tensor that was computed from tracked ones.
        DeviceError: A tensor on another device.
    """

    def __init__(self, signature: inspect.Signature | None, args: Any, kwargs: Any, device: str) -> None:
        self.signature, self.device = signature, device
        self.held: list[Any] = []
        self.names = [name for name, _ in named(signature, args, kwargs)]
        self.nested = bool(kwargs) or any(map(_is_nest, args))
        self.tree = mapped((args, kwargs), self._enter)
        self._takers = [self._taker(held) for held in self.held]

    def call(self, step: Callable[..., Any]) -> Any:
        """What the step returns for these arguments."""
        args, kwargs = self.tree
        return step(*args, **kwargs)

    def take(self, args: Any, kwargs: Any) -> None:
        """Copy the arguments of another call into the memory of the first ones.

        Raises:
            ArgumentError, ShapeError, DTypeError, DeviceError: Naming the argument that differs, and how.
        """
        plain = not (self.nested or kwargs or len(args) != len(self.held))
        # Without nests the names are those of the first call, which needn't be made again.
        given = args if plain else self._matched(args, kwargs)
        for name, x, held, take in zip(self.names, given, self.held, self._takers, strict=True):
            if x is held or take(x):
                continue
            if plain and _is_nest(x):
                self._matched(args, kwargs)  # which tells how the structure differs
            self._copy(name, x, held)

    def _matched(self, args: Any, kwargs: Any) -> list[Any]:
        """What is in the arguments, after a check that they are nested as the first ones were."""
        found = named(self.signature, args, kwargs)
        if [name for name, _ in found] != self.names:
            raise ArgumentError(
                f"a captured step got {_listed(name for name, _ in found)}.",
                f"what it was captured with: {_listed(self.names)}",
                "Pass nests of the same structure, or capture a second step.",
            )
        return [x for _, x in found]

    def _taker(self, held: Any) -> Callable[[Any], bool]:
        """A function that takes a tensor which lies as the first one, and returns False for others.

        What training passes in nearly every step is spared all checks but those of kind and memory.
        """
        if not isinstance(held, Tensor) or held._node is LEAF:
            return nothing_taken
        kind, wanted = held.__class__, held._type
        take = taker(devices.namespace_of(self.device), held._value)

        def take_tensor(x: Any) -> bool:
            alike = x.__class__ is kind and x._type is wanted and x._node is None
            return alike and take(x._value)

        return take_tensor

    def _enter(self, x: Any) -> Any:
        """An argument of the first call as the step gets it."""
        held = x
        if isinstance(x, Tensor) and x._node is not LEAF:
            if x._node is not None:
                raise _computed(x)
            self._check_device(self.names[len(self.held)], x._value)
            held = tensor(x, device=self.device)
            held._type = x._type
        elif devices.is_array(x) or type(x) is QTensor:
            held = tensor(x, device=self.device)
        self.held.append(held)
        return held

    def _copy(self, name: str, x: Any, held: Any) -> None:
        if not isinstance(held, Tensor) or held._node is LEAF:
            if type(x) is type(held) and not isinstance(x, Tensor) and _equal(x, held):
                return
            raise ArgumentError(
                f"a captured step got {name}={_short(x)}.",
                f"{name}={_short(held)}, as when it was captured",
                "Pass what changes as a tensor, or capture a second step.",
            )
        if isinstance(x, Tensor) and x._node is not None:
            raise _computed(x) if x._node is not LEAF else _leaf(name, held)
        value = x._value if isinstance(x, Tensor) else x
        self._check_fits(name, x, value, held)
        if type(value) is QTensor:
            self._put(held._value.words, value.words)
            self._put(held._value.scales, value.scales)
            if value.tensor_scale is not None:
                self._put(held._value.tensor_scale, value.tensor_scale)
        else:
            self._put(held._value, value)

    def _check_fits(self, name: str, x: Any, value: Any, held: Tensor) -> None:
        """Raise unless a value has the kind, shape, dtype and device of the one that it replaces."""
        shape = getattr(value, "shape", None)
        if not (devices.is_array(value) or type(value) is QTensor):
            raise DTypeError(
                f"a captured step got {name}={_short(x)}.", f"{_short(held)}", "Pass a tensor or an array."
            )
        if shape != held.shape:
            raise ShapeError(
                f"a captured step got {name} of shape {shape}.",
                f"{held.shape}, the shape that it was captured with",
                "Pad the batch, drop a last short one (drop_last=True), or capture a step a shape.",
            )
        dtype = value.scheme if type(value) is QTensor else value.dtype
        if dtype != held._type.dtype or (isinstance(x, Tensor) and x._type != held._type):
            raise DTypeError(
                f"a captured step got {name} of type {dtype_name(dtype)}{_flag(x)}.",
                f"{dtype_name(held._type.dtype)}{_flag(held)}, as when it was captured",
                "Cast it with .astype(...).",
            )
        if type(value) is QTensor and value.layout != held._value.layout:
            raise ArgumentError(
                f"a captured step got {name} with its axes in the order {value.layout.order} in memory.",
                f"{held._value.layout.order}, as when it was captured",
                "Pass packed tensors that aren't transposed, and transpose them in the step.",
            )
        if isinstance(x, Tensor):
            self._check_device(name, value)

    def _check_device(self, name: str, value: Any) -> None:
        found = devices.device_of(value.words if type(value) is QTensor else value)
        if found != self.device:
            raise DeviceError(
                f"a captured step on {self.device} got {name} on {found}.",
                f"tensors on {self.device}, and NumPy arrays, which are copied there",
                f'Call .to("{self.device}").',
            )

    def _put(self, held: Any, value: Any) -> None:
        """Copy one array, from the host or on the device, on the current stream."""
        xp = devices.namespace_of(self.device)
        if devices.on_gpu(value):
            put(xp, held, value)
        else:
            held.set(np.asarray(value, order="C"), stream=xp.cuda.get_current_stream())


def _computed(x: Tensor) -> ArgumentError:
    """The error for a tensor on a tape."""
    return ArgumentError(
        f"a captured step got a tensor computed by {x._node.op.name}.",
        "arguments without a tape",
        "Pass x.detach(); gradients don't leave a captured step.",
    )


def _leaf(name: str, held: Tensor) -> ArgumentError:
    """The error for a leaf in place of a tensor without gradients: it would get none."""
    return ArgumentError(
        f"a captured step got {name} with requires_grad.",
        f"{_short(held)} without a gradient, as when it was captured",
        "Pass x.detach(), or capture a second step for it.",
    )


def named(signature: inspect.Signature | None, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    """What is in the arguments, each with its name: ``batch[0]``, ``options['mask']``.

    Example:
        >>> named(inspect.signature(lambda x, *, mask=None: x), ([1, 2],), {"mask": 3})
        [('x[0]', 1), ('x[1]', 2), ('mask', 3)]
    """
    names = list(signature.parameters.values()) if signature is not None else []
    found: list[tuple[str, Any]] = []
    for number, x in enumerate(args):
        here = names[min(number, len(names) - 1)] if names else None
        plain = here is not None and here.kind in (here.POSITIONAL_ONLY, here.POSITIONAL_OR_KEYWORD)
        _walk(here.name if plain and here else f"argument {number}", x, found)
    for key, x in kwargs.items():
        _walk(key, x, found)
    return found


def _walk(name: str, x: Any, found: list[tuple[str, Any]]) -> None:
    if isinstance(x, dict):
        for key, value in x.items():
            _walk(f"{name}[{key!r}]", value, found)
    elif isinstance(x, list | tuple):
        for number, value in enumerate(x):
            _walk(f"{name}[{number}]", value, found)
    else:
        found.append((name, x))


def _is_nest(x: Any) -> bool:
    return isinstance(x, dict | list | tuple)


def _equal(x: Any, held: Any) -> bool:
    """Whether two arguments that are no tensors are the same: by ``==``, where that gives one answer."""
    if isinstance(x, float) and x != x:
        return bool(held != held)  # NaN twice
    same = x == held
    return same if isinstance(same, bool) else bool(np.all(same))


def _listed(names: Any) -> str:
    return ", ".join(names) or "no arguments"


def _short(x: Any) -> str:
    if isinstance(x, Tensor):
        return f"a tensor {x.shape} {dtype_name(x._type.dtype)}{_flag(x)}"
    text = repr(x)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _flag(x: Any) -> str:
    inhibits = isinstance(x, Tensor) and x._type.is_float and not x._type.propagates
    return ", inhibiting" if inhibits else ""
