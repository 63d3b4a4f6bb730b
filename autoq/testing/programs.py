"""A program under check, with rounding frozen or as it is: recorded on the tape, and run at other inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from autoq.context import current, using
from autoq.devices import beside, device_of, is_array, on_gpu, to_device
from autoq.errors import GradientError
from autoq.tape.apply import apply, untracked
from autoq.tape.beside import held
from autoq.tape.gradient import walk
from autoq.tape.node import LEAF
from autoq.tape.tensor import AutodiffTensor, Tensor
from autoq.testing.events import Array
from autoq.testing.exact import exact_tensor, is_exact, stored_float64
from autoq.testing.frozen import Input, Session
from autoq.types import FLOATS, TensorType, float32, float64


class Program:
    """A function of tensors as a function of float64 arrays, and its tape at the given inputs.

    Attributes:
        inputs: The float64 values of the arguments that move.
        outputs: The tracked tensors in the result of the recorded run, flattened.
        leaves: The inputs on the tape.
    """

    inputs: list[Array]
    outputs: list[Any]
    leaves: list[Any]

    def at(self, values: Sequence[Array]) -> list[Array]:
        """The outputs for other inputs."""
        raise NotImplementedError

    def gradients(self, cotangents: Sequence[Array]) -> list[Array]:
        """The tape's gradients of the outputs' product with cotangents."""
        raise NotImplementedError

    def extra(self) -> float:
        """What the last run adds to the product with cotangents: quantized gradients' share."""
        return 0.0

    def forward_mode(self, cotangents: Sequence[Array], direction: Sequence[Array]) -> list[Array]:
        """The derivative of the outputs along a direction, by differentiating the gradient's tape."""
        with self._recording():
            dual = [self._dual(c, o) for c, o in zip(cotangents, self.outputs, strict=True)]
            found = walk(list(zip(self.outputs, dual, strict=True)), True, True)
            total: Any = None
            for leaf, d in zip(self.leaves, direction, strict=True):
                if leaf in found:
                    term = (found[leaf] * _constant(d, leaf)).sum()
                    total = term if total is None else total + term
        if total is None or total._node is None:
            return [np.zeros(c.shape) for c in cotangents]
        return self._walked([(total, beside(np.ones(()), held(total)))], dual)

    def _recording(self) -> AbstractContextManager[Any]:
        return using(grad=True)

    def _dual(self, cotangent: Array, output: Any) -> Any:
        return AutodiffTensor(beside(cotangent, held(output)), TensorType(float64), LEAF)

    def _walked(self, seeds: Any, leaves: Sequence[Any]) -> list[Array]:
        found = walk(seeds, True, False)
        return [stored_float64(found[x]) if x in found else np.zeros(x.shape) for x in leaves]


class PlainProgram(Program):
    """A program on float64 tensors, run as it is on the inputs' device: nothing is frozen."""

    def __init__(self, f: Callable[..., Any], arguments: Sequence[Any]) -> None:
        self._f, self._arguments = f, arguments
        self.inputs = [np.array(stored_float64(getattr(x, "_value", x))) for x in arguments if moves(x)]
        self._devices = [home(x) for x in arguments if moves(x)]
        result, self.leaves = self._run(self.inputs)
        self.outputs, self._places = tracked(result)

    def at(self, values: Sequence[Array]) -> list[Array]:
        """The outputs for other inputs."""
        result = _flat(self._run(values)[0])
        return [stored_float64(result[i]._value) for i in self._places]

    def gradients(self, cotangents: Sequence[Array]) -> list[Array]:
        """The tape's gradients of the outputs' product with cotangents."""
        with using(grad=True):
            seeds = [(o, beside(c, held(o))) for o, c in zip(self.outputs, cotangents, strict=True)]
            return self._walked(seeds, self.leaves)

    def _run(self, values: Sequence[Array]) -> tuple[Any, list[Any]]:
        leaves = [
            AutodiffTensor(to_device(np.asarray(v), device), TensorType(float64), LEAF)
            for v, device in zip(values, self._devices, strict=True)
        ]
        waiting = iter(leaves)
        arguments = [next(waiting) if moves(x) else x for x in self._arguments]
        with using(grad=True), np.errstate(all="ignore"):
            return self._f(*arguments), leaves


