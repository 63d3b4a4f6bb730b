"""Subscripts of an einsum: parsed, checked against shapes, and turned into those of its gradients."""

from __future__ import annotations

import string
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from autoq.devices import array_namespace
from autoq.errors import ArgumentError, ShapeError
from autoq.ops.axes import Shape
from autoq.tape.beside import held

_FORM = "letters for the axes of each operand, commas between, '->' and the result's letters: 'ij,jk->ik'"


class Subscripts(NamedTuple):
    """An einsum with a letter for every axis.

    Attributes:
        inputs: The letters of each operand; axes of length 1 that only broadcast have none.
        shapes: The operands' shapes without such axes.
        output: The letters of the result.
        sizes: The length that each letter stands for.
    """

    inputs: tuple[str, ...]
    shapes: tuple[Shape, ...]
    output: str
    sizes: dict[str, int]

    @property
    def spelled(self) -> str:
        """As NumPy takes them.

        Example:
            >>> parse("i...,...", ((2, 3), (3,))).spelled
            'ia,a->ai'
        """
        return ",".join(self.inputs) + "->" + self.output

    def gradient(self, F: Any, g: Any, i: int, arrays: list[Any], shape: Shape) -> Any:
        """The cotangent of operand ``i``: an einsum of the result's with the other operands."""
        own = self.inputs[i]
        others = [(label, a) for k, (label, a) in enumerate(zip(self.inputs, arrays, strict=True)) if k != i]
        reached = set(self.output).union(*[label for label, _ in others])
        operands = [
            a if np.shape(a) == self.shapes[k] else F.reshape(a, shape=self.shapes[k])
            for k, a in enumerate(arrays)
            if k != i
        ]
        labels = [self.output, *[label for label, _ in others]]
        operands = [g, *operands]
        result, free = "", [c for c in string.ascii_letters if c not in self.sizes]
        for place, letter in enumerate(own):
            if letter in own[:place]:  # a diagonal was taken: what is off it gets nothing
                fresh = free.pop()
                labels.append(letter + fresh)
                array = held(g)
                operands.append(array_namespace(array).eye(self.sizes[letter], dtype=g.dtype))
                result += fresh
                reached.add(letter)
            else:
                result += letter
        kept = "".join(c for c in result if c in reached or c not in self.sizes)
        d = F.einsum(operands, subscripts=",".join(labels) + "->" + kept)
        lengths = [self.sizes[c] for c in own]
        open_shape = tuple(n if c in kept else 1 for c, n in zip(result, lengths, strict=True))
        return F.reshape(F.broadcast_to(F.reshape(d, shape=open_shape), shape=tuple(lengths)), shape=shape)


@lru_cache(maxsize=512)
def parse(subscripts: str, shapes: tuple[Shape, ...]) -> Subscripts:
    """Check subscripts against the operands' shapes.

    Raises:
        ArgumentError: Something else than letters, commas, '...' and one '->'; unknown letters in the
            result, or one twice; another number of operands.
        ShapeError: Axes that don't fit the letters.

    Example:
        >>> parse("ij,jk", ((2, 3), (3, 4))).output
        'ik'
    """
    terms, right = _split(subscripts)
    if len(terms) != len(shapes):
        raise ArgumentError(
            f"einsum: {subscripts!r} names {len(terms)} operands, {len(shapes)} are given.",
            "as many of both.",
            "Add or drop an operand.",
        )
    extra = max(_extra(subscripts, term, shape) for term, shape in zip(terms, shapes, strict=True))
    shared = "".join(c for c in string.ascii_letters if c not in subscripts)[:extra]
    spread = [
        term.replace("...", shared[extra - _extra(subscripts, term, shape) :])
        for term, shape in zip(terms, shapes, strict=True)
    ]
    sizes = _sizes(subscripts, spread, shapes, shared)
    output = _output(subscripts, "".join(terms).replace(".", ""), right, shared)
    kept = [
        [(c, n) for c, n in zip(term, shape, strict=True) if n == sizes[c]]
        for term, shape in zip(spread, shapes, strict=True)
    ]
    inputs = tuple("".join(c for c, _ in pairs) for pairs in kept)
    return Subscripts(inputs, tuple(tuple(n for _, n in pairs) for pairs in kept), output, sizes)


def _split(subscripts: str) -> tuple[list[str], str | None]:
    """The operands' terms, and the result's if it is spelled."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    whole = [term.replace("...", "", 1) for term in (*terms, right)]
    if not set("".join(whole)) <= set(string.ascii_letters):
        raise ArgumentError(f"einsum: subscripts {subscripts!r}.", _FORM + ".", "Correct the subscripts.")
    return terms, right if arrow else None


def _extra(subscripts: str, term: str, shape: Shape) -> int:
    """How many axes of an operand its ellipsis stands for."""
    extra = len(shape) - len(term.replace("...", ""))
    if extra < 0 or (extra and "..." not in term):
        raise ShapeError(
            f"einsum: {term!r} of {subscripts!r} for an operand of shape {shape}.",
            "a letter for each axis; '...' stands for any number of them.",
            "Name the missing axes, or drop letters.",
        )
    return extra


def _sizes(subscripts: str, terms: list[str], shapes: tuple[Shape, ...], shared: str) -> dict[str, int]:
    """The length of each letter; axes under an ellipsis broadcast."""
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, n in zip(term, shape, strict=True):
            known = sizes.setdefault(letter, n)
            if known != n and (letter not in shared or 1 not in (known, n)):
                raise ShapeError(
                    f"einsum: {subscripts!r} gives one letter lengths {known} and {n}: operands are "
                    f"{' and '.join(map(str, shapes))}.",
                    "one length for each letter; under '...' lengths that broadcast.",
                    "Transpose or slice an operand.",
                )
            sizes[letter] = n if known == 1 else known
    return sizes


def _output(subscripts: str, named: str, right: str | None, shared: str) -> str:
    """The result's letters: those spelled, or what NumPy makes of it where none are."""
    if right is None:
        return shared + "".join(sorted(c for c in set(named) if named.count(c) == 1))
    letters = right.replace("...", "")
    if len(set(letters)) < len(letters) or not set(letters) <= set(named) or (shared and "..." not in right):
        raise ArgumentError(
            f"einsum: the result {right!r} of {subscripts!r}.",
            "letters of the operands, each once, and '...' if an operand has it.",
            "Correct what follows '->'.",
        )
    return right.replace("...", shared)
