"""The table of layout ops: every case is run on every kind of block, and what it took is measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import autoq as aq
from autoq.context import Observer, observing
from autoq.storage import QTensor

GRADES = {"view": "metadata", "copy": "block copy", "decode": "decode–encode"}
SHAPE = (4, 64, 128)


class Case(NamedTuple):
    """One row.

    Attributes:
        op: The op.
        what: What of it.
        action: From a packed tensor to the result.
        shape: Of the packed tensor.
    """

    op: str
    what: str
    action: Callable[[Any], Any]
    shape: tuple[int, ...] = SHAPE


# A kind of block -> the scheme, and whether the tensor is seen through a transpose of its last two axes.
KINDS: dict[str, tuple[aq.QuantScheme, bool]] = {
    "32 along the last axis": (aq.mxfp8, False),
    "32 along axis -2 (a transposed view)": (aq.mxfp8, True),
    "16 along the last axis, two levels": (aq.nvfp4, False),
    "32 × 32 tiles": (aq.mxfp8_2d, False),
    "16 × 16 tiles, two levels": (aq.nvfp4_2d, False),
    "whole tensor, 8 bits": (aq.fp8_e4m3, False),
    "whole tensor, 4 bits": (aq.int4.replace(block=None), False),
}
RAGGED = (4, 60, 72)  # the last block of a line is partial
ROWS, MASK = np.array([3, 0, 0]), np.array([True, False, True, True])


def other(q: Any) -> Any:
    """A tensor like ``q`` of other values, hence of another scale of the whole tensor."""
    if q.qtensor.layout.is_identity:
        return values(q.shape, 1).quantize(q.dtype)
    return values(q.mT.shape, 1).quantize(q.dtype).mT


CASES = [
    Case("permute_dims", "any order", lambda q: aq.permute_dims(q, (2, 0, 1))),
    Case("transpose", "all axes", lambda q: q.T),
    Case("matrix_transpose", "last two axes", lambda q: q.mT),
    Case("expand_dims", "in front", lambda q: aq.expand_dims(q, 0)),
    Case("expand_dims", "at the end", lambda q: aq.expand_dims(q, -1)),
    Case("squeeze", "a leading axis of 1", lambda q: aq.squeeze(q, 0), (1, 64, 128)),
    Case("reshape", "(4, 64, 128) to (256, 128): leading axes merge", lambda q: q.reshape(256, 128)),
    Case("reshape", "(4, 64, 128) to (2, 2, 64, 128): a leading axis splits",
         lambda q: q.reshape(2, 2, 64, 128)),
    Case("reshape", "(4, 64, 128) to (4, 64, 4, 32): the last splits at blocks",
         lambda q: q.reshape(4, 64, 4, 32)),
    Case("reshape", "(4, 64, 128) to (4, 64, 16, 8): the last splits inside blocks",
         lambda q: q.reshape(4, 64, 16, 8)),
    Case("reshape", "(4, 64, 128) to (4, 8192): the last two merge", lambda q: q.reshape(4, -1)),
    Case("reshape", "(4, 60, 72) to (4, 4320): lines with a partial block merge",
         lambda q: q.reshape(4, -1), RAGGED),
    Case("reshape", "(4, 60, 72) to (4, 60, 8, 9): a line with a partial block splits",
         lambda q: q.reshape(4, 60, 8, 9), RAGGED),
    Case("broadcast_to", "a new axis", lambda q: aq.broadcast_to(q, (3, *q.shape))),
    Case("broadcast_to", "a leading axis of 1", lambda q: aq.broadcast_to(q, (5, 64, 128)), (1, 64, 128)),
    Case("broadcast_to", "axis -2 of 1", lambda q: aq.broadcast_to(q, (4, 64, 128)), (4, 1, 128)),
    Case("broadcast_to", "a last axis of 1", lambda q: aq.broadcast_to(q, (4, 64, 128)), (4, 64, 1)),
    Case("getitem", "`q[1]`", lambda q: q[1]),
    Case("getitem", "`q[::-2]`", lambda q: q[::-2]),
    Case("getitem", "`q[:, 32:64]`", lambda q: q[:, 32:64]),
    Case("getitem", "`q[:, 5:]`", lambda q: q[:, 5:]),
    Case("getitem", "`q[:, ::2]`", lambda q: q[:, ::2]),
    Case("getitem", "`q[:, 3]`", lambda q: q[:, 3]),
    Case("getitem", "`q[..., 32:96]`: block to block", lambda q: q[..., 32:96]),
    Case("getitem", "`q[..., 64:]`: to the axis' end, partial", lambda q: q[..., 64:], RAGGED),
    Case("getitem", "`q[..., 32:44]`: ends inside a block", lambda q: q[..., 32:44]),
    Case("getitem", "`q[..., 32:33]`: ends off a word", lambda q: q[..., 32:33]),
    Case("getitem", "`q[..., 20:60]`: starts inside a block", lambda q: q[..., 20:60]),
    Case("getitem", "`q[..., ::2]`", lambda q: q[..., ::2]),
    Case("getitem", "`q[..., 7]`", lambda q: q[..., 7]),
    Case("getitem", "`q[None, ..., None]`", lambda q: q[None, ..., None]),
    Case("getitem", "`q[[3, 0, 0]]`", lambda q: q[ROWS]),
    Case("getitem", "`q[mask]`: rows", lambda q: q[MASK]),
    Case("getitem", "`q[[3, 0], [1, 5]]`: lines by two arrays",
         lambda q: q[np.array([3, 0]), np.array([1, 5])]),
    Case("take", "the leading axis", lambda q: aq.take(q, ROWS, 0)),
    Case("take", "axis -2", lambda q: aq.take(q, ROWS, 1)),
    Case("take", "the last axis, a whole block", lambda q: aq.take(q, np.arange(64, 96), -1)),
    Case("take", "the last axis, here and there", lambda q: aq.take(q, np.array([3, 40]), -1)),
    Case("flip", "the leading axis", lambda q: aq.flip(q, 0)),
    Case("flip", "axis -2", lambda q: aq.flip(q, 1)),
    Case("flip", "the last axis", lambda q: aq.flip(q, -1)),
    Case("flip", "the last axis, over a partial block", lambda q: aq.flip(q, -1), RAGGED),
    Case("split", "the leading axis in two", lambda q: aq.split(q, 2)[1]),
    Case("split", "the last axis in four", lambda q: aq.split(q, 4, -1)[1]),
    Case("concat", "the leading axis, one scale", lambda q: aq.concat([q, q[:2]])),
    Case("concat", "axis -2, one scale", lambda q: aq.concat([q, q], 1)),
    Case("concat", "the last axis, one scale", lambda q: aq.concat([q, q], -1)),
    Case("concat", "the last axis after a partial block", lambda q: aq.concat([q, q], -1), RAGGED),
    Case("concat", "tensors calibrated apart", lambda q: aq.concat([q, other(q)])),
    Case("stack", "a new leading axis, one scale", lambda q: aq.stack([q, q])),
    Case("stack", "a new last axis, one scale", lambda q: aq.stack([q, q], -1)),
    Case("pad", "the leading axis", lambda q: aq.pad(q, ((1, 2), (0, 0), (0, 0)))),
    Case("pad", "whole blocks before and some zeros after the last axis",
         lambda q: aq.pad(q, ((0, 0), (0, 0), (32, 5)))),
    Case("pad", "less than a block before the last axis", lambda q: aq.pad(q, ((0, 0), (0, 0), (3, 0)))),
    Case("repeat", "the leading axis", lambda q: aq.repeat(q, 2, 0)),
    Case("repeat", "the last axis, 32 times", lambda q: aq.repeat(q, 32, -1)),
    Case("tile", "the leading axis", lambda q: aq.tile(q, (2, 1, 1))),
    Case("tile", "the last axis", lambda q: aq.tile(q, 2)),
    Case("tile", "the last axis, with a partial block", lambda q: aq.tile(q, 2), RAGGED),
    Case("roll", "the leading axis", lambda q: aq.roll(q, 1, 0)),
    Case("roll", "the last axis by whole blocks", lambda q: aq.roll(q, 32, -1)),
    Case("roll", "the last axis by one", lambda q: aq.roll(q, 1, -1)),
    Case("diagonal", "of the last two axes", lambda q: aq.diagonal(q)),
    Case("diagonal", "of the leading two axes", lambda q: aq.diagonal(q, 1, 0, 1)),
    Case("embedding", "rows by an array of positions", lambda q: aq.embedding(q, ROWS)),
    Case("contiguous", "of a contiguous tensor", lambda q: q.qtensor.contiguous()),
    Case("contiguous", "of every other matrix", lambda q: q[::2].qtensor.contiguous()),
]  # fmt: skip


def values(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Normal values, the largest of them in the first place so that parts have scales of their own."""
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    x.reshape(-1)[0] = 8.0 + seed
    return aq.tensor(x)


