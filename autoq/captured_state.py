"""What a step does while it is captured: its operations, and the tensors from outside that it changes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from autoq import devices
from autoq.context import Observer
from autoq.errors import CaptureError
from autoq.recording import replaced
from autoq.schemes import QuantScheme
from autoq.storage import QTensor
from autoq.tape.beside import operand_names
from autoq.tape.node import LEAF
from autoq.tape.parameter import Parameter, QParameter
from autoq.tape.tensor import Tensor
from autoq.types import TensorType, dtype_name

COMPARED = 1 << 26  # bytes of host arrays whose values are compared between warm-up and recording


class Seen:
    """A tensor from outside, as the step found it.

    Attributes:
        value: What it held: replays read and write that memory.
        version: How often it had been changed in place.
        grad: Its gradient when the step first used it.
        entered: Its gradient before the step, where that is known.
        gradient: Whether its gradient is a business of the step, not its values alone.
        left: The gradient that the step leaves.
        held: What that holds: replays write that memory.
        name: What errors call it: its kind, shape and dtype, and where the step met it.
    """

    def __init__(self, tensor: Tensor, entered: Any = None, role: str = "", gradient: bool = True) -> None:
        self.reference = weakref.ref(tensor)
        self.value, self.version = tensor._value, tensor._version[0]
        self.grad, self.entered = tensor._grad, entered
        self.gradient, self.leaf = gradient, gradient and tensor._node is LEAF
        self.left: Any = None
        self.held: Any = None
        self.changes = 0
        kind = "parameter" if isinstance(tensor, Parameter | QParameter) else "tensor"
        self.name = f"the {kind} {tensor.shape} {dtype_name(tensor._type.dtype)}{role}"

    def carry(self) -> list[tuple[Any, Any]]:
        """End the step: the tensor has the value and the gradient again that it was read from.

        Returns:
            Arrays of those, each with the one that took its place, whose values are to go there.
        """
        tensor = self.reference()
        if tensor is None:
            return []
        pairs: list[tuple[Any, Any]] = []
        self.changes = tensor._version[0] - self.version
        if tensor._value is not self.value:
            pairs.extend(zip(_parts(self.value), _parts(tensor._value), strict=True))
            tensor._value = self.value
        if self.gradient and self.grad is not None and tensor._grad is not self.grad:
            if tensor._grad is None:
                raise _left_over(self.name)
            pairs.append((self.grad._value, tensor._grad._value))
            tensor._grad = self.grad
        self.left = tensor._grad
        self.held = None if self.left is None else self.left._value
        return pairs

    def restore(self) -> None:
        """Take back what a failed capture did to the tensor: nothing of it was computed."""
        tensor = self.reference()
        if tensor is not None:
            tensor._value = self.value
            tensor._grad = self.grad if self.entered is None else self.entered

    def check(self) -> None:
        """Raise CaptureError unless a replay finds the tensor as the capture did."""
        tensor = self.reference()
        if tensor is None:
            return
        if tensor._value is not self.value:
            raise replaced(self.name)
        if not self.leaf:
            return
        if tensor._grad is self.grad:
            if self.grad is not None and self.grad._value is not self.held:
                raise replaced(f"the gradient of {self.name}")
        elif self.grad is not None or self.entered is None:
            raise _left_over(self.name)

    def settle(self) -> None:
        """After a replay: the gradient that it left, and a version that backward compares (S29)."""
        tensor = self.reference()
        if tensor is not None:
            tensor._version[0] += self.changes
            if self.leaf:
                tensor._grad = self.left
                if self.left is not None:
                    self.left._value = self.held


class Watch(Observer):
    """Notes what a step does, and the tensors from outside among the operands of its operations.

    Args:
        outside: Which tensors to note: those that were there before the step.
        entered: Leaves and changed tensors that an earlier watch saw: the leaves' gradients are noted before
            the step runs, and those on the CPU are refused, since a graph does nothing to them.

    Attributes:
        trace: The operations, their gradients, and the changes in place, in order.
    """

    keeps_gradients = False

    def __init__(self, outside: Callable[[Tensor], bool], entered: Iterable[Tensor] = ()) -> None:
        self.outside = outside
        self.trace: list[Any] = []
        self.entered = {id(tensor): (tensor, tensor._grad) for tensor in entered}
        self._seen: dict[int, Seen] = {}
        self._changed: dict[int, Any] = {}

    def op(self, proceed: Any, op: Any, operands: Any, static: dict[str, Any], out_dtype: Any) -> Any:
        """Note an operation before it runs."""
        numbers = static if out_dtype is None else static | {"out_dtype": out_dtype}
        self.trace.append((op.name, tuple(map(_described, operands)), _described(numbers)))
        for name, x in zip(operand_names(op, operands), operands, strict=True):
            if isinstance(x, Tensor):
                self.see(x, f", {name} of {op.name},")
        return proceed(op, operands, static, out_dtype)

    def step(self, proceed: Any, node: Any, g: Any, grads: Any, owned: Any) -> None:
        """Note that gradients go through an operation: how often, and where, is part of the graph."""
        self.trace.append((f"the gradient of {node.op.name}", (), ()))
        proceed(node, g, grads, owned)

    def changed(self, tensor: Any) -> None:
        """Note a tensor that need not be an operand: what takes its value's place must get back to it."""
        self.trace.append(("a change in place", (_described(tensor),), ()))
        self._changed[id(tensor)] = weakref.ref(tensor)
        self.see(tensor)

    def met(self, tensor: Any, gradient: bool = False) -> None:
        """Note a tensor whose values the step takes, or whose gradient it sets."""
        self.see(tensor, gradient=gradient)

    def noted(self, what: str, values: tuple[Any, ...]) -> None:
        """Note the values that something got which is no operation."""
        self.trace.append((what, tuple(map(_described, values)), ()))
        for x in values:
            if isinstance(x, Tensor):
                self.met(x)

    def see(self, x: Tensor, role: str = "", gradient: bool = True) -> None:
        """Note a tensor the first time that it is met, and as what: ``gradient`` too, or its values alone."""
        known = self._seen.get(id(x))
        if known is None and id(x) in self.entered and x.device == "cpu":
            raise _on_the_host(Seen(x, role=role).name)
        new = known is None or known.reference() is not x or (gradient and not known.gradient)
        if new and self.outside(x):
            self._seen[id(x)] = Seen(x, self.entered.get(id(x), (None, None))[1], role, gradient)

    @property
    def seen(self) -> list[Seen]:
        """The tensors from outside."""
        return list(self._seen.values())

    def lasting(self) -> list[Tensor]:
        """The leaves among them, and the tensors that were changed, that are still there."""
        found = [seen.reference() for seen in self._seen.values() if seen.leaf]
        found += [reference() for reference in self._changed.values()]
        return [tensor for tensor in found if tensor is not None]


