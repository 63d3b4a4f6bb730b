"""Nodes of the tape: what was computed from what, and what backward needs of it (S24, S28)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from autoq.types import float32, float64

if TYPE_CHECKING:
    from autoq.tape.op import Op
    from autoq.tape.tensor import Tensor
    from autoq.types import TensorType

_position = itertools.count().__next__


class _Leaf:
    """Stands where a tensor's node would be, on a tensor that asks for a gradient itself."""

    def __repr__(self) -> str:
        return "LEAF"

    def __reduce__(self) -> str:
        return "LEAF"


LEAF: Final = _Leaf()


class Node:
    """One recorded operation.

    Attributes:
        op: The record.
        position: Where on the tape: operands always have smaller positions.
        parents: By operand, the node that made it, the leaf tensor itself, or None (no gradient asked).
        shapes: By operand, its shape.
        dtypes: By operand, the float dtype of its gradient (S23).
        saved: By operand, the tensor or number that a rule reads, else None. None as a whole once freed.
        versions: The saved tensors' version numbers at recording (S29).
        static: The static arguments and residuals.
        compute: The float dtype in which the rules compute.
        type: The output's type.
        shape: The output's shape.
        note: How a layout op moved packed values: ``"view"``, ``"copy"`` or ``"decode"`` (S34-S36).
    """

    __slots__ = (
        "__weakref__",
        "compute",
        "dtypes",
        "note",
        "op",
        "parents",
        "position",
        "saved",
        "shape",
        "shapes",
        "static",
        "type",
        "versions",
    )

    op: Op
    position: int
    parents: tuple[Node | Tensor | None, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]
    saved: tuple[Any, ...] | None
    versions: tuple[int, ...]
    static: dict[str, Any]
    compute: np.dtype[Any]
    type: TensorType
    shape: tuple[int, ...]
    note: str

    def __init__(
        self,
        op: Op,
        operands: tuple[Any, ...],
        static: dict[str, Any],
        compute: np.dtype[Any],
        out_type: TensorType,
        shape: tuple[int, ...],
        note: str = "",
    ) -> None:
        parents, shapes, dtypes = [], [], []
        needs = 0
        for i, x in enumerate(operands):
            node = getattr(x, "_node", None)
            if node is not None:
                needs |= 1 << i
                parents.append(x if node is LEAF else node)
                value = x._value
                shapes.append(value.shape)
                dtypes.append(float32 if x._type.is_quantized else value.dtype)
            else:
                parents.append(None)
                shapes.append(getattr(x, "shape", ()))
                dtypes.append(float32)
        self.op, self.static, self.compute = op, static, compute
        self.parents, self.shapes, self.dtypes = tuple(parents), tuple(shapes), tuple(dtypes)
        reads = reads_of(op, needs)
        self.saved = tuple([x if i in reads else None for i, x in enumerate(operands)])
        self.versions = tuple([x._version[0] if hasattr(x, "_version") else 0 for x in self.saved])
        self.type, self.shape, self.note = out_type, shape, note
        self.position = _position()

    def __repr__(self) -> str:
        return f"<Node {self.position}: {self.op.name} -> {self.type!r} {self.shape}>"

    @property
    def freed(self) -> bool:
        """Whether a backward pass has used up what it had saved."""
        return self.saved is None

    def free(self) -> None:
        """Drop the saved values and the way to the parents' values."""
        self.saved = None


_reads: dict[tuple[Op, int], frozenset[int]] = {}


def reads_of(op: Op, needs: int) -> frozenset[int]:
    """The operands whose values are read by the rules of the operands in the bit set ``needs``."""
    key = (op, needs)
    found = _reads.get(key)
    if found is None:
        rules = op.rules if not op.variadic else op.rules * needs.bit_length()
        found = _reads[key] = frozenset(
            int(read.key)
            for i, rule in enumerate(rules)
            if rule is not None and needs >> i & 1
            for read in rule.reads
            if read.source == "value"
        )
    return found


def compute_dtype(dtypes: Any) -> np.dtype[Any]:
    """Float64 if one of the dtypes is, else float32 (S15)."""
    return float64 if float64 in dtypes else float32
