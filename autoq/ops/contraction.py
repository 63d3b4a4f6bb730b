"""Einsums as products of matrices, pair by pair: on a GPU, in the precision of the context."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autoq.tape.namespace import RAW_ON_DEVICE as F

UNLIMITED = 1 << 62  # values of an intermediate result
Term = tuple[str, Any]  # a letter for each axis, and the array


def contracted(inputs: Sequence[str], output: str, arrays: Sequence[Any]) -> Any:
    """The einsum of arrays on a GPU, in a new array.

    Args:
        inputs: A letter for each axis of each array.
        output: The letters of the result, each once.
        arrays: Floats of one dtype, at least two.
    """
    terms = list(zip(inputs, arrays, strict=True))
    for places in _order(inputs, output, arrays):
        taken = [terms.pop(place) for place in sorted(places, reverse=True)]
        first = taken.pop()
        while taken:
            second = taken.pop()
            needed = set(output).union(*[letters for letters, _ in (*terms, *taken)])
            first = _product(_alone(first, needed, second), _alone(second, needed, first), needed)
        terms.append(first)
    ((letters, result),) = terms
    return result.transpose([letters.index(c) for c in output])


def _order(inputs: Sequence[str], output: str, arrays: Sequence[Any]) -> list[tuple[int, ...]]:
    """Which terms are multiplied in each step; a result comes last among the terms that are left."""
    if len(arrays) == 2:
        return [(0, 1)]
    shapes = [np.broadcast_to(np.float32(0), a.shape) for a in arrays]
    path, _ = np.einsum_path(f"{','.join(inputs)}->{output}", *shapes, optimize=("greedy", UNLIMITED))
    return list(path[1:])


def _alone(term: Term, needed: set[str], other: Term) -> Term:
    """A term with each letter once: its diagonals, summed over the axes that nothing else has."""
    letters, x = "".join(dict.fromkeys(term[0])), term[1]
    if letters != term[0]:
        x = np.einsum(f"{term[0]}->{letters}", x)
    axes = tuple(i for i, c in enumerate(letters) if c not in needed and c not in other[0])
    if axes:
        x = F.sum(x, axis=axes, keepdims=False)
    return "".join(c for i, c in enumerate(letters) if i not in axes), x


def _product(first: Term, second: Term, needed: set[str]) -> Term:
    """Two terms multiplied, and summed over the axes that only they have."""
    (a_letters, a), (b_letters, b) = first, second
    sizes = dict(zip(a_letters + b_letters, a.shape + b.shape, strict=True))
    both = [c for c in a_letters if c in b_letters]
    shared, inner = [c for c in both if c in needed], [c for c in both if c not in needed]
    left = [c for c in a_letters if c not in both]
    right = [c for c in b_letters if c not in both]
    batch, m, k, n = tuple(sizes[c] for c in shared), *[_size(part, sizes) for part in (left, inner, right)]
    a = a.transpose([a_letters.index(c) for c in (*shared, *left, *inner)]).reshape(*batch, m, k)
    b = b.transpose([b_letters.index(c) for c in (*shared, *inner, *right)]).reshape(*batch, k, n)
    if not inner:
        result = F.mul(a, b)
    elif batch and m == n == 1:
        result = F.sum(F.mul(a[..., 0, :], b[..., 0]), axis=-1, keepdims=False)
    else:
        result = F.matmul(a, b)
    letters = [*shared, *left, *right]
    return "".join(letters), result.reshape([sizes[c] for c in letters])


def _size(letters: list[str], sizes: dict[str, int]) -> int:
    return math.prod(sizes[c] for c in letters)
