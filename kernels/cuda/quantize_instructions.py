"""Instructions that quantizing uses: atomic maxima, conversions to eight-bit floats, permutations of bytes.

Each has a plain twin for the simulator, as in intrinsics.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compile import instruction
from .intrinsics import assembly, simulated

U = np.uint32
Function = Callable[..., Any]


def _atomic(operation: str) -> Callable[[Function], Function]:
    """A function ``(pointer, index, value)`` that combines a value with one in memory, atomically."""

    def typing(types: Any, pointer: Any, index: Any, value: Any) -> Any:
        return types.void

    def lowering(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        from numba.cuda import types

        pointer, index, value = values
        index = context.cast(builder, index, signature.args[1], types.int64)
        value = context.cast(builder, value, signature.args[2], signature.args[0].dtype)
        builder.atomic_rmw(operation, builder.gep(pointer, [index]), value, "monotonic")
        return context.get_dummy_value()

    return instruction(typing, lowering)


@_atomic("umax")
def atomic_max(pointer, index, value):
    """Make an unsigned integer in memory at least ``value``."""
    simulated().atomic.max(pointer, index, value)


@_atomic("umin")
def atomic_min(pointer, index, value):
    """Make an unsigned integer in memory at most ``value``."""
    simulated().atomic.min(pointer, index, value)


@assembly("max.NaN.f32 $0, $1, $2;", ("float32",), ("float32", "float32"))
def max_nan(a, b):
    """The larger of two float32; NaN where one is."""
    return np.maximum(np.float32(a), np.float32(b))


@assembly("max.NaN.bf16x2 $0, $1, $2;", ("uint32",), ("uint32", "uint32"))
def max_bfloats(a, b):
    """The larger ones of two pairs of bfloat16 that aren't negative; NaN where one is."""
    return np.maximum(_halves(a), _halves(b)).view(U)[0]


@assembly("max.NaN.f16x2 $0, $1, $2;", ("uint32",), ("uint32", "uint32"))
def max_halves(a, b):
    """The larger ones of two pairs of float16 that aren't negative; NaN where one is."""
    return np.maximum(_halves(a), _halves(b)).view(U)[0]


def _halves(u: Any) -> Any:
    # The order of what isn't negative is that of the bits, NaN on top.
    return np.array([u], U).view(np.uint16)


@assembly("add.rm.f32 $0, $1, 0f4B000000;", ("float32",), ("float32",))
def plus_whole(x):
    """2**23 plus the whole number below ``x``, which isn't negative and is below 2**22."""
    return np.float32(np.floor(x) + np.float32(2.0**23))


@assembly("prmt.b32 $0, $1, $2, $3;", ("uint32",), ("uint32", "uint32", "uint32"))
def permute(a, b, selector):
    """Four bytes of the eight in ``a`` (0 to 3) and ``b`` (4 to 7), as the nibbles of ``selector`` say.

    The lowest comes first. A nibble of 8 more takes the byte's sign bit eight times.
    """
    held = int(a) | int(b) << 32
    word = 0
    for place in range(4):
        nibble = int(selector) >> 4 * place & 0xF
        byte = held >> 8 * (nibble & 7) & 0xFF
        word |= (0xFF * (byte >> 7) if nibble & 8 else byte) << 8 * place
    return U(word)


def _four(kind: str) -> str:
    convert = f"cvt.rn.satfinite.{kind}x2.f32"
    return f"{{ .reg .b16 l, h; {convert} l, $2, $1; {convert} h, $4, $3; mov.b32 $0, {{l, h}}; }}"


FLOATS4 = ("float32",) * 4


@assembly(_four("e4m3"), ("uint32",), FLOATS4)
def four_e4m3(a, b, c, d):
    """The E4M3 codes of four numbers in a word, the first lowest: to nearest even, saturated, NaN 0x7F."""
    from ml_dtypes import float8_e4m3fn

    return _codes((a, b, c, d), 448.0, float8_e4m3fn, 0x7F)


