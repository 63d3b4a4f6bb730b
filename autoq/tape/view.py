"""Looking at a recorded tape: a table of its nodes, and what they keep alive (S30)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autoq import devices
from autoq.errors import DTypeError
from autoq.storage import QTensor
from autoq.tape.node import LEAF, Node
from autoq.tape.tensor import Tensor
from autoq.types import TensorType, dtype_name

HEADINGS = ("#", "op", "inputs", "output", "saved")


@dataclass(frozen=True)
class Entry:
    """One line of a tape: a leaf or a recorded op.

    Attributes:
        position: Its number in this view, after its inputs.
        op: The op's name, or ``"leaf"``.
        inputs: The positions of its tracked inputs, in the order of the operands.
        input_types: The tracked inputs' types.
        type: The output's type.
        shape: The output's shape.
        saved: What it keeps for backward: arrays and QTensors.
        note: How a layout op moved packed values: ``"view"``, ``"copy"`` or ``"decode"``.
    """

    position: int
    op: str
    inputs: tuple[int, ...]
    input_types: tuple[TensorType, ...]
    type: TensorType
    shape: tuple[int, ...]
    saved: tuple[Any, ...]
    note: str = ""

    @property
    def saved_bytes(self) -> int:
        """Bytes that it keeps for backward, packed ones as they are packed."""
        return sum(int(value.nbytes) for value in self.saved)


class Tape:
    """The recorded tape of a tensor, in the order of recording.

    Attributes:
        entries: Leaves and ops, each after its inputs.

    Example:
        >>> import autoq as aq
        >>> x = aq.tensor([[0.5] * 32], requires_grad=True)
        >>> print(Tape.of(x.quantize(aq.mxfp8).relu().dequantize().sum()))
        #  op          inputs  output                saved
        0  leaf                float32 (1, 32)
        1  quantize    0       mxfp8 (1, 32)
        2  relu        1       mxfp8 (1, 32)          33 B
        3  dequantize  2       float32 (1, 32)
        4  sum         3       float32 ()
        5 entries, 33 bytes saved for backward
    """

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries

    @classmethod
    def of(cls, tensor: Tensor) -> Tape:
        """The tape that backward of this tensor would walk."""
        if not isinstance(tensor, Tensor):
            raise DTypeError(
                f"Tape.of a {type(tensor).__name__}.", "tensors", "Pass the tensor that the tape ends in."
            )
        items = _in_order(_behind(tensor))
        numbers = {item: i for i, item in enumerate(items)}
        types = {item: item._type if isinstance(item, Tensor) else item.type for item in items}
        return cls(tuple(_entry(item, numbers, types) for item in items))

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Any:
        return iter(self.entries)

    def buffers(self) -> list[Any]:
        """What is kept for backward, each buffer once: arrays and QTensors."""
        found: dict[int, Any] = {}
        for entry in self.entries:
            for value in entry.saved:
                found.setdefault(address(value), value)
        return list(found.values())

    @property
    def saved_bytes(self) -> int:
        """Bytes kept for backward, each buffer counted once."""
        return sum(int(value.nbytes) for value in self.buffers())

    def __str__(self) -> str:
        rows = [HEADINGS, *[_row(entry) for entry in self.entries]]
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join([*lines, f"{len(self)} entries, {self.saved_bytes} bytes saved for backward"])

    __repr__ = __str__

    def svg(self) -> str:
        """The tape as an SVG drawing: leaves on top, an arrow from each input to what was made of it."""
        from autoq.tape.drawing import drawing

        return drawing(self)

    def _repr_svg_(self) -> str:
        return self.svg()


def _behind(tensor: Tensor) -> list[Any]:
    """The nodes and leaves that the tensor depends on, itself included."""
    if tensor._node is None:
        return []
    stack: list[Any] = [tensor if tensor._node is LEAF else tensor._node]
    seen = set(stack)
    for item in stack:
        for parent in item.parents if isinstance(item, Node) else ():
            if parent is not None and parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return stack


def _in_order(items: list[Any]) -> list[Any]:
    """Ops in the order of recording, each leaf just before its first use."""
    nodes = sorted((x for x in items if isinstance(x, Node)), key=lambda node: node.position)
    ordered: dict[Any, None] = {}
    for node in nodes:
        ordered.update(dict.fromkeys(p for p in node.parents if isinstance(p, Tensor)))
        ordered[node] = None
    return list(ordered or items)


def _entry(item: Any, numbers: dict[Any, int], types: dict[Any, TensorType]) -> Entry:
    if isinstance(item, Tensor):
        return Entry(numbers[item], "leaf", (), (), item._type, item.shape, ())
    parents = [p for p in item.parents if p is not None]
    return Entry(
        numbers[item],
        item.op.name,
        tuple(numbers[p] for p in parents),
        tuple(types[p] for p in parents),
        item.type,
        item.shape,
        saved_values(item),
        item.note,
    )


def saved_values(node: Node) -> tuple[Any, ...]:
    """What a node keeps for backward: arrays and QTensors, in the order of its operands."""
    tensors = [x._value for x in node.saved or () if isinstance(x, Tensor)]
    return tuple(tensors) + tuple(
        v for v in node.static.values() if isinstance(v, QTensor) or devices.is_array(v)
    )


def address(value: Any) -> int:
    """Where a buffer starts: views that begin alike count once."""
    array = value.words if isinstance(value, QTensor) else value
    return devices.address(array) if array.size else id(value)


def _row(entry: Entry) -> tuple[str, ...]:
    return (
        str(entry.position),
        entry.op + (f" ({entry.note})" if entry.note else ""),
        " ".join(map(str, entry.inputs)),
        type_name(entry.type) + f" {entry.shape}",
        f"{entry.saved_bytes:,} B" if entry.saved else "",
    )


def type_name(tensor_type: TensorType) -> str:
    """A type in a table: the dtype, and an i where it inhibits."""
    return dtype_name(tensor_type.dtype) + ("" if tensor_type.propagates else " (i)")