class FrozenProgram(Program):
    """A program with its rounding and branches frozen at the recorded run."""

    def __init__(self, f: Callable[..., Any], arguments: Sequence[Any]) -> None:
        entered = [Input(x, _counted_as(x)) if moves(x) else x for x in arguments]
        self._begin(Session(f, entered))

    @classmethod
    def of(cls, f: Callable[..., Any], arguments: Sequence[Any]) -> FrozenProgram:
        """A program of arguments that are inputs already, or don't move."""
        made = cls.__new__(cls)
        made._begin(Session(f, arguments))
        return made

    def _begin(self, session: Session) -> None:
        self.session = session
        self.residuals: dict[Any, Array] = {}
        result, self.leaves = self.session.record()
        self.inputs = [np.asarray(x.exact) for x in self.leaves]
        self.outputs, self._places = tracked(result)

    def at(self, values: Sequence[Array], decoded: bool = True) -> list[Array]:
        """The outputs for other inputs, frozen; the undecoded program's if not ``decoded``."""
        result = _flat(self.session.replay(values, decoded))
        return [np.asarray(result[i].exact) for i in self._places]

    def gradients(self, cotangents: Sequence[Array]) -> list[Array]:
        """The tape's gradients of the outputs' product with cotangents."""
        seeds = list(zip(self.outputs, cotangents, strict=True))
        found = self.session.gradients(seeds, self.leaves)
        self.residuals = dict(self.session.residuals)
        return found

    def extra(self) -> float:
        """The products of quantized gradients' residuals with what they belong to."""
        ledger = self.session.ledger
        return sum(float(np.sum(rho * ledger[call])) for call, rho in self.residuals.items())

    @property
    def quantizes_gradients(self) -> bool:
        """Whether a gradient is encoded on its way back."""
        return bool(self.session.ledger)

    def _recording(self) -> AbstractContextManager[Any]:
        return self.session.free()

    def _dual(self, cotangent: Array, output: Any) -> Any:
        return exact_tensor(cotangent, TensorType(float64), LEAF, cotangent)

    def _walked(self, seeds: Any, leaves: Sequence[Any]) -> list[Array]:
        return self.session.gradients(seeds, leaves)


def moves(x: Any) -> bool:
    """Whether an argument is differentiated: a float tensor or an array of floats."""
    if isinstance(x, Tensor):
        return x._type.is_float
    return is_array(x) and x.dtype in FLOATS


def home(x: Any) -> str:
    """The device of an argument: where a tensor is, and where one made of an array goes."""
    return device_of(held(x)) if isinstance(x, Tensor) or on_gpu(x) else current().device


def directional(
    f: Callable[..., Any], cotangents: Sequence[Array], direction: Sequence[Array]
) -> Callable[..., Tensor]:
    """The function x -> <direction, gradient of <cotangents, f> at x>, whose gradient is of order 2."""

    def slope(*arguments: Any) -> Tensor:
        outputs, _ = tracked(f(*arguments))
        leaves = [x for x in arguments if isinstance(x, Tensor) and x._node is LEAF]
        seeds = [(o, _constant(c, o)) for o, c in zip(outputs, cotangents, strict=True)]
        found = walk(seeds, True, True)
        total: Any = 0.0
        for leaf, d in zip(leaves, direction, strict=True):
            total = total + _nothing(leaf)
            if leaf in found:
                total = total + (found[leaf] * _constant(d, leaf)).sum()
        return total

    slope.__name__ = f"slope_of_{getattr(f, '__name__', 'f')}"
    return slope


def _constant(values: Array, other: Any) -> Tensor:
    """A float64 tensor beside another one."""
    return AutodiffTensor(beside(values, held(other)), TensorType(float64))


def _nothing(leaf: Any) -> Any:
    """0, on the tape of the leaf: so that a slope which is constant has a gradient of 0."""
    dense = apply("dequantize", leaf, dtype=float64) if leaf._type.is_quantized else leaf
    finite = untracked(beside(np.isfinite(leaf.numpy()), held(leaf)))
    return (apply("where", finite, dense, 0.0) * 0.0).sum()


def _flat(result: Any) -> list[Any]:
    """The tensors in a result, in order."""
    if isinstance(result, dict):
        return [x for value in result.values() for x in _flat(value)]
    if isinstance(result, list | tuple):
        return [x for value in result for x in _flat(value)]
    return [result]


def tracked(result: Any) -> tuple[list[Any], list[int]]:
    """The tracked tensors in a result, and their places."""
    flat = _flat(result)
    places = [i for i, x in enumerate(flat) if isinstance(x, Tensor) and x._node is not None]
    if not places:
        raise GradientError(
            f"a program that returns {', '.join(type(x).__name__ for x in flat) or 'nothing'}, none of it "
            "tracked.",
            "at least one tensor computed from the inputs",
            "Return the tensor; .numpy(), .detach() and no_grad() take it off the tape.",
        )
    return [flat[i] for i in places], places


def _counted_as(x: Any) -> Any:
    """What an array counts as through rounding: float32 for float64, which no scheme would outvote."""
    return float32 if getattr(x, "dtype", None) == float64 else getattr(x, "dtype", float32)


__all__ = ["FrozenProgram", "PlainProgram", "Program", "directional", "is_exact", "moves"]
