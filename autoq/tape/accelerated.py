"""Where ops on a GPU find kernels of their own; what has none runs its forward on CuPy arrays.

A kernel is registered under its op's name, by the modules of ``autoq.ops.on_device``, which are imported
when an operand on a GPU is first seen: the CPU's path never looks here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoq.devices import on_gpu
from autoq.tape.op import Op, has_its_name
from autoq.tape.refusal import check_loop
from autoq.types import bool_, float32

# (op, values, static, out, compute) -> the result as a QTensor or device array, or NotImplemented.
Forward = Callable[[Op, Any, dict[str, Any], Any, Any], Any]
ELEMENTWISE = "*elementwise"  # the name under which all element-wise ops without one of their own are found

_forwards: dict[str, Forward] = {}
_rules: dict[tuple[str, str], Callable[..., Any]] = {}
WRITES_OVER: set[Callable[..., Any]] = set()  # rules that may use the memory of the cotangent
_load: list[Callable[[], Any]] = []


def accelerate(*names: str) -> Callable[[Forward], Forward]:
    """Register a function as the forward on GPUs of the ops of these names.

    It is called as ``function(op, values, static, out, compute)``:

    - ``values``: the operands as they are stored: QTensors, device arrays, Python numbers, None; one
      sequence for variadic ops.
    - ``static``: the static arguments.
    - ``out``: the resolved dtype of the result, a QuantScheme or a NumPy dtype. A kernel may encode the
      result itself, as a QTensor in ``out.innermost(ndim)``; a float array is encoded or cast after it.
    - ``compute``: float32 or float64.

    It returns NotImplemented for cases that it doesn't handle.
    """

    def mark(function: Forward) -> Forward:
        _forwards.update(dict.fromkeys(names, function))
        return function

    return mark


def accelerate_rule(
    name: str, operand: str, *, over: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the gradient rule of one operand of an op on GPUs.

    It is called as ``function(g, *reads)`` with what the op's own rule reads, operands as they are stored,
    packed ones included. It returns ``g`` or a new device array, which may be summed to the operand's shape
    already, or NotImplemented. One that is registered with ``over`` is called with ``over=True`` where
    nothing else will read ``g``: it may then write its result there.
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        _rules[name, operand] = function
        if over:
            WRITES_OVER.add(function)
        return function

    return mark


def rule_on_device(op: Op, i: int) -> Callable[..., Any] | None:
    """The gradient rule on GPUs of the operand at a position, or None."""
    return None if op.variadic or not has_its_name(op) else _rules.get((op.name, op.operands[i]))


def bind_loader(load: Callable[[], Any]) -> None:
    """Tell this module how to import the kernels' modules; called once, by ``autoq.ops``."""
    _load.append(load)


def forward_on_device(op: Op, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
    """The op's result by a kernel of its own, or NotImplemented: of arguments that it doesn't have too."""
    while _load:
        _load.pop()()
    if compute is not float32:
        check_loop(op, values, compute)
    function = _forwards.get(op.name) if has_its_name(op) else None
    if function is None and op.elementwise:
        function = _forwards.get(ELEMENTWISE)
    if function is None or (static and any(name not in op.statics for name in static)):
        return NotImplemented  # an argument that there isn't is refused by the forward
    return function(op, values, static, out, compute)


def raw_on_device(op: Op, *operands: Any, **static: Any) -> Any:
    """An op of a gradient rule on raw device arrays; the result has the first float array's dtype.

    Comparisons give bools. Of a variadic op the operands are one sequence.
    """
    values = operands[0] if op.variadic else operands
    dtype = next((x.dtype for x in values if on_gpu(x) and x.dtype.kind not in "biu"), None)
    if dtype is not None:
        complete = {**op.defaults, **static} if op.defaults else static
        out = bool_ if op.kind == "index" else dtype
        found = forward_on_device(op, values, complete, out, dtype)
        if found is not NotImplemented:
            return found
    return op.forward(*operands, **static)
