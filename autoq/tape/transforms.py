"""Functions that differentiate functions: grad, value_and_grad, vjp (S27)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from autoq.context import using
from autoq.errors import ArgumentError, DTypeError, GradientError
from autoq.tape.apply import apply
from autoq.tape.beside import copied_beside, filled
from autoq.tape.delivery import passed, tensor_of
from autoq.tape.gradient import seed, walk
from autoq.tape.node import LEAF, Node, next_position
from autoq.tape.tensor import Tensor, tensor
from autoq.tape.trees import mapped

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
                replaced[p] = entered(args[p], inputs)
            start = next_position()
            result = f(*replaced, **kwargs)
        output = result[0] if isinstance(result, tuple) and result else result
        found = iter(gradients(single(output), inputs, None, start))
        out = tuple(mapped(args[p], lambda _: next(found), numbers=True) for p in positions)
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
        points = [entered(x, inputs) for x in args]
        start = next_position()
        value = f(*points)
    if not isinstance(value, Tensor):
        raise GradientError(
            f"vjp of a function that returned a {type(value).__name__}.",
            "one tensor",
            "Return the tensor to be differentiated; stack several into one.",
        )

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        found = iter(gradients(value, inputs, cotangent, start))
        return tuple(mapped(x, lambda _: next(found), numbers=True) for x in args)

    return value.detach() if not depends_further(value, inputs) else value, pullback


def stop_gradient(x: Any) -> Any:
    """The same values as constants: no gradient flows back through them (S4).

    Args:
        x: A tensor, or lists, tuples and dicts of tensors.

    Example:
        >>> import autoq as aq
        >>> grad(lambda x: (x * stop_gradient(x)).sum())(aq.tensor([3.0]))
        tensor([3.], float32)
    """
    return mapped(x, lambda x: (x if isinstance(x, Tensor) else tensor(x)).detach(), numbers=True)


def gradients(output: Tensor, inputs: list[Tensor], cotangent: Any, since: int) -> list[Tensor]:
    """Gradients of an output by input tensors, from before ``since``; zeros where it doesn't depend on one.

    The walk is recorded if the result depends on tracked tensors beyond the inputs, or the inputs
    themselves do, or the cotangent is tracked.
    """
    tracked = isinstance(cotangent, Tensor) and cotangent._node is not None
    return pulled([(output, cotangent)], inputs, tracked or depends_further(output, inputs), since)


def pulled(
    pairs: list[tuple[Tensor, Any]], inputs: list[Tensor], create_graph: bool, since: int
) -> list[Tensor]:
    """Gradients by inputs of outputs with a cotangent each, added up; the inputs lie before ``since``."""
    targets = [x if x._node is LEAF else x._node for x in inputs]
    with using(grad=True):
        seeds = [(y, seed(y, g, create_graph)) for y, g in pairs if y._node is not None]
        found = walk(seeds, True, create_graph, since=since)
        for t in targets:
            if t in found:
                found[t] = passed(t, found[t], create_graph)
    return [_delivered(x, found.get(t)) for x, t in zip(inputs, targets, strict=True)]


def entered(tree: Any, inputs: list[Tensor]) -> Any:
    """The nest with tracked tensors of its own in it, which ``inputs`` then holds too."""
    return mapped(tree, lambda x: _entered(x, inputs), numbers=True)


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
    entered = x._placed(LEAF) if x._node is None else apply("identity", x)
    inputs.append(entered)
    return entered


def single(output: Any) -> Tensor:
    """The output of a function to differentiate; GradientError unless it is a tensor of one value."""
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


def depends_further(output: Tensor, inputs: list[Tensor]) -> bool:
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
    return tensor_of(copied_beside(g, dtype, x))


def _zeros_like(x: Tensor) -> Tensor:
    return tensor_of(filled(0, x.shape, x._type.gradient, x))
