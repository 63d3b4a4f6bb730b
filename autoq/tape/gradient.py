"""Walking the tape backwards: each node's rules, unbroadcasting, accumulation (S20-S28)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from autoq.context import OBSERVERS, current, noted
from autoq.devices import SEVERAL, device_of, memory_error, on_gpu, using_device
from autoq.errors import AutoqError, GradientError, ShapeError, UndifferentiableError
from autoq.storage.inputs import converted
from autoq.tape.accelerated import WRITES_OVER, rule_on_device
from autoq.tape.apply import apply, decoded
from autoq.tape.beside import added, apart, check_beside, copied_beside, filled, held
from autoq.tape.delivery import add_to_grad, passed, tensor_of
from autoq.tape.namespace import RAW, RAW_ON_DEVICE, RECORDED
from autoq.tape.node import LEAF, Node
from autoq.tape.op import has_its_name
from autoq.tape.stored import real_array
from autoq.tape.tensor import AutodiffTensor, Tensor
from autoq.tape.unbroadcast import unbroadcast, unbroadcast_recorded

if TYPE_CHECKING:
    from autoq.tape.op import Read, Rule

# A node or a leaf tensor -> its cotangent: an array, or a tensor under create_graph.
Gradients = dict[Any, Any]

_by_position = attrgetter("position")


def backward(
    tensor: Tensor, gradient: Any = None, *, retain_graph: bool | None = None, create_graph: bool = False
) -> None:
    """Add the gradient of ``tensor`` to ``.grad`` of every leaf that asked for one.

    Args:
        tensor: What to differentiate; a scalar if no gradient is given.
        gradient: The cotangent, of the tensor's shape.
        retain_graph: Keep what was saved, for another backward; ``create_graph`` if None.
        create_graph: Record the backward pass itself, so that the gradients can be differentiated.

    Raises:
        GradientError: Untracked tensor, non-scalar without a gradient, freed or changed saved values.
        ShapeError: A gradient of another shape.

    Example:
        >>> import autoq as aq
        >>> x = aq.tensor([1.0, 2.0], requires_grad=True)
        >>> backward((x * x).sum())
        >>> x.grad
        tensor([2. 4.], float32)
    """
    if OBSERVERS and gradient is not None:
        noted("backward", gradient)
    retain = create_graph if retain_graph is None else retain_graph
    found = walk([(tensor, seed(tensor, gradient, create_graph))], retain, create_graph)
    delivered: set[int] = set()
    for leaf, g in found.items():
        if isinstance(leaf, Tensor):
            with using_device(leaf.device):
                if leaf._hooks is not None:
                    g = passed(leaf, g, create_graph)
                add_to_grad(leaf, g if id(g) not in delivered or isinstance(g, Tensor) else g.copy())
            delivered.add(id(g))  # rules hand the same array to several operands; leaves don't share one


def seed(tensor: Tensor, gradient: Any, create_graph: bool) -> Any:
    """The cotangent that a walk starts with: ones for a scalar, else the given gradient, checked."""
    if tensor._node is None:
        raise GradientError(
            f"gradient of an untracked {tensor._type.dtype} tensor.",
            "a tensor computed from one with requires_grad=True",
            "Set requires_grad=True on a float input; under aq.no_grad() nothing is recorded.",
        )
    dtype = tensor._type.gradient
    if gradient is None:
        if tensor.size != 1:
            raise GradientError(
                f"backward of a tensor of shape {tensor.shape} without a gradient.",
                "a tensor of one value, or a gradient of its shape",
                "Reduce it with .sum() or .mean(), or pass backward(gradient=...).",
            )
        gradient = filled(1, tensor.shape, dtype, tensor)
    elif gradient.__class__ is not np.ndarray:
        check_beside("a gradient", tensor, gradient, names=("the tensor", "the gradient"))
    g: Any
    if create_graph:
        g = gradient
        if not isinstance(g, Tensor):
            g = tensor_of(copied_beside(real_array(gradient, "the gradient"), dtype, tensor))
        g = g.dequantize() if g._type.is_quantized else g
    else:
        if gradient.__class__ is not np.ndarray or gradient.dtype is not dtype:
            gradient = real_array(gradient, "the gradient")
        g = copied_beside(gradient, dtype, tensor)
    if g.shape != tensor.shape:
        raise ShapeError(
            f"a gradient of shape {g.shape} for a tensor of shape {tensor.shape}.",
            "the tensor's own shape",
            "Reshape or broadcast the gradient.",
        )
    return g


def walk(
    seeds: Iterable[tuple[Tensor, Any]],
    retain: bool,
    create_graph: bool,
    keep: Iterable[Any] = (),
    since: int = 0,
) -> Gradients:
    """Cotangents of all leaves, and of the nodes in ``keep``, reached from the seeds.

    Nodes at positions before ``since`` are where the walk ends: they get a cotangent and no step.
    """
    grads: Gradients = {}
    owned: set[Any] = set()
    roots = []
    for tensor, g in seeds:
        target = tensor if tensor._node is LEAF else tensor._node
        _accumulate(grads, owned, target, g)
        roots.append(target)
    step: Callable[..., None] = _recorded_step if create_graph else _raw_step
    observer = current().observer
    watched = observer is not None and observer.keeps_gradients
    if observer is not None:
        step = partial(observer.step, step)
    kept = set(keep)
    nodes = _ordered(roots, since)
    with np.errstate(all="ignore"), _freeing(nodes, retain):
        for node in nodes:
            g = grads.get(node) if node in kept else grads.pop(node, None)
            if g is None:
                continue
            if node.saved is None:
                raise _freed(node)
            if watched or node in kept or node.hooks is not None:
                owned.discard(node)
            if node.hooks is not None:
                g = passed(node, g, create_graph)
                if node in kept:
                    grads[node] = g
            if SEVERAL:
                with using_device(device_of(held(g))):
                    step(node, g, grads, owned)
            else:
                step(node, g, grads, owned)
            if not retain:
                node.saved = None
    return grads


@contextmanager
def _freeing(nodes: list[Node], retain: bool) -> Iterator[None]:
    """Where memory runs out, what the tape keeps for backward is dropped, so that the process can go on."""
    try:
        yield
    except MemoryError as error:
        for node in nodes if not retain else ():
            node.free()
        raise memory_error("backward", error) from error


def _ordered(roots: Iterable[Any], since: int) -> list[Node]:
    """The nodes from ``since`` on that the roots depend on, latest first; without recursion (S28)."""
    stack = list({r for r in roots if type(r) is Node and r.position >= since})
    seen = set(stack)
    for node in stack:  # grows while it is walked
        for parent in node.parents:
            if type(parent) is Node and parent not in seen and parent.position >= since:
                seen.add(parent)
                stack.append(parent)
    stack.sort(key=_by_position, reverse=True)
    return stack


def _raw_step(node: Node, g: Any, grads: Gradients, owned: set[Any]) -> None:
    """Apply a node's rules to raw arrays and hand the results to its parents."""
    if g.dtype is not node.compute:
        g = converted(g, node.compute)
    F = RAW_ON_DEVICE if g.__class__ is not np.ndarray and on_gpu(g) else RAW
    values: dict[Any, Any] = {}
    rules = node.op.rules
    made: list[Any] = []
    last = None  # the operand whose rule reads the cotangent last, if nothing else holds that
    if F is RAW_ON_DEVICE and node in owned and has_its_name(node.op):
        last = _first(node.parents)
    for i in reversed(range(len(node.parents))):  # a weight's before the signal's: least memory at once
        parent = node.parents[i]
        if parent is None:
            continue
        ours = i == last and all(apart(g, x) for x in made)
        rule = None if node.op.variadic else rules[i]
        if F is RAW_ON_DEVICE and (found := _by_kernel(node, i, g, ours)) is not NotImplemented:
            d = found
            ours = ours or d is not g
        elif rule is not None and not rule.reads:
            d = rule.function(F, g)
            ours = ours and d is g
        else:
            d = _call(node, i, F, g, values, _raw_value)
            ours = False
        shape, dtype = node.shapes[i], node.dtypes[i]
        if d.shape != shape:
            d = unbroadcast(d, shape)
        if d.dtype is not dtype:
            d = converted(d, dtype)
        made.append(d)
        if parent in grads:
            _accumulate(grads, owned, parent, d)
        else:
            grads[parent] = d
            if ours:
                owned.add(parent)


