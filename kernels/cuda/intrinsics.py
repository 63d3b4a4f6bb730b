"""Instructions that Numba has no function for, each with the plain Python that it is equal to.

The plain functions run in the simulator; compiled kernels get the instruction. ``assembly`` makes one of
inline PTX, ``load`` and ``store`` move 2, 4 or 8 neighbours at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from .compile import instruction

CODES = {
    **{"float32": "f", "float64": "d", "uint16": "h"},
    **{"uint32": "r", "int32": "r", "uint64": "l", "int64": "l"},
}
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


def _shuffle_type(types: Any, value: Any, distance: Any) -> Any:
    return types.uint32


def _lower_shuffle(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """The compiler's own function: it knows that all threads of a warp must come there together."""
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.cgutils import get_or_insert_function

    word = ir.IntType(32)
    kind = ir.FunctionType(ir.LiteralStructType((word, ir.IntType(1))), (word,) * 5)
    function = get_or_insert_function(builder.module, kind, "llvm.nvvm.shfl.sync.i32")
    value, distance = (
        context.cast(builder, x, given, types.uint32) for x, given in zip(values, signature.args, strict=True)
    )
    all_lanes, butterfly, clamp = ir.Constant(word, -1), ir.Constant(word, 3), ir.Constant(word, 31)
    return builder.extract_value(builder.call(function, (all_lanes, butterfly, value, distance, clamp)), 0)


@instruction(_shuffle_type, _lower_shuffle)
def shuffle_xor(value, distance):
    """The uint32 of the lane whose number differs in the bits of ``distance``, a power of two below 32.

    Every thread of the block takes part.
    """
    cuda = simulated()
    held = cuda.shared.array(1024, np.uint32)
    thread = cuda.threadIdx.x
    cuda.syncthreads()
    held[thread] = value
    cuda.syncthreads()
    return held[thread ^ int(distance)]


def _address(kind: str) -> Callable[[Function], Function]:
    """A function from an address in the device's memory, an int64, to a pointer."""

    def typing(types: Any, address: Any) -> Any:
        return types.CPointer(getattr(types, kind))

    def lowering(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = context.get_value_type(signature.return_type)
        # By way of a pointer to global memory, so that the compiler knows where it points.
        place = builder.inttoptr(values[0], pointer.pointee.as_pointer(addrspace=1))
        return builder.addrspacecast(place, pointer)

    return instruction(typing, lowering)


def _memory(address: int, kind: Any) -> Any:
    """The host's memory from an address on, for the simulator; None at no address."""
    if not address:
        return None
    pointer = ctypes.cast(int(address), ctypes.POINTER(kind))
    return np.ctypeslib.as_array(pointer, shape=(1 << 28,))


@_address("float32")
def floats_at(address):
    """The float32 numbers from an address on."""
    return _memory(address, ctypes.c_float)


@_address("uint16")
def halves_at(address):
    """The bits of the 16-bit numbers from an address on."""
    return _memory(address, ctypes.c_uint16)


@assembly("cvt.f32.f16 $0, $1;", ("float32",), ("uint16",))
def from_half(u):
    """The float32 equal to the float16 with these bits."""
    return np.float32(np.uint16(u).view(np.float16))


@assembly("cvt.rn.f16.f32 $0, $1;", ("uint16",), ("float32",))
def to_half(x):
    """The bits of a float32 rounded to float16, to nearest, ties to even."""
    with np.errstate(over="ignore"):
        return np.float32(x).astype(np.float16).view(np.uint16)


@assembly("cvt.rn.f16.f64 $0, $1;", ("uint16",), ("float64",))
def half_of_double(x):
    """The bits of a float64 rounded to float16 at once, to nearest, ties to even."""
    with np.errstate(over="ignore"):
        return np.float64(x).astype(np.float16).view(np.uint16)


@assembly("{ .reg .b32 t; mov.b32 t, {0, $1}; mov.b32 $0, t; }", ("float32",), ("uint16",))
def from_bfloat(u):
    """The float32 equal to the bfloat16 with these bits."""
    return (np.uint32(u) << np.uint32(16)).view(np.float32)


@assembly("cvt.rn.bf16.f32 $0, $1;", ("uint16",), ("float32",))
def to_bfloat(x):
    """The bits of a float32 rounded to bfloat16, to nearest, ties to even."""
    bits = int(np.float32(x).view(np.uint32))
    if bits & 0x7FFFFFFF > 0x7F800000:
        return np.uint16(0x7FFF)
    return np.uint16((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
