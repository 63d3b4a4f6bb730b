"""Derivatives along directions: jvp and hvp, from the reverse rules alone (S27)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoq.context import using
from autoq.errors import ArgumentError, ShapeError
from autoq.tape.beside import filled
from autoq.tape.delivery import tensor_of
from autoq.tape.node import LEAF, next_position
from autoq.tape.tensor import Tensor, tensor
from autoq.tape.transforms import depends_further, entered, pulled, single
from autoq.tape.trees import leaves, mapped, matched


def jvp(f: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The value of ``f`` and its derivative along a direction.

    The gradient rules are linear in the cotangent, so that the gradient of the pullback by its cotangent is
    the derivative forward: every rule, straight-through casts included, holds as in backward.

    Args:
        f: A function of tensors, or of lists, tuples and dicts of tensors, that returns the like.
        primals: Where to differentiate: a tuple or list with one entry an argument.
        tangents: The direction: tensors or arrays of the primals' structure and shapes.

    Returns:
        ``(value, tangent)``, of one structure; tangents are dense floats.

    Raises:
        ArgumentError: Tangents of another structure.
        ShapeError: A tangent of another shape.

    Source: Townsend, "A new trick for calculating Jacobian vector products", 2017.

    Example:
        >>> import autoq as aq
        >>> jvp(lambda x, y: x * y, (aq.tensor([1.0, 2.0]), aq.tensor([3.0, 4.0])), ([1.0, 0.0], [0.0, 1.0]))
        (tensor([3. 8.], float32), tensor([3. 2.], float32))
    """
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise ArgumentError(
            f"jvp: primals are a {type(primals).__name__}, tangents a {type(tangents).__name__}.",
            "two tuples with one entry an argument",
            "Pass (x,) and (v,) for a function of one argument.",
        )
    value, push = linearized(f, primals)
    return value, push(tangents)


def linearized(f: Callable[..., Any], primals: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The value of ``f``, and the function from tangents of the primals to those of the value."""
    inputs: list[Tensor] = []
    with using(grad=True):
        points = [entered(x, inputs) for x in primals]
        before = next_position()
        value = f(*points)
    outputs = [y for y in leaves(value) if _is_float(y)]
    further = any(depends_further(y, inputs) for y in outputs)
    start = next_position()
    cotangents = [_cotangent(y) for y in outputs]
    pulls = pulled(list(zip(outputs, cotangents, strict=True)), inputs, True, before)

    def push(tangents: Any) -> Any:
        directions = checked_directions(primals, inputs, tangents)
        create = further or any(v._node is not None for v in directions)
        found = pulled(list(zip(pulls, directions, strict=True)), cotangents, create, start)
        rest = iter(found)
        return mapped(value, lambda y: next(rest) if _is_float(y) else y)

    return mapped(value, lambda y: y if further or not isinstance(y, Tensor) else y.detach()), push


def hvp(f: Callable[..., Any], x: Any, v: Any) -> Any:
    """The Hessian of ``f`` at ``x`` times a direction, without the Hessian: one gradient of a gradient.

    Args:
        f: A function of one tensor, or one nest of lists, tuples and dicts, that returns one value.
        x: Where to differentiate.
        v: The direction, of the same structure and shapes.

    Returns:
        Dense floats of the structure of ``x``.

    Raises:
        ArgumentError, ShapeError: A direction of another structure or shape.
        GradientError: ``f`` returns more than one value, or uses an operation without second gradients.

    Source: Pearlmutter, "Fast exact multiplication by the Hessian", 1994.

    Example:
        >>> import autoq as aq
        >>> hvp(lambda x: (x ** 3).sum(), aq.tensor([1.0, 2.0]), aq.tensor([1.0, 10.0]))
        tensor([  6. 120.], float32)
    """
    inputs: list[Tensor] = []
    with using(grad=True):
        point, start = entered(x, inputs), next_position()
        value = single(f(point))
    directions = checked_directions((x,), inputs, (v,))
    further = depends_further(value, inputs) or any(v._node is not None for v in directions)
    slopes = pulled([(value, None)], inputs, True, start)
    found = iter(pulled(list(zip(slopes, directions, strict=True)), inputs, further, start))
    return mapped(x, lambda _: next(found), numbers=True)


def checked_directions(trees: Any, inputs: list[Tensor], given: Any) -> list[Tensor]:
    """One dense direction an input, of its shape."""
    if len(trees) != len(given):
        raise ArgumentError(
            f"directions for {len(given)} arguments of {len(trees)}.",
            "one an argument",
            "Pass zeros for arguments that stay.",
        )
    flat = [v for tree, part in zip(trees, given, strict=True) for v in matched(tree, part)]
    found = []
    for x, v in zip(inputs, flat, strict=True):
        v = v if isinstance(v, Tensor) else tensor(v)
        if v.shape != x.shape:
            raise ShapeError(
                f"a direction of shape {v.shape} for an argument of shape {x.shape}.",
                "the argument's own shape",
                "Reshape or broadcast the direction.",
            )
        if not v._type.is_float:
            v = v.astype(x._type.gradient)
        found.append(v.dequantize() if v._type.is_quantized else v)
    return found


def _is_float(y: Any) -> bool:
    return isinstance(y, Tensor) and y._type.is_float


def _cotangent(y: Tensor) -> Tensor:
    """A leaf to differentiate the pullback by; the pullback is linear, so zeros do."""
    made = tensor_of(filled(0, y.shape, y._type.gradient, y))
    made._node = LEAF
    return made