def check_same(first: list[Any], second: list[Any]) -> None:
    """Raise CaptureError unless a step ran the same operations twice, naming the first that differs."""
    for number, (before, now) in enumerate(zip(first, second, strict=False)):
        if before != now:
            raise _differs(f"its operation {number} was {_told(before)} and then {_told(now)}")
    if len(first) != len(second):
        raise _differs(
            f"it had {len(first)} operations, gradients and changes in place, and then {len(second)}"
        )


def _differs(how: str) -> CaptureError:
    return CaptureError(
        f"a captured step differs from its warm-up: {how}.",
        "a step that runs the same operations with the same numbers each time",
        "Pass what changes as a tensor argument, and take what depends on data out of the step.",
    )


def _on_the_host(name: str) -> CaptureError:
    return CaptureError(
        f"a step captured on a GPU works on {name} on the CPU: no replay would read or change it.",
        "parameters, and tensors that the step changes, on the device of the capture",
        'Move it there before the first call, as by model.to("cuda"), or use it outside of the step.',
    )


def _left_over(name: str) -> CaptureError:
    return CaptureError(
        f"the gradient of {name} isn't as it was when the step was captured.",
        "gradients that each step finds as the one before left them, or forgets itself",
        "Call optimizer.zero_grad() at the end of the step, and leave .grad alone between steps.",
    )


def _parts(value: Any) -> list[Any]:
    """The arrays of a stored value."""
    if type(value) is QTensor:
        parts = [value.words, value.scales, value.tensor_scale]
        return [part for part in parts if devices.is_array(part)]
    return [value]


def _described(x: Any) -> Any:
    """What two runs of a step have in common of an operand or a static argument."""
    if isinstance(x, Tensor):
        return x.shape, x._type
    if isinstance(x, dict):
        return tuple((key, _described(value)) for key, value in x.items() if key != "draw")
    if isinstance(x, tuple | list):
        return tuple(map(_described, x))
    if isinstance(x, np.ndarray) and x.nbytes <= COMPARED:
        return x.shape, x.dtype, hash(x.tobytes())  # a graph would repeat these values
    if devices.is_array(x):
        return x.shape, np.dtype(x.dtype)
    if isinstance(x, slice):
        return "slice", _described((x.start, x.stop, x.step))
    if isinstance(x, float | int | bool | str | type(None) | np.dtype | np.generic):
        return repr(x)  # nan equals nan
    if isinstance(x, QuantScheme | TensorType | type):
        return x
    return type(x).__name__


def _told(entry: Any) -> str:
    name, operands, static = entry
    shown = [_shown(x) for x in operands]
    return f"{name}({', '.join(shown + [f'{key}={value}' for key, value in static])})"


def _shown(x: Any) -> str:
    """An operand as the trace has it, for an error."""
    if isinstance(x, tuple) and len(x) == 2 and hasattr(x[1], "dtype"):
        return f"{x[0]} {dtype_name(x[1].dtype)}"
    return str(x)