def _first(parents: Sequence[Any]) -> int:
    """The first operand that asks for a gradient: its rule is the last that reads the cotangent."""
    return next(i for i, parent in enumerate(parents) if parent is not None)


def _by_kernel(node: Node, i: int, g: Any, over: bool) -> Any:
    """What a rule for GPUs gives of stored operands, or NotImplemented; ``over``: it may write to ``g``."""
    function, rule = rule_on_device(node.op, i), node.op.rules[0 if node.op.variadic else i]
    if function is None or rule is None:
        return NotImplemented
    arguments = _arguments(node, i, RAW_ON_DEVICE, rule.reads, {}, _stored_value)
    return function(g, *arguments, over=True) if over and function in WRITES_OVER else function(g, *arguments)


def _stored_value(node: Node, i: int) -> Any:
    """A saved operand as it is stored; numbers and None stay."""
    x = unchanged(node, i)
    return x._value if isinstance(x, Tensor) else x


def _recorded_step(node: Node, g: Any, grads: Gradients, owned: set[Any]) -> None:
    """The same on tracked, inhibiting float tensors (S27)."""
    g = as_inhibiting(g, node.compute)
    values: dict[Any, Any] = {}
    for i in reversed(range(len(node.parents))):
        parent = node.parents[i]
        if parent is None:
            continue
        d = _recorded_call(node, i, g, values)
        if d.shape != node.shapes[i]:
            d = unbroadcast_recorded(d, node.shapes[i])
        if d._type.dtype != node.dtypes[i]:
            d = d.astype(node.dtypes[i])
        previous = grads.get(parent)
        grads[parent] = d if previous is None else apply("add", previous, d)


