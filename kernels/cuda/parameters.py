"""Parameters of launches: numbers and addresses, packed where the driver reads them.

The driver copies them before it returns from a launch. Until then no other launch may write to that memory,
be it of another thread: what is free is kept in a list, from which each launch takes what it needs.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import ArgumentError

# The types of numbers that kernels take, and how Python packs them. A pointer is the address.
NUMBERS = {
    "bool_": "?",
    "boolean": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}
POINTER = "Q"


class Room(NamedTuple):
    """Memory for the parameters of one launch.

    Attributes:
        values: The parameters, one after the other.
        address: Of the addresses of all of them, which is what the driver takes.
        held: What must live as long.
    """

    values: bytearray
    address: int
    held: Any


class Parameters:
    """Where the parameters of a kernel lie.

    Args:
        signature: Their types: ``"float32*"``, ``"int64"``.

    Attributes:
        pack: ``pack(values, 0, *parameters)``: writes them, arrays as the address of their first element.
        offsets: Of each, in bytes; each lies at a multiple of its size, as in C.
        size: Bytes of all.
        pointers: Which of them are pointers.
        free: Memory that no launch is using.

    Raises:
        ArgumentError: A type that kernels don't take.

    Example:
        >>> Parameters(("float32*", "float32", "int64")).offsets
        (0, 8, 16)
    """

    def __init__(self, signature: Sequence[str]) -> None:
        codes = [_code(kind) for kind in signature]
        layout = struct.Struct("@" + "".join(codes))
        self.pack, self.size = layout.pack_into, layout.size
        ends = [struct.calcsize("@" + "".join(codes[: i + 1])) for i in range(len(codes))]
        self.offsets = tuple([end - struct.calcsize(code) for end, code in zip(ends, codes, strict=True)])
        self.pointers = tuple([i for i, kind in enumerate(signature) if kind.endswith("*")])
        self.free: list[Room] = []

    def room(self) -> Room:
        """New memory for one launch."""
        values = bytearray(max(self.size, 1))
        first = ctypes.c_char.from_buffer(values)  # as long as it lives, the bytes stay where they are
        start = ctypes.addressof(first)
        addresses = (ctypes.c_void_p * max(len(self.offsets), 1))(*[start + at for at in self.offsets])
        return Room(values, ctypes.addressof(addresses), (first, addresses))


def _code(kind: str) -> str:
    if kind.endswith("*"):
        return POINTER
    if kind in NUMBERS:
        return NUMBERS[kind]
    raise ArgumentError(
        f"a kernel's parameter of type {kind!r}.",
        f"pointers as 'float32*', and {', '.join(NUMBERS)}",
        "Pass another number as one of these, and read an array through a pointer.",
    )


def misfit(source: Any, given: Sequence[Any]) -> ArgumentError:
    """The error for arguments that a kernel can't take: too many, too few, or the first of another kind."""
    kinds, name = source.signature, source.name
    allowed = f"{len(kinds)} arguments: {', '.join(kinds) or 'none'}"
    remedy = "Pass device arrays or None for pointers, and numbers in the range of their types."
    if len(given) != len(kinds):
        return ArgumentError(f"{name}: launched with {len(given)} arguments.", allowed, remedy)
    at = next((i for i, (kind, x) in enumerate(zip(kinds, given, strict=True)) if not _fits(kind, x)), 0)
    found = repr(given[at]) if isinstance(given[at], int | float) else f"a {type(given[at]).__name__}"
    return ArgumentError(f"{name}: argument {at}, of type {kinds[at]}, is {found}.", allowed, remedy)


def _fits(kind: str, x: Any) -> bool:
    """Whether a parameter of a type can be an argument, or for pointers an address."""
    if kind.endswith("*") and (x is None or hasattr(getattr(x, "data", None), "ptr")):
        return True
    try:
        struct.pack(f"@{_code(kind)}", x)
    except (struct.error, TypeError):
        return False
    return True
