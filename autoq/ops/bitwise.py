"""Operations on the bits of integers and on truth values: integers or bools out, no gradient (S16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autoq.devices import is_array
from autoq.errors import ArgumentError, DTypeError
from autoq.ops.docs import documented
from autoq.ops.samples import PAIRS, Case
from autoq.tape.op import Op, register

_REASON = "it works on integers"


def _of_whole(name: str, ufunc: np.ufunc, bools: bool) -> Callable[..., Any]:
    """The ufunc for operands that are whole numbers or, if ``bools``, truth values."""

    def forward(*operands: Any) -> Any:
        for x in operands:
            dtype = x.dtype if is_array(x) else np.asarray(x).dtype
            if dtype.kind not in ("iub" if bools else "iu"):
                raise DTypeError(
                    f"{name} of {dtype.name} values.",
                    "integers or bools." if bools else "integers.",
                    "Cast the operand with astype, or compare it first.",
                )
        if not bools and not is_array(operands[1]) and operands[1] < 0:
            raise ArgumentError(f"{name} by {operands[1]}.", "0 or more places.", "Shift the other way.")
        return ufunc(*operands)

    return forward


def _integers(rng: np.random.Generator) -> list[Case]:
    return [((rng.integers(0, 9, first), rng.integers(0, 5, second)), {}) for first, second in PAIRS]


_BINARY: tuple[tuple[str, np.ufunc, bool, str, str, str], ...] = (
    (
        "bitwise_and",
        np.bitwise_and,
        True,
        "The bits that a and b have in common; of bools, whether both are true.",
        "aq.bitwise_and([6, 5], 3)",
        "tensor([2 1], int64)",
    ),
    (
        "bitwise_or",
        np.bitwise_or,
        True,
        "The bits that a or b has; of bools, whether one is true.",
        "aq.bitwise_or([6, 5], 3)",
        "tensor([7 7], int64)",
    ),
    (
        "bitwise_xor",
        np.bitwise_xor,
        True,
        "The bits that differ between a and b; of bools, whether they differ.",
        "aq.bitwise_xor([6, 5], 3)",
        "tensor([5 6], int64)",
    ),
    (
        "bitwise_left_shift",
        np.left_shift,
        False,
        "a with its bits moved up by b places.",
        "aq.bitwise_left_shift([1, 3], 2)",
        "tensor([ 4 12], int64)",
    ),
    (
        "bitwise_right_shift",
        np.right_shift,
        False,
        "a with its bits moved down by b places; the sign stays.",
        "aq.bitwise_right_shift([8, -8], 2)",
        "tensor([ 2 -2], int64)",
    ),
)

for _name, _ufunc, _bools, *_doc in _BINARY:
    register(
        Op(
            _name,
            _of_whole(_name, _ufunc, _bools),
            _REASON,
            kind="index",
            elementwise=True,
            operands=("a", "b"),
            sample=_integers,
            doc=documented(("a", "b"), *_doc),
        )
    )
register(
    Op(
        "bitwise_invert",
        _of_whole("bitwise_invert", np.invert, True),
        _REASON,
        kind="index",
        elementwise=True,
        operands=("x",),
        sample=lambda rng: [((rng.integers(-9, 9, (3, 4)),), {})],
        doc=documented(
            ("x",),
            "x with every bit changed, -x - 1; of bools, whether x is false.",
            "aq.bitwise_invert([6, -1])",
            "tensor([-7 0], int64)",
        ),
    )
)
