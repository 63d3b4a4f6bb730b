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

LISTED = 4  # names that an error lists
EMPTY = object()  # stands for a nest without anything in it


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
        self.fixed: list[bool] = []  # what all calls share: leaves, and what is no tensor
        found = named(signature, args, kwargs)
        self.names = [name for name, x in found if x is not EMPTY]
        self.empty = _empties(found)
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
        found = zip(self.names, args, strict=True) if plain else self._found(args, kwargs)
        for (name, x), held, fixed, take in zip(found, self.held, self.fixed, self._takers, strict=True):
            if x is held or take(x):
                continue
            if plain and _is_nest(x):
                self._found(args, kwargs)  # which tells how the structure differs
            self._check(name, x, held, fixed)
            if not fixed:
                self._copy(x, held)

    def check(self, args: Any, kwargs: Any) -> None:
        """Raise as ``take`` does unless the arguments of another call could be taken."""
        for (name, x), held, fixed in zip(self._found(args, kwargs), self.held, self.fixed, strict=True):
            if x is not held:
                self._check(name, x, held, fixed)

    def _found(self, args: Any, kwargs: Any) -> Any:
        """What is in the arguments of another call, each with its name: those of the first one."""
        if not (self.nested or kwargs or len(args) != len(self.held) or any(map(_is_nest, args))):
            return zip(self.names, args, strict=True)
        found = named(self.signature, args, kwargs)
        if _empties(found) != self.empty:
            raise _other_structure([name for name, _ in found], [*self.names, *sorted(self.empty)])
        found = [(name, x) for name, x in found if x is not EMPTY]
        names = [name for name, _ in found]
        if names != self.names:
            by_name = dict(found)
            if len(names) == len(self.names) and by_name.keys() == set(self.names):
                return [(name, by_name[name]) for name in self.names]  # dicts and keywords in another order
            raise _other_structure(names, self.names)
        return found

    def _taker(self, held: Any) -> Callable[[Any], bool]:
        """A function that takes a tensor which lies as the first one, and returns False for others.

        What training passes in nearly every step is spared all checks but those of kind and memory.
        """
        if self.device == "cpu" or not isinstance(held, Tensor) or held._node is LEAF:
            return nothing_taken
        kind, wanted, target = held.__class__, held._type, held._value
        take = taker(devices.namespace_of(self.device), target)

        def take_tensor(x: Any) -> bool:
            alike = x.__class__ is kind and x._type is wanted and x._node is None
            if not alike or held._value is not target or not take(x._value):
                return False
            held._grad = None  # as a new tensor's, if the step asks for gradients of its arguments
            return True

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
        self.fixed.append(not isinstance(held, Tensor) or held._node is LEAF)
        return held

    def _check(self, name: str, x: Any, held: Any, fixed: bool) -> None:
        """Raise unless an argument of another call fits that of the first one."""
        if fixed:
            if type(x) is type(held) and not isinstance(x, Tensor) and _equal(x, held):
                return
            raise ArgumentError(
                f"a captured step got {name}={_short(x)}.",
                f"{name}={_short(held)}, as in its first call",
                "Pass what changes as a tensor, or capture a second step.",
            )
        if isinstance(x, Tensor) and x._node is not None:
            raise _computed(x) if x._node is not LEAF else _leaf(name, held)
        self._check_fits(name, x, x._value if isinstance(x, Tensor) else x, held)

    def _copy(self, x: Any, held: Any) -> None:
        """Copy an argument that fits to where the first one lies."""
        held._grad = None  # as a new tensor's, if the step asks for gradients of its arguments
        value = x._value if isinstance(x, Tensor) else x
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
                f"{held.shape}, its shape in the first call",
                "Pad the batch, drop a last short one (drop_last=True), or capture a step a shape.",
            )
        dtype = value.scheme if type(value) is QTensor else value.dtype.newbyteorder("=")
        if dtype != held._type.dtype or (isinstance(x, Tensor) and x._type != held._type):
            raise DTypeError(
                f"a captured step got {name} of type {dtype_name(dtype)}{_flag(x)}.",
                f"{dtype_name(held._type.dtype)}{_flag(held)}, as in its first call",
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
            host = np.asarray(value, held.dtype, order="C")
            # Of pinned memory, which isn't NumPy's, the copy would be made later than this call returns.
            held.set(host if _is_numpys_own(host) else host.copy(), stream=xp.cuda.get_current_stream())


def _other_structure(names: list[str], first_names: list[str]) -> ArgumentError:
    """The error for arguments that aren't nested as in the first call."""
    same = [a == b for a, b in zip(names, first_names, strict=False)]
    first = same.index(False) if False in same else len(same)
    return ArgumentError(
        f"a captured step got {_listed(names, first)}.",
        f"what it got in its first call: {_listed(first_names, first)}",
        "Pass nests of the same structure, and numbers as one array, or capture a second step.",
    )


def _empties(found: list[tuple[str, Any]]) -> set[str]:
    return {name for name, x in found if x is EMPTY}


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
        f"{_short(held)} without a gradient, as in its first call",
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
        here = names[number] if number < len(names) else None
        plain = here is not None and here.kind in (here.POSITIONAL_ONLY, here.POSITIONAL_OR_KEYWORD)
        # A keyword may have the name too, of an argument that is positional only.
        own = here.name if plain and here and here.name not in kwargs else f"argument {number}"
        _walk(own, x, found)
    for key, x in kwargs.items():
        _walk(key, x, found)
    return found


def _walk(name: str, x: Any, found: list[tuple[str, Any]]) -> None:
    if _is_nest(x) and not x:
        found.append((f"{name}, empty", EMPTY))
    elif isinstance(x, dict):
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
    if isinstance(x, float | np.floating):
        return repr(x) == repr(held)  # NaN is NaN, and 0.0 isn't -0.0
    same = x == held
    return same if isinstance(same, bool) else bool(np.all(same))


def _is_numpys_own(array: Any) -> bool:
    """Whether the memory of an array was allocated by NumPy."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array is None


def _listed(names: list[str], first: int) -> str:
    """Names of arguments; of many only some, from just before the first that differs."""
    if len(names) <= LISTED:
        return ", ".join(names) or "no arguments"
    start = max(min(first, len(names) - LISTED + 1) - 1, 0)
    shown = ["..."] * (start > 0) + names[start : start + LISTED] + ["..."] * (start + LISTED < len(names))
    return f"{', '.join(shown)} ({len(names)} in all)"


def _short(x: Any) -> str:
    if isinstance(x, Tensor):
        return f"a tensor {x.shape} {dtype_name(x._type.dtype)}{_flag(x)}"
    text = repr(x)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _flag(x: Any) -> str:
    inhibits = isinstance(x, Tensor) and x._type.is_float and not x._type.propagates
    return ", inhibiting" if inhibits else ""
