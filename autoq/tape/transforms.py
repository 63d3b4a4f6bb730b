"""Functions that differentiate functions: grad, value_and_grad, vjp (S27)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from autoq.context import using
from autoq.errors import ArgumentError, DTypeError, GradientError
from autoq.tape.apply import apply
from autoq.tape.gradient import seed, tensor_of, walk
from autoq.tape.node import LEAF, Node
from autoq.tape.tensor import Tensor, tensor

ArgNums = int | tuple[int, ...]


def value_and_grad(f: Callable[..., Any], argnums: ArgNums = 0) -> Callable[..., tuple[Any, Any]]:
    """A function that returns the value of ``f`` and its gradient.

    Args:
        f: A function of tensors, or of lists, tuples and dicts of tensors, that returns a tensor of one
            value, or a tuple whose first entry is one (the others are passed on).
        argnums: The position, or positions, of the arguments to differentiate by.

    Returns:
        A function of the same arguments; the gradients have the structure of the arguments and are dense
        floats.

    Raises:
        GradientError: ``f`` returns more than one value, or nothing that depends on the arguments.

    Example:
        >>> import autoq as aq
        >>> value, slope = value_and_grad(lambda x: (x ** 3).sum())(aq.tensor([2.0]))
        >>> value.item(), slope.item()
        (8.0, 12.0)
    """
    positions = _positions(argnums)

    @wraps(f)
    def differentiated(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        if any(not -len(args) <= p < len(args) for p in positions) or (
            len({p % len(args) for p in positions}) < len(positions)
        ):
            raise ArgumentError(
                f"argnums {argnums} of a call with {len(args)} positional arguments.",
                "positions of positional arguments, each once",
                "Pass the argument by position, or correct argnums.",
            )
        with using(grad=True):
            inputs: list[Tensor] = []
            replaced = list(args)
            for p in positions:
                replaced[p] = _mapped(args[p], lambda x: _entered(x, inputs))
            result = f(*replaced, **kwargs)
        output = result[0] if isinstance(result, tuple) and result else result
        found = iter(gradients(_single(output), inputs))
        out = tuple(_mapped(args[p], lambda _: next(found)) for p in positions)
        return result, out[0] if isinstance(argnums, int) else out

    return differentiated


def grad(f: Callable[..., Any], argnums: ArgNums = 0) -> Callable[..., Any]:
    """A function that returns the gradient of ``f``; of any order by ``grad(grad(f))``.

    Args:
        f: A function that returns a tensor of one value (or a tuple that starts with one).
        argnums: The position, or positions, of the arguments to differentiate by.

    Example:
        >>> import autoq as aq
        >>> cube = lambda x: x ** 3
        >>> grad(cube)(aq.tensor(2.0)).item(), grad(grad(cube))(aq.tensor(2.0)).item()
        (12.0, 12.0)
    """
    both = value_and_grad(f, argnums)

    @wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return gradient


def vjp(f: Callable[..., Tensor], *args: Any) -> tuple[Tensor, Callable[[Any], Any]]:
    """The value of ``f`` and the function from a cotangent to the gradients of all arguments.

    Args:
        f: A function of tensors that returns one tensor.
        args: Where to differentiate; tensors, or lists, tuples and dicts of tensors.

    Returns:
        ``(value, pullback)``; ``pullback(cotangent)`` gives one gradient an argument, and can be called
        again.

    Example:
        >>> import autoq as aq
        >>> value, pullback = vjp(lambda x: x * x, aq.tensor([1.0, 2.0]))
        >>> pullback(aq.tensor([1.0, 10.0]))
        (tensor([ 2. 40.], float32),)
    """
    inputs: list[Tensor] = []
    with using(grad=True):
        entered = [_mapped(x, lambda x: _entered(x, inputs)) for x in args]
        value = f(*entered)
    if not isinstance(value, Tensor):
        raise GradientError(
            f"vjp of a function that returned a {type(value).__name__}.",
            "one tensor",
            "Return the tensor to be differentiated; stack several into one.",
        )

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        found = iter(gradients(value, inputs, cotangent))
        return tuple(_mapped(x, lambda _: next(found)) for x in args)

    return value.detach() if not _depends_further(value, inputs) else value, pullback


def gradients(output: Tensor, inputs: list[Tensor], cotangent: Any = None) -> list[Tensor]:
    """Gradients of an output by input tensors; zeros where it does not depend on one.

    The walk is recorded if the result depends on tracked tensors beyond the inputs, or the inputs
    themselves do.
    """
    if output._node is None:
        return [_zeros_like(x) for x in inputs]
    create = _depends_further(output, inputs)
    targets = [x if x._node is LEAF else x._node for x in inputs]
    with using(grad=True):
        found = walk([(output, seed(output, cotangent, create))], True, create, keep=targets)
    return [_delivered(x, found.get(t)) for x, t in zip(inputs, targets, strict=True)]


def _positions(argnums: Any) -> tuple[int, ...]:
    positions = (argnums,) if isinstance(argnums, int) else argnums
    if not isinstance(positions, tuple | list) or any(not isinstance(p, int) for p in positions):
        raise ArgumentError(
            f"argnums {argnums!r}.", "an integer, or a tuple of them", "Pass positions of arguments."
        )
    return tuple(positions)


def _entered(x: Any, inputs: list[Tensor]) -> Tensor:
    """The argument as a tracked tensor of its own, so that its gradient can be told from others'."""
    if not isinstance(x, Tensor):
        x = tensor(x)
    if not x._type.is_float:
        raise DTypeError(
            f"a gradient by an argument of dtype {x.dtype.name}.",
            "float and quantized tensors",
            "Cast it with astype.",
        )
    entered = type(x.detach())(x._value, x._type, LEAF) if x._node is None else apply("identity", x)
    inputs.append(entered)
    return entered


