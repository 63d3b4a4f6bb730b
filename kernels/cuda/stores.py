"""Stores that ask the cache to give their lines up first: for results that are larger than it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compile import instruction
from .intrinsics import CODES


def _first_out(count: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function ``(pointer, index, *values)`` that writes ``count`` neighbours of 32 bits."""

    def typing(types: Any, pointer: Any, index: Any, *given: Any) -> Any:
        return types.void

    def lowering(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        from llvmlite import ir
        from numba.cuda import types

        kind = signature.args[0].dtype
        index = context.cast(builder, values[1], signature.args[1], types.int64)
        place = builder.gep(values[0], [index])
        # The same address, told to be in global memory.
        place = builder.addrspacecast(place, place.type.pointee.as_pointer(addrspace=1))
        address = builder.ptrtoint(place, ir.IntType(64))
        cast = [
            context.cast(builder, value, given, kind)
            for value, given in zip(values[2:], signature.args[2:], strict=True)
        ]
        code = CODES[str(kind)]
        named = ", ".join(f"${i + 1}" for i in range(count))
        text = f"st.global.cs.v{count}.b32 [$0], {{{named}}};"
        function = ir.FunctionType(ir.VoidType(), [address.type, *(value.type for value in cast)])
        constraints = ",".join(["l", *[code] * count, "~{memory}"])
        builder.call(ir.InlineAsm(function, text, constraints, side_effect=True), [address, *cast])
        return context.get_dummy_value()

    return instruction(typing, lowering)


@_first_out(2)
def store2_first_out(pointer, index, a, b):
    """``store2`` of 32-bit values that nothing reads soon."""
    pointer[index], pointer[index + 1] = a, b


@_first_out(4)
def store4_first_out(pointer, index, a, b, c, d):
    """``store4`` of 32-bit values that nothing reads soon."""
    pointer[index], pointer[index + 1], pointer[index + 2], pointer[index + 3] = a, b, c, d
