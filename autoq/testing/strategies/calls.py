"""Calls of one operation, drawn from its record's own samples: operands in the domain where it is smooth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from autoq.errors import ArgumentError
from autoq.tape.apply import apply
from autoq.tape.op import REGISTRY, Op
from autoq.tape.tensor import Tensor
from autoq.testing.strategies.numbers import Strategy, lifted

DECIMALS = st.sampled_from([1, 2, 6])


@dataclass(frozen=True, eq=False)
class OpCall:
    """An operation with operands; calling it with others in their place runs it.

    Attributes:
        op: The record.
        operands: Arrays, numbers and None.
        static: The static arguments.
        moving: The places of float arrays that the op has a gradient for.
    """

    op: Op
    operands: tuple[Any, ...]
    static: dict[str, Any]
    moving: tuple[int, ...]

    @property
    def inputs(self) -> list[np.ndarray]:
        """The operands at the moving places."""
        return [self.operands[i] for i in self.moving]

    def __call__(self, *inputs: Any, before: Callable[[Any], Any] = lambda x: x) -> Tensor:
        """Run it with these inputs at the moving places, each passed through ``before``."""
        operands = list(self.operands)
        for i, x in zip(self.moving, inputs, strict=True):
            operands[i] = before(x)
        return apply(self.op, *operands, **self.static)

    def __repr__(self) -> str:
        names = [f"x{i}" for i in range(len(self.operands))]
        listed = [
            n if isinstance(x, np.ndarray) else repr(x) for n, x in zip(names, self.operands, strict=True)
        ]
        listed += [f"{k}={v!r}" for k, v in self.static.items()]
        given = [
            f"{n} = np.{x!r}" for n, x in zip(names, self.operands, strict=True) if isinstance(x, np.ndarray)
        ]
        return f"<{self.op.name}({', '.join(listed)}) where {'; '.join(given)}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis prints it."""
        printer.text(repr(self))


def op_calls(op: Any, decimals: Any = DECIMALS, ranked: Any = False) -> Strategy:
    """Calls of an op: its record's samples with drawn numbers, rounded so that a failure is readable.

    Args:
        op: The record, its name, or a strategy of names.
        decimals: To how many decimals operands are rounded, where that leaves them in their interval.
        ranked: Whether every moving operand has an axis, so that it can be quantized.

    Raises:
        ArgumentError: The record has no samples.

    Example:
        >>> from hypothesis import find
        >>> find(op_calls("matmul"), lambda call: len(call.moving) == 2).op.name
        'matmul'
    """

    @st.composite
    def drawn(draw: Any) -> OpCall:
        named = draw(lifted(op))
        record = REGISTRY[named] if isinstance(named, str) else named
        if record.sample is None:
            raise ArgumentError(
                f"op_calls({record.name!r}), which has no samples.", "records with sample=", "Add sample=."
            )
        calls = _usable(record, draw(st.integers(0, 9999)), ranked)
        index = draw(st.integers(0, len(calls) - 1))
        operands, static, moving = calls[index]
        places = draw(lifted(decimals))
        rounded = [_rounded(x, places) if i in moving else x for i, x in enumerate(operands)]
        return OpCall(record, tuple(rounded), static, moving)

    return drawn()


def _usable(record: Op, seed: int, ranked: bool) -> list[tuple[list[Any], dict[str, Any], tuple[int, ...]]]:
    """The samples of a seed with something to differentiate by."""
    assert record.sample is not None
    found = []
    for operands, static in record.sample(np.random.default_rng(seed)):
        arrays = [np.asarray(x) if isinstance(x, np.generic) else x for x in operands]
        moving = tuple(i for i, x in enumerate(arrays) if _moves(record, i, x))
        if moving and all(arrays[i].size for i in moving) and (not ranked or _ranked(arrays, moving)):
            found.append((arrays, static, moving))
    if not found:
        raise ArgumentError(
            f"op_calls({record.name!r}): no sample with a float array to differentiate by.",
            "differentiable ops",
            "Call the op in a test of its own.",
        )
    return found


def _moves(record: Op, i: int, x: Any) -> bool:
    has_rule = record.differentiable and (record.variadic or record.rules[i] is not None)
    return has_rule and isinstance(x, np.ndarray) and x.dtype.kind == "f"


def _ranked(arrays: Sequence[Any], moving: tuple[int, ...]) -> bool:
    return any(arrays[i].ndim for i in moving)


def _rounded(x: np.ndarray, decimals: int) -> np.ndarray:
    """Rounded, where that makes no two values equal and none leave the interval they span."""
    near = np.round(x, decimals)
    inside = (near >= np.min(x)) & (near <= np.max(x))
    same = np.unique(near).size == np.unique(x).size
    return np.where(inside, near, x) if same else x