def source(kind: str, shape: tuple[int, ...] = SHAPE) -> Any:
    """A packed tensor of that shape with blocks of that kind."""
    scheme, transposed = KINDS[kind]
    if not transposed:
        return values(shape).quantize(scheme)
    return values((*shape[:-2], shape[-1], shape[-2])).quantize(scheme).mT


class Count(Observer):
    """Counts decoded values."""

    def __init__(self) -> None:
        self.decoded = 0

    def launched(self, kernel: str, values: int) -> None:
        self.decoded += values * kernel.startswith("dequantize")


def grade(case: Case, kind: str) -> str:
    """What a case takes, measured: nothing but metadata, a copy of codes and scales, or decoding."""
    q = source(kind, case.shape)
    with observing(Count()) as count:
        result = case.action(q)
    if count.decoded:  # type: ignore[attr-defined]
        return "decode"
    packed = result if isinstance(result, QTensor) else result.qtensor
    return "view" if packed.shares_memory(q.qtensor) else "copy"


PAGE = Path(__file__).parent / "concepts" / "layout_table.md"
TEXT = """# What a layout operation takes

Written by `docs/layout_table.py`, which runs every case and measures it.

*metadata*
: The result is a view: it shares memory with its source, nothing is launched, every bit stays.

*block copy*
: Codes and scales move as they are. Nothing is decoded, every value stays.

*decode–encode*
: Blocks are cut. The values are decoded, moved, and encoded again with blocks along the last axis, which may
  round them. The tape and [`aq.explain`](explain.md) show it.

The tensors are of shape (4, 64, 128) unless the case says otherwise. What decides is where blocks are cut,
and where a line, the innermost axis as it is stored, leaves 32-bit words. A tensor that is one block has no
blocks to cut: only words count.

"""


def layout_page() -> str:
    """The page as Markdown."""
    header = ["op", "case", *KINDS]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for case in CASES:
        cells = [f"`{case.op}`", case.what, *(GRADES[grade(case, kind)] for kind in KINDS)]
        lines.append("| " + " | ".join(cells) + " |")
    return TEXT + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(layout_page())
