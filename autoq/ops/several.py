"""Layout functions that other ops make up: axes moved and swapped, tensors taken apart, grids."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ArgumentError, ShapeError
from autoq.ops.axes import Shape, axis_tuple, check_axes, one_axis
from autoq.tape.apply import apply, as_tensor
from autoq.tape.function import composed
from autoq.tape.tensor import Tensor


@composed
def moveaxis(x: Any, source: int | Shape, destination: int | Shape) -> Tensor:
    """Axes moved to other positions; the others keep their order.

    Args:
        x: Any shape.
        source: The axes that move: one, or a tuple.
        destination: Where they are in the result, as many.

    Raises:
        ShapeError: Axes that `x` does not have, one of them twice, or not as many positions.

    Example:
        >>> import autoq as aq
        >>> aq.moveaxis([[[1.0, 2.0]]], 2, 0).shape
        (2, 1, 1)
    """
    x = as_tensor(x)
    return apply("permute_dims", x, axes=_moved(x.shape, source, destination))


def _moved(shape: Shape, source: int | Shape, destination: int | Shape) -> Shape:
    """The order of the axes after some have moved."""
    for axes in (source, destination):
        check_axes("moveaxis", tuple(axes) if isinstance(axes, list) else axes, shape)
    sources, places = axis_tuple(source, len(shape)), axis_tuple(destination, len(shape))
    if len(sources) != len(places):
        raise ShapeError(
            f"moveaxis: source={source}, destination={destination}.", "as many of both.", "Pair them."
        )
    order = [axis for axis in range(len(shape)) if axis not in sources]
    for place, axis in sorted(zip(places, sources, strict=True)):
        order.insert(place, axis)
    return tuple(order)


@composed
def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Two axes swapped.

    Args:
        x: Any shape.
        axis1: The one.
        axis2: The other; the same one changes nothing.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.swapaxes([[1.0, 2.0]], 0, 1)
        tensor([[1.]
                [2.]], float32)
    """
    x = as_tensor(x)
    a, b = one_axis("swapaxes", axis1, x.shape), one_axis("swapaxes", axis2, x.shape)
    order = tuple(b if i == a else a if i == b else i for i in range(x.ndim))
    return apply("permute_dims", x, axes=order)


@composed
def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """The entries along an axis, one tensor each: what `stack` joins.

    Args:
        x: Any shape of at least one axis.
        axis: The axis that is taken apart.

    Raises:
        ShapeError: An axis that `x` does not have.

    Example:
        >>> import autoq as aq
        >>> aq.unstack([[1.0, 2.0], [3.0, 4.0]])
        (tensor([1. 2.], float32), tensor([3. 4.], float32))
    """
    x = as_tensor(x)
    axis = one_axis("unstack", axis, np.shape(x))
    lead = (slice(None),) * axis
    return tuple(x[(*lead, i)] for i in range(x.shape[axis]))


@composed
def broadcast_arrays(*arrays: Any) -> tuple[Tensor, ...]:
    """Tensors repeated, without a copy, to the shape that all of them broadcast to.

    Args:
        arrays: Any shapes that broadcast.

    Raises:
        ShapeError: They don't.

    Example:
        >>> import autoq as aq
        >>> [x.shape for x in aq.broadcast_arrays([1.0, 2.0], [[3.0], [4.0]])]
        [(2, 2), (2, 2)]
    """
    tensors = [as_tensor(x) for x in arrays]
    try:
        shape = np.broadcast_shapes(*[x.shape for x in tensors])
    except ValueError:
        raise ShapeError(
            f"broadcast_arrays: shapes {' and '.join(str(x.shape) for x in tensors)}.",
            "shapes whose axes, aligned at the last, are equal or 1.",
            "Insert axes of length 1 with expand_dims.",
        ) from None
    return tuple(x if x.shape == shape else apply("broadcast_to", x, shape=shape) for x in tensors)


@composed
def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """The coordinates of a grid: each vector along an axis of its own, repeated over the others.

    Args:
        arrays: Vectors, (n,) each, or numbers.
        indexing: ``"xy"``: the first vector runs along the second axis, as in pictures; ``"ij"``: along the
            first.

    Raises:
        ShapeError: Something else than vectors.
        ArgumentError: Another `indexing`.

    Example:
        >>> import autoq as aq
        >>> aq.meshgrid([1.0, 2.0], [3.0, 4.0])[0]
        tensor([[1. 2.]
                [1. 2.]], float32)
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing={indexing!r}.", "'xy' or 'ij'.", "Pass one of these.")
    vectors = [as_tensor(x) for x in arrays]
    for x in vectors:
        if x.ndim > 1:
            raise ShapeError(f"meshgrid: an array of shape {x.shape}.", "vectors.", "Flatten it.")
    places = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        places[:2] = 1, 0
    lines = [
        x.reshape(tuple(x.size if axis == place else 1 for axis in range(len(vectors))))
        for place, x in zip(places, vectors, strict=True)
    ]
    return broadcast_arrays(*lines)
