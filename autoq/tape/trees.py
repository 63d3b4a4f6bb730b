"""Nests of lists, tuples and dicts with tensors in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoq.devices import is_array
from autoq.errors import ArgumentError
from autoq.tape.tensor import Tensor


def mapped(tree: Any, function: Callable[[Any], Any], numbers: bool = False) -> Any:
    """The same nest with everything in it replaced.

    Args:
        tree: Lists, tuples (named ones too) and dicts, nested, or a single thing.
        function: From what is in the nest to what takes its place, in order.
        numbers: Take a list without tensors and nests for the numbers of one tensor.

    Example:
        >>> mapped({"a": [1, 2], "b": 3}, lambda x: -x)
        {'a': [-1, -2], 'b': -3}
    """
    if isinstance(tree, dict):
        return {key: mapped(value, function, numbers) for key, value in tree.items()}
    if isinstance(tree, list | tuple) and not (numbers and _is_flat(tree)):
        made = [mapped(value, function, numbers) for value in tree]
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    return function(tree)


def leaves(tree: Any, numbers: bool = False) -> list[Any]:
    """What is in a nest, in order.

    Example:
        >>> leaves({"a": [1, 2], "b": (3,)})
        [1, 2, 3]
    """
    found: list[Any] = []
    mapped(tree, found.append, numbers)
    return found


def matched(tree: Any, given: Any) -> list[Any]:
    """What ``given`` holds for each tensor of ``tree``, in order.

    Raises:
        ArgumentError: It is built otherwise.

    Example:
        >>> import numpy as np
        >>> matched([np.zeros(2), {"b": np.zeros(1)}], [5, {"b": 6}])
        [5, 6]
    """
    if isinstance(tree, dict):
        if isinstance(given, dict) and tree.keys() == given.keys():
            return [x for key in tree for x in matched(tree[key], given[key])]
    elif isinstance(tree, list | tuple) and not _is_flat(tree):
        if isinstance(given, list | tuple) and len(tree) == len(given):
            return [x for part, other in zip(tree, given, strict=True) for x in matched(part, other)]
    else:
        return [given]
    raise ArgumentError(
        f"a {_described(given)} in the place of a {_described(tree)}.",
        "the same lists, tuples and dicts, with one tensor for each tensor",
        "Build it as the arguments are built.",
    )


def _described(tree: Any) -> str:
    name = type(tree).__name__
    return f"{name} of {len(tree)}" if isinstance(tree, dict | list | tuple) else name


def _is_flat(tree: Any) -> bool:
    return bool(tree) and not any(isinstance(x, Tensor | dict | list | tuple) or is_array(x) for x in tree)