def _recorded_call(node: Node, i: int, g: Any, values: dict[Any, Any]) -> Tensor:
    """A rule's result as a tensor; a rule that can't be differentiated is an error that names its op."""
    try:
        d = _call(node, i, RECORDED, g, values, _recorded_value)
    except (UndifferentiableError, TypeError, AttributeError) as error:
        if isinstance(error, AutoqError) and not isinstance(error, UndifferentiableError):
            raise
        raise _once_only(node, i, getattr(error, "given", error)) from error
    if not isinstance(d, Tensor):
        raise _once_only(node, i, f"it returned {type(d).__name__} instead of a tensor")
    return d


def _once_only(node: Node, i: int, why: Any) -> GradientError:
    return GradientError(
        f"a second gradient through {node.op.name}, whose rule for {_operand(node, i)} has none: {why}",
        "rules written with Python operators and the functions of F that have gradients themselves",
        "Write that rule so, call .detach() on the operand, or differentiate once, without create_graph.",
    )


def _operand(node: Node, i: int) -> str:
    """An operand in an error: by name, or by number in a sequence."""
    return f"operand {i}" if node.op.variadic else f"operand {node.op.operands[i]!r}"


def _call(node: Node, i: int, F: Any, g: Any, values: dict[Any, Any], value_of: Callable[..., Any]) -> Any:
    """Call the rule of operand ``i`` with what it reads."""
    op = node.op
    rule: Rule | None = op.rules[0] if op.variadic else op.rules[i]
    if rule is None:
        raise GradientError(
            f"{op.name} has no gradient for its operand {op.operands[i]!r}.",
            f"gradients for {', '.join(op.vjp)}",
            "Call .detach() on that operand.",
        )
    return rule.function(F, g, *_arguments(node, i, F, rule.reads, values, value_of))


def _arguments(
    node: Node, i: int, F: Any, reads: tuple[Read, ...], values: dict[Any, Any], value_of: Callable[..., Any]
) -> list[Any]:
    """What a rule reads; ``values`` keeps what others of the same node may read too."""
    op = node.op
    arguments = []
    for source, key in reads:
        if source == "value":
            if key not in values:
                values[key] = value_of(node, key)
            arguments.append(values[key])
        elif source == "values":
            for k in range(len(node.parents)):
                if k not in values:
                    values[k] = value_of(node, k)
            arguments.append([values[k] for k in range(len(node.parents))])
        elif source == "shape":
            arguments.append(node.shapes[key])
        elif source == "shared":
            if key not in values:
                read = _arguments(node, i, F, op.shared_reads, values, value_of)
                values[key] = op.shared(F, *read)  # type: ignore[misc]
            arguments.append(values[key])
        elif op.variadic and key in ("i", "shapes"):
            arguments.append(i if key == "i" else node.shapes)
        else:
            arguments.append(node.static[key])
    return arguments


def unchanged(node: Node, i: int) -> Any:
    """The saved operand, unless it was changed in place since (S29)."""
    x = node.saved[i]  # type: ignore[index]
    if isinstance(x, Tensor) and x._version[0] != node.versions[i]:
        raise GradientError(
            f"{_operand(node, i)} of {node.op.name} was changed in place after it was recorded.",
            "values that backward needs, unchanged until then",
            "Change it after backward, or compute a new tensor instead.",
        )
    return x


def _raw_value(node: Node, i: int) -> Any:
    x = node.saved[i]  # type: ignore[index]
    if x.__class__ is AutodiffTensor and x._version[0] == node.versions[i] and x._value.dtype is node.compute:
        return x._value  # short for the usual case
    return decoded(unchanged(node, i), node.compute)


def _recorded_value(node: Node, i: int) -> Any:
    x = unchanged(node, i)
    return as_inhibiting(x, node.compute) if isinstance(x, Tensor) and x._type.is_float else x


def as_inhibiting(x: Tensor, dtype: Any) -> Tensor:
    """A float tensor of that dtype that doesn't vote, on the same tape."""
    if x._type.is_quantized:
        x = apply("dequantize", x, dtype=dtype)
    elif x._type.dtype != dtype:
        x = x.astype(dtype)
    return x.inhibit()


def _accumulate(grads: Gradients, owned: set[Any], target: Any, g: Any) -> None:
    """Add a contribution, in at least float32 (S23), in place to what nothing else holds."""
    previous = grads.get(target)
    if previous is None:
        grads[target] = g
    elif isinstance(g, Tensor):
        grads[target] = apply("add", previous, g)
    elif target in owned and previous.__class__ is np.ndarray:
        previous += g
    else:
        grads[target] = total = added(previous, g)
        if total.__class__ is np.ndarray:
            owned.add(target)


def _freed(node: Node) -> GradientError:
    return GradientError(
        f"a second backward through {node.op.name}, whose saved values are freed.",
        "one backward a graph, unless the first one retains it",
        "Pass retain_graph=True to the first backward, or compute the output again.",
    )
