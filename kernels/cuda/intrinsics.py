"""Instructions that Numba has no function for, each with the plain Python that it is equal to.

The plain functions run in the simulator; compiled kernels get the instruction. ``assembly`` makes one of
inline PTX, ``load`` and ``store`` move 2, 4 or 8 neighbours at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compile import instruction

CODES = {"float32": "f", "uint32": "r", "int32": "r", "uint16": "h", "uint64": "l", "int64": "l"}
Function = Callable[..., Any]


def assembly(
    text: str, results: tuple[str, ...], arguments: tuple[str, ...]
) -> Callable[[Function], Function]:
    """Mark a function as one PTX text: ``$0…`` are its results, then its arguments.

    Args:
        text: PTX, instructions separated by ``;``.
        results: Types of the results; several are a tuple.
        arguments: Types that the arguments are converted to.
    """

    def typing(types: Any, *given: Any) -> Any:
        kinds = [getattr(types, name) for name in results]
        if len(kinds) == 1:
            return kinds[0]
        return types.UniTuple(kinds[0], len(kinds)) if len(set(kinds)) == 1 else types.Tuple(kinds)

    def lowering(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        from llvmlite import ir
        from numba.cuda import types

        wanted = [getattr(types, name) for name in arguments]
        cast = [
            context.cast(builder, value, given, want)
            for value, given, want in zip(values, signature.args, wanted, strict=True)
        ]
        kinds = [context.get_value_type(getattr(types, name)) for name in results]
        returned = kinds[0] if len(kinds) == 1 else ir.LiteralStructType(kinds)
        constraints = ",".join(["=" + CODES[name] for name in results] + [CODES[name] for name in arguments])
        function = ir.FunctionType(returned, [value.type for value in cast])
        value = builder.call(ir.InlineAsm(function, text, constraints), cast)
        if len(kinds) == 1:
            return value
        parts = [builder.extract_value(value, i) for i in range(len(kinds))]
        return context.make_tuple(builder, signature.return_type, parts)

    return instruction(typing, lowering)


def _loading(count: int) -> Callable[[Function], Function]:
    """A function ``(pointer, index)`` that reads ``count`` neighbours, whose first is aligned to all."""

    def typing(types: Any, pointer: Any, index: Any) -> Any:
        return types.UniTuple(pointer.dtype, count)

    def lowering(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place, size = _place(context, builder, signature, values, count)
        whole = builder.load(place, align=size)
        from llvmlite import ir

        parts = [builder.extract_element(whole, ir.Constant(ir.IntType(32), i)) for i in range(count)]
        return context.make_tuple(builder, signature.return_type, parts)

    return instruction(typing, lowering)


def _storing(count: int) -> Callable[[Function], Function]:
    """A function ``(pointer, index, *values)`` that writes ``count`` neighbours."""

    def typing(types: Any, pointer: Any, index: Any, *given: Any) -> Any:
        return types.void

    def lowering(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        from llvmlite import ir

        place, size = _place(context, builder, signature, values, count)
        whole = ir.Constant(place.type.pointee, ir.Undefined)
        for i, (value, given) in enumerate(zip(values[2:], signature.args[2:], strict=True)):
            cast = context.cast(builder, value, given, signature.args[0].dtype)
            whole = builder.insert_element(whole, cast, ir.Constant(ir.IntType(32), i))
        builder.store(whole, place, align=size)
        return context.get_dummy_value()

    return instruction(typing, lowering)


def _place(context: Any, builder: Any, signature: Any, values: Any, count: int) -> tuple[Any, int]:
    """The address of ``count`` neighbours as a pointer to a vector, and their size in bytes."""
    from llvmlite import ir
    from numba.cuda import types

    index = context.cast(builder, values[1], signature.args[1], types.int64)
    element = context.get_value_type(signature.args[0].dtype)
    size = context.get_abi_sizeof(element) * count
    place = builder.gep(values[0], [index])
    return builder.bitcast(place, ir.VectorType(element, count).as_pointer()), size


@_loading(2)
def load2(pointer, index):
    """Two neighbours from ``index`` on, which is a multiple of 2."""
    return pointer[index], pointer[index + 1]


@_loading(4)
def load4(pointer, index):
    """Four neighbours from ``index`` on, which is a multiple of 4."""
    return pointer[index], pointer[index + 1], pointer[index + 2], pointer[index + 3]


@_storing(2)
def store2(pointer, index, a, b):
    """Write two neighbours; ``index`` is a multiple of 2."""
    pointer[index], pointer[index + 1] = a, b


@_storing(4)
def store4(pointer, index, a, b, c, d):
    """Write four neighbours; ``index`` is a multiple of 4."""
    pointer[index], pointer[index + 1], pointer[index + 2], pointer[index + 3] = a, b, c, d


def simulated() -> Any:
    """``numba.cuda`` as the running simulated kernel sees it: what twins need of threads and blocks."""
    from numba.cuda.simulator.kernel import _get_kernel_context

    return _get_kernel_context()
