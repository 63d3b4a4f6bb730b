"""Where a gradient arrives: it passes the hooks there and is added to ``.grad`` (S23)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from autoq.context import using
from autoq.devices import is_array
from autoq.errors import DTypeError, ShapeError
from autoq.storage.inputs import converted
from autoq.tape.apply import apply, as_operand
from autoq.tape.beside import added, as_array, copied_beside, frozen
from autoq.tape.node import Node
from autoq.tape.tensor import AutodiffTensor, Tensor
from autoq.types import TensorType, dtype_name


def tensor_of(array: np.ndarray) -> AutodiffTensor:
    """An untracked, propagating tensor around an array that nobody else holds."""
    return AutodiffTensor(array, TensorType(array.dtype))


def passed(place: Node | Tensor, g: Any, create_graph: bool) -> Any:
    """A complete gradient after the hooks of a node or a leaf; the tensors that keep it have it then."""
    hooks, found = (place.hooks, place.type) if isinstance(place, Node) else (place._hooks, place._type)
    if hooks is None:
        return g
    for hook in list(hooks.functions.values()):
        with nullcontext() if create_graph else using(grad=False):
            answer = hook(g if create_graph else _shown(g, found.gradient))
        if answer is not None:
            g = _replacement(answer, g, create_graph)
    for keeper in hooks.keepers:
        tensor = keeper()
        if tensor is not None:
            add_to_grad(tensor, g if create_graph else g.copy())
    return g


def _shown(g: np.ndarray, dtype: Any) -> AutodiffTensor:
    """What a hook sees of an array: a tensor whose in-place changes don't reach it."""
    if g.__class__ is not np.ndarray:
        return tensor_of(converted(g, dtype, copy=True))  # CuPy has no read-only views
    view = g.astype(dtype, copy=False).view()
    view.flags.writeable = False
    return tensor_of(view)


def _replacement(answer: Any, g: Any, create_graph: bool) -> Any:
    """What a hook returned, in the form of the gradient that it replaces."""
    made = as_operand(answer if isinstance(answer, Tensor) or is_array(answer) else np.asarray(answer))
    if not made._type.is_float:
        raise DTypeError(
            f"a hook returned a {dtype_name(made._type.dtype)} tensor.",
            "floats, or None",
            "Return the new gradient, or nothing to keep the old one.",
        )
    if made.shape != g.shape:
        raise ShapeError(
            f"a hook returned shape {made.shape} for a gradient of shape {g.shape}.",
            "the gradient's own shape, or None",
            "Return a gradient of that shape, or nothing to keep the old one.",
        )
    if create_graph:
        made = made.dequantize() if made._type.is_quantized else made
        return made if made._type.dtype == g._type.dtype else made.astype(g._type.dtype)
    values = made.dequantize()._value if made._type.is_quantized else made._value
    return copied_beside(values, g.dtype, g)


def add_to_grad(leaf: Tensor, g: Any) -> None:
    """Accumulate into ``leaf.grad``, in the leaf's own float dtype."""
    dtype = leaf._type.gradient
    if isinstance(g, Tensor):
        new = (g if g._type.dtype == dtype else g.astype(dtype)).propagate()
        leaf._grad = new if leaf._grad is None else apply("add", leaf._grad, new)
        return
    if leaf._grad is not None:
        g = added(leaf._grad._value, g)
    elif not g.flags.owndata or frozen(g):
        g = g.copy()
    leaf._grad = tensor_of(as_array(converted(g, dtype)))
