"""Nodes of the tape: what was computed from what, and what backward needs of it (S24, S28)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from autoq.types import float32, float64

if TYPE_CHECKING:
    from autoq.schemes import QuantScheme
    from autoq.tape.hooks import Hooks
    from autoq.tape.op import Op
    from autoq.tape.tensor import Tensor
    from autoq.types import TensorType

next_position = itertools.count().__next__


class _Leaf:
    """Stands where a tensor's node would be, on a tensor that asks for a gradient itself."""

    def __repr__(self) -> str:
        return "LEAF"

    def __reduce__(self) -> str:
        return "LEAF"


LEAF: Final = _Leaf()
_NEW: Final = (0,)  # the version of a tensor that was just made
NUMBERS: Final = frozenset({float, int, bool, type(None)})


class Node:
    """One recorded operation.

    Attributes:
        op: The record.
        position: Where on the tape: operands always have smaller positions.
        parents: By operand, the node that made it, the leaf tensor itself, or None (no gradient asked).
        shapes: By operand, its shape.
        dtypes: By operand, the float dtype of its gradient (S23).
        saved: By operand, the tensor or number that a rule reads, else None; empty if no rule reads any.
            None as a whole once freed.
        versions: The saved tensors' version numbers at recording (S29).
        static: The static arguments and residuals.
        compute: The float dtype in which the rules compute.
        type: The output's type.
        shape: The output's shape.
        note: How a layout op moved packed values: ``"view"``, ``"copy"`` or ``"decode"`` (S34-S36).
        hooks: What is called with the output's gradient, or None.
    """

    __slots__ = (
        "__weakref__",
        "compute",
        "dtypes",
        "hooks",
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
    parents: list[Node | Tensor | None]
    shapes: list[tuple[int, ...]]
    dtypes: list[np.dtype[Any]]
    saved: tuple[Any, ...] | None
    versions: Sequence[int]
    static: dict[str, Any]
    compute: np.dtype[Any]
    type: TensorType
    shape: tuple[int, ...]
    note: str
    hooks: Hooks | None

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
        parents: list[Any] = []
        shapes: list[tuple[int, ...]] = []
        dtypes: list[np.dtype[Any]] = []
        needs, bit = 0, 1
        for x in operands:
            node = None if x.__class__ in NUMBERS else x._node
            if node is None:
                parents.append(None)
                shapes.append(getattr(x, "shape", ()))
                dtypes.append(float32)
            else:
                needs |= bit
                parents.append(x if node is LEAF else node)
                shapes.append(x._value.shape)
                dtypes.append(x._type.gradient)
            bit <<= 1
        self.op, self.static, self.compute = op, static, compute
        self.parents, self.shapes, self.dtypes = parents, shapes, dtypes
        reads = op.reads.get(needs)
        if reads is None:
            reads = op.reads_of(needs)
        if reads:
            if len(reads) >= len(operands):
                self.saved = operands
            else:
                self.saved = tuple([x if i in reads else None for i, x in enumerate(operands)])
            self.versions = versions = []
            for x in self.saved:
                versions.append(0 if x.__class__ in NUMBERS else x._version[0])
        else:
            self.saved, self.versions = (), ()
        self.type, self.shape, self.note = out_type, shape, note
        self.hooks = None
        self.position = next_position()

    def __repr__(self) -> str:
        return f"<Node {self.position}: {self.op.name} -> {self.type!r} {self.shape}>"

    def keep_output(self, out: Tensor) -> None:
        """Save the output in place of the operand, where it shows the sign, all that the rule reads."""
        value = out._value
        if self.saved and sign_shows(self.saved[0]._value, value):
            kept = out.__class__(value, out._type)
            kept._version = out._version
            self.saved, self.versions = (kept,), _NEW

    @property
    def freed(self) -> bool:
        """Whether a backward pass has used up what it had saved."""
        return self.saved is None

    def free(self) -> None:
        """Drop the saved values and the way to the parents' values."""
        self.saved = None


def sign_shows(x: Any, y: Any) -> bool:
    """Whether ``y``, the stored ``max(x, 0)``, is above zero exactly where ``x`` is.

    Dense values of one dtype are. Of packed ones it takes equal blocks, and a scheme whose positive codes
    stay so when the block's others become 0. A block that became NaN shows nothing.

    Example:
        >>> sign_shows(np.zeros(2, np.float32), np.zeros(2, np.float32))
        True
    """
    scheme = getattr(y, "scheme", None)
    if scheme is None:
        return bool(x.dtype == y.dtype)
    found = getattr(x, "scheme", None)
    return (found is scheme or found == scheme) and x.layout is y.layout and keeps_signs(scheme)


@lru_cache(maxsize=1024)
def keeps_signs(scheme: QuantScheme) -> bool:
    """Whether codes above zero, and only they, are that still when they are encoded beside zeros.

    They are where there is a code for 0 and scales are powers of two that don't grow. A larger scale, which
    small codes don't outlive, could come of the rule ``"ceil"``, of ``"round_up"`` with more room above zero
    than below, and of ``"even"`` where the largest code is rounded up to a power of two, as it is beside
    float32's smallest normal number where it is below 2.

    Example:
        >>> import autoq as aq
        >>> keeps_signs(aq.mxfp8), keeps_signs(aq.nvfp4)
        (True, False)
    """
    element = scheme.element_format
    if scheme.scale != "ue8m0" or scheme.calibration != "abs_max" or 0 not in element.values:
        return False
    largest, exponent = element.maximum, element.maximum_exponent
    if scheme.scale_rule == "round_up":
        return largest <= element.half_range
    if scheme.scale_rule == "even":
        return exponent > 0 and largest <= 2.0**exponent * (2 - 2.0**-element.precision_bits)
    return scheme.scale_rule == "floor"


def compute_dtype(dtypes: Any) -> np.dtype[Any]:
    """Float64 if one of the dtypes is, else float32 (S15)."""
    for dtype in dtypes:
        # Not "in": compared with a scheme, NumPy makes the text of one for an error that nobody sees.
        if dtype is float32:
            continue
        if dtype is float64 or (isinstance(dtype, np.dtype) and dtype == float64):
            return float64
    return float32