@assembly(_four("e5m2"), ("uint32",), FLOATS4)
def four_e5m2(a, b, c, d):
    """The E5M2 codes of four numbers in a word, the first lowest: to nearest even, saturated, NaN 0x7F."""
    from ml_dtypes import float8_e5m2

    return _codes((a, b, c, d), 57344.0, float8_e5m2, 0x7F)


def _codes(values: Any, maximum: float, kind: Any, nan: int) -> Any:
    x = np.array(values, np.float32)
    codes = np.clip(x, -maximum, maximum).astype(kind).view(np.uint8)
    return np.where(np.isnan(x), np.uint8(nan), codes).view(U)[0]


def _loading(hint: str, bound: bool = False) -> Callable[[Function], Function]:
    """A function ``(pointer, index)`` reading four words that nothing writes meanwhile, as the hint says.

    Unless it is ``bound``, it may leave its place among stores and barriers, so that loads of several items
    can be in flight at once.
    """

    def typing(types: Any, pointer: Any, index: Any) -> Any:
        return types.UniTuple(types.uint32, 4)

    def lowering(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        from llvmlite import ir
        from numba.cuda import types

        index = context.cast(builder, values[1], signature.args[1], types.int64)
        word = ir.IntType(32)
        place = builder.ptrtoint(builder.gep(values[0], [index]), ir.IntType(64))
        kind = ir.FunctionType(ir.LiteralStructType((word,) * 4), (ir.IntType(64),))
        text = f"ld.global{hint}.v4.u32 {{$0, $1, $2, $3}}, [$4];"
        constraints = "=r,=r,=r,=r,l" + (",~{memory}" if bound else "")
        found = builder.call(ir.InlineAsm(kind, text, constraints, side_effect=bound), [place])
        parts = [builder.extract_value(found, i) for i in range(4)]
        return context.make_tuple(builder, signature.return_type, parts)

    return instruction(typing, lowering)


@_loading(".nc.L1::no_allocate")
def stream4(pointer, index):
    """Four words of an array that is read once, from an index that is a multiple of 4 on."""
    return pointer[index], pointer[index + 1], pointer[index + 2], pointer[index + 3]


@_loading(".L1::no_allocate.L2::128B", bound=True)
def lines4(pointer, index):
    """Four words of an array that is read once, whose whole line of 128 bytes comes to the second cache."""
    return pointer[index], pointer[index + 1], pointer[index + 2], pointer[index + 3]


@_loading(".L1::no_allocate.L2::256B", bound=True)
def two_lines4(pointer, index):
    """``lines4`` for two lines, 256 bytes."""
    return pointer[index], pointer[index + 1], pointer[index + 2], pointer[index + 3]


@_loading(".nc")
def constant4(pointer, index):
    """Four words of an array that the kernel doesn't write, from an index that is a multiple of 4 on."""
    return pointer[index], pointer[index + 1], pointer[index + 2], pointer[index + 3]


def _down_type(types: Any, value: Any, distance: Any) -> Any:
    return types.uint32


def _lower_down(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.cgutils import get_or_insert_function

    word = ir.IntType(32)
    kind = ir.FunctionType(ir.LiteralStructType((word, ir.IntType(1))), (word,) * 5)
    function = get_or_insert_function(builder.module, kind, "llvm.nvvm.shfl.sync.i32")
    value, distance = (
        context.cast(builder, x, given, types.uint32) for x, given in zip(values, signature.args, strict=True)
    )
    all_lanes, down, clamp = ir.Constant(word, -1), ir.Constant(word, 2), ir.Constant(word, 31)
    return builder.extract_value(builder.call(function, (all_lanes, down, value, distance, clamp)), 0)


@instruction(_down_type, _lower_down)
def shuffle_down(value, distance):
    """The uint32 of the lane ``distance`` further, its own beyond the last. Every thread takes part."""
    cuda = simulated()
    held = cuda.shared.array(1024, np.uint32)
    thread = cuda.threadIdx.x
    cuda.syncthreads()
    held[thread] = value
    cuda.syncthreads()
    return held[thread + int(distance)] if thread % 32 + int(distance) < 32 else value