def _mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """The same nest of lists, tuples and dicts with every tensor replaced."""
    if isinstance(tree, dict):
        return {key: _mapped(value, function) for key, value in tree.items()}
    if isinstance(tree, list | tuple) and (
        not tree or any(isinstance(x, Tensor | dict | list | tuple) for x in tree)
    ):
        return type(tree)(_mapped(value, function) for value in tree)
    return function(tree)


def _single(output: Any) -> Tensor:
    if not isinstance(output, Tensor) or output.size != 1:
        what = (
            f"a tensor of shape {output.shape}"
            if isinstance(output, Tensor)
            else f"a {type(output).__name__}"
        )
        raise GradientError(
            f"gradient of a function that returned {what}.",
            "a tensor of one value, or a tuple that starts with one",
            "Reduce the result with .sum() or .mean(), or use aq.vjp with a cotangent.",
        )
    return output


def _depends_further(output: Tensor, inputs: list[Tensor]) -> bool:
    """Whether something tracked beyond the inputs is behind the output, or behind the inputs."""
    ours = {x for x in inputs if x._node is LEAF}
    stack: list[Any] = [output._node] if type(output._node) is Node else []
    if not stack:
        return output._node is LEAF and output not in ours
    seen = set(stack)
    for node in stack:
        for parent in node.parents:
            if type(parent) is Node:
                if parent not in seen:
                    seen.add(parent)
                    stack.append(parent)
            elif parent is not None and parent not in ours:
                return True
    return False


def _delivered(x: Tensor, g: Any) -> Tensor:
    """A gradient as a propagating tensor in the input's float dtype."""
    if g is None:
        return _zeros_like(x)
    dtype = x._type.gradient
    if isinstance(g, Tensor):
        return (g if g._type.dtype == dtype else g.astype(dtype)).propagate()
    return tensor_of(np.array(g, dtype))


def _zeros_like(x: Tensor) -> Tensor:
    return tensor_of(np.zeros(x.shape, x._type.gradient))
