"""Tensors of a run in float64: the stored value of the recorded run, and beside it what holds in this run."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.context import current
from autoq.devices import on_gpu, to_host
from autoq.storage import QTensor
from autoq.tape.apply import apply, decoded
from autoq.tape.node import LEAF
from autoq.tape.tensor import AutodiffQTensor, AutodiffTensor, Tensor
from autoq.types import INHIBIT, PROPAGATE, Propagation, TensorType, float64

Array = np.ndarray[Any, np.dtype[Any]]


class ExactTensor(AutodiffTensor):
    """A dense tensor whose values are float64 whatever its dtype says.

    What leaves the tape (``numpy()``, ``item()``, ``detach()``, a comparison) shows the recorded run, which
    is how it freezes; operations read ``exact``.
    """

    __slots__ = ("exact",)
    exact: Array

    def _placed(self, node: Any) -> Tensor:
        """As of any tensor."""
        return relocated(self, node)

    def propagate(self) -> Tensor:
        """As of any tensor (S3)."""
        return flagged(self, PROPAGATE)

    def inhibit(self) -> Tensor:
        """As of any tensor (S3)."""
        return flagged(self, INHIBIT)


class ExactQTensor(AutodiffQTensor):
    """A packed tensor with the codes of the recorded run, and float64 values of this one."""

    __slots__ = ("exact",)
    exact: Array

    def _placed(self, node: Any) -> Tensor:
        """As of any tensor."""
        return relocated(self, node)

    def propagate(self) -> Tensor:
        """As of any tensor (S3)."""
        return flagged(self, PROPAGATE)

    def inhibit(self) -> Tensor:
        """As of any tensor (S3)."""
        return flagged(self, INHIBIT)


def exact_tensor(value: Any, tensor_type: TensorType, node: Any, exact: Array) -> Any:
    """A tracked tensor of a float64 run."""
    out = (ExactQTensor if type(value) is QTensor else ExactTensor)(value, tensor_type, node)
    out.exact = exact
    return out


def constant(value: Any, tensor_type: TensorType) -> Tensor:
    """What no gradient reaches: the same in every run."""
    return (AutodiffQTensor if type(value) is QTensor else AutodiffTensor)(value, tensor_type)


def flagged(x: Any, flag: Propagation) -> Tensor:
    """The tensor under another flag."""
    wanted = x._type.with_flag(flag)
    if wanted is x._type:
        found: Tensor = x
        return found
    if not current().grad:
        return constant(x._value, wanted)
    if x._node is LEAF:
        out = apply("identity", x)
        out._type = wanted
        return out
    out = exact_tensor(x._value, wanted, x._node, x.exact)
    out._version = x._version
    return out


def relocated(x: Any, node: Any) -> Tensor:
    """The tensor at another place of the tape."""
    out: Tensor = exact_tensor(x._value, x._type, node, x.exact)
    out._version = x._version
    return out


def is_exact(x: Any) -> bool:
    """Whether an operand moves with the inputs."""
    return x.__class__ is ExactTensor or x.__class__ is ExactQTensor


def values_of(x: Any) -> Any:
    """An operand's float64 values; bools, numbers and None as they are."""
    return x.exact if is_exact(x) else decoded(x, float64)


def stored_float64(value: Any) -> Array:
    """The values behind a stored one, on the host."""
    if type(value) is QTensor:
        return np.asarray(to_host(value.dequantize(float64)))
    return np.asarray(to_host(value), np.float64)


def on_host(x: Any) -> Any:
    """An operand or a static argument of a float64 run, which is computed on the CPU; there already: itself.

    Of a tensor on a GPU a constant: what a program reads beside its inputs doesn't move.
    """
    if isinstance(x, Tensor):
        if x.device == "cpu":
            return x
        value = x._value
        return constant(value.to("cpu") if type(value) is QTensor else to_host(value), x._type)
    if type(x) in (tuple, list):
        return type(x)([on_host(v) for v in x])
    return to_host(x) if on_gpu(x) else x
