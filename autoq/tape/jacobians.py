"""All derivatives at once: jacobian, row by row or column by column, and hessian."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from autoq.context import using
from autoq.devices import device_of, using_device
from autoq.errors import ArgumentError, GradientError
from autoq.memory import within_memory
from autoq.storage.inputs import contiguous
from autoq.tape.apply import apply
from autoq.tape.beside import filled
from autoq.tape.delivery import tensor_of
from autoq.tape.forward import linearized
from autoq.tape.node import next_position
from autoq.tape.tensor import Tensor
from autoq.tape.transforms import ArgNums, depends_further, entered, grad, pulled
from autoq.tape.trees import leaves, mapped

MODES = ("reverse", "forward")


def jacobian(f: Callable[..., Any], argnums: ArgNums = 0, mode: str = "reverse") -> Callable[..., Any]:
    """A function that returns every derivative of every value of ``f``.

    Args:
        f: A function of tensors, or of lists, tuples and dicts of tensors, that returns the like.
        argnums: The position, or positions, of the arguments to differentiate by.
        mode: ``"reverse"``, one backward pass a value of the result, or ``"forward"``, one a value of the
            arguments; both give the same numbers.

    Returns:
        A function of the same arguments. It returns the structure of the result with, in place of each
        tensor, the structure of the argument (a tuple of them for a tuple of ``argnums``) with dense floats
        of shape ``result.shape + argument.shape``.

    Raises:
        ArgumentError: An unknown mode, or a position beyond the arguments.
        GradientError: ``f`` returns something else than float tensors.

    Example:
        >>> import autoq as aq
        >>> jacobian(lambda x: x * x)(aq.tensor([1.0, 2.0]))
        tensor([[2. 0.]
                [0. 4.]], float32)
    """
    if mode not in MODES:
        raise ArgumentError(f"jacobian: mode={mode!r}.", " or ".join(map(repr, MODES)), "Pass one of these.")
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    blocks_of = _by_rows if mode == "reverse" else _by_columns

    @wraps(f)
    def derivatives(*args: Any, **kwargs: Any) -> Any:
        if any(not -len(args) <= p < len(args) for p in positions):
            raise ArgumentError(
                f"argnums {argnums} of a call with {len(args)} positional arguments.",
                "positions of positional arguments",
                "Pass the argument by position, or correct argnums.",
            )

        def by_chosen(*chosen: Any) -> Any:
            replaced = list(args)
            for p, x in zip(positions, chosen, strict=True):
                replaced[p] = x
            return f(*replaced, **kwargs)

        trees = tuple(args[p] for p in positions)
        value, blocks = blocks_of(by_chosen, trees)
        rows = iter(blocks)
        shaped = trees[0] if isinstance(argnums, int) else trees
        return mapped(value, lambda _: _structured(shaped, next(rows)))

    return derivatives


def hessian(f: Callable[..., Any], argnums: ArgNums = 0) -> Callable[..., Any]:
    """A function that returns every second derivative of ``f``: the jacobian of its gradient.

    Args:
        f: A function that returns a tensor of one value.
        argnums: The position, or positions, of the arguments to differentiate by, twice.

    Returns:
        A function of the same arguments. It returns the structure of the arguments with, in place of each
        tensor, that structure again, with dense floats of shape ``one.shape + other.shape``.

    Raises:
        GradientError: ``f`` returns more than one value, or uses an operation without second gradients.

    Example:
        >>> import autoq as aq
        >>> hessian(lambda x: (x ** 3).sum())(aq.tensor([1.0, 2.0]))
        tensor([[ 6.  0.]
                [ 0. 12.]], float32)
    """
    return jacobian(grad(f, argnums), argnums)


@within_memory("jacobian")
def _by_rows(f: Callable[..., Any], trees: tuple[Any, ...]) -> tuple[Any, list[list[Tensor]]]:
    """The value, and by tensor in it the derivatives by each input: a backward pass a value."""
    inputs: list[Tensor] = []
    with using(grad=True):
        points = [entered(x, inputs) for x in trees]
        start = next_position()
        value = f(*points)
    blocks = []
    for y in _checked(value):
        create = depends_further(y, inputs)
        rows = [pulled([(y, unit)], inputs, create, start) for unit in _units(y)]
        blocks.append([_stacked([r[i] for r in rows], y.shape, x, create) for i, x in enumerate(inputs)])
    return value, blocks


@within_memory("jacobian")
def _by_columns(f: Callable[..., Any], trees: tuple[Any, ...]) -> tuple[Any, list[list[Tensor]]]:
    """The same, along one direction a value of the inputs."""
    inputs: list[Tensor] = []
    with using(grad=True):
        kept = [entered(x, inputs) for x in trees]
    value, push = linearized(f, trees)
    outputs, zeros = _checked(value), [tensor_of(filled(0, x.shape, x._type.gradient, x)) for x in inputs]

    def column(i: int, unit: np.ndarray) -> list[Tensor]:
        directions = iter([*zeros[:i], tensor_of(unit), *zeros[i + 1 :]])
        return leaves(push(mapped(tuple(kept), lambda _: next(directions))))

    columns = [[column(i, unit) for unit in _units(x)] for i, x in enumerate(inputs)]
    blocks = []
    for k, y in enumerate(outputs):
        create = any(c[k]._node is not None for found in columns for c in found)
        blocks.append([_transposed([c[k] for c in columns[i]], y, x, create) for i, x in enumerate(inputs)])
    return value, blocks


def _checked(value: Any) -> list[Tensor]:
    """The tensors of a result, all of them floats."""
    for y in leaves(value):
        if not isinstance(y, Tensor) or not y._type.is_float:
            raise GradientError(
                f"jacobian of a function that returned a {getattr(y, 'dtype', type(y).__name__)}.",
                "float tensors, or lists, tuples and dicts of them",
                "Return only what is to be differentiated.",
            )
    return leaves(value)


def _units(y: Tensor) -> Any:
    """The directions that point at one value each."""
    for k in range(y.size):
        unit = filled(0, y.shape, y._type.gradient, y)
        with using_device(y.device):
            unit.reshape(-1)[k] = 1
        yield unit


def _stacked(rows: list[Tensor], shape: tuple[int, ...], x: Tensor, create: bool) -> Tensor:
    """Derivatives by ``x``, one entry a value of the result, with the result's axes in front."""
    whole = shape + x.shape
    if not rows or not create:
        return tensor_of(_joined(rows, x).reshape(whole))
    return apply("reshape", apply("stack", *rows, axis=0), shape=whole)


def _transposed(columns: list[Tensor], y: Tensor, x: Tensor, create: bool) -> Tensor:
    """The same from one entry a value of ``x``, in the dtype of derivatives by ``x``."""
    if not columns or not create:
        arrays = _joined(columns, x).reshape(math.prod(x.shape), *y.shape)
        with using_device(device_of(arrays)):
            moved = contiguous(np.moveaxis(arrays, 0, -1))
        return tensor_of(moved.reshape(y.shape + x.shape))
    stacked = apply("stack", *columns, axis=-1)
    return apply("reshape", stacked, shape=y.shape + x.shape)


def _joined(parts: list[Tensor], x: Tensor) -> Any:
    """Derivatives by ``x`` along a new first axis."""
    arrays = [part._value for part in parts]
    if not arrays:
        return filled(0, (0,), x._type.gradient, x)
    with using_device(device_of(arrays[0])):
        return np.stack(arrays).astype(x._type.gradient, copy=False)


def _structured(tree: Any, blocks: list[Tensor]) -> Any:
    rest = iter(blocks)
    return mapped(tree, lambda _: next(rest), numbers=True)
