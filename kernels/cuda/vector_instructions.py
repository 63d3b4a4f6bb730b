"""Instructions of the vector product: tensor cores, pairs of bfloat16, and 16 bytes of shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compile import instruction
from .intrinsics import assembly, simulated

LANES, DEPTH = 32, 16


@assembly(
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9},"
    " {$10, $11, $12, $13};",
    ("float32",) * 4,
    ("uint32",) * 6 + ("float32",) * 4,
)
def multiply_tile(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
    """A warp's product of 16 x 16 and 16 x 8 bfloat16, added to 16 x 8 float32; pairs in one uint32.

    Lane ``4 g + t`` holds of the left matrix rows g and g + 8 at places 2 t, 2 t + 1 (``a0``, ``a1``) and
    8 further (``a2``, ``a3``), of the right one column g at the same places (``b0``, ``b1``), of the sums
    rows g and g + 8 in columns 2 t and 2 t + 1.
    """
    cuda = simulated()
    held = cuda.shared.array((1024, 6), np.uint32)
    thread = cuda.threadIdx.x
    cuda.syncthreads()
    held[thread] = (a0, a1, a2, a3, b0, b1)
    cuda.syncthreads()
    lane = thread % LANES
    warp = held[thread - lane : thread - lane + LANES].reshape(8, 4, 6)
    g, t = lane // 4, lane % 4
    left = np.stack([_places(warp[g, :, [0, 2]]), _places(warp[g, :, [1, 3]])])
    right = np.stack([_places(warp[2 * t, :, [4, 5]]), _places(warp[2 * t + 1, :, [4, 5]])])
    with np.errstate(all="ignore"):
        found = left.astype(np.float64) @ right.astype(np.float64).T + np.array([[c0, c1], [c2, c3]])
        return tuple(found.reshape(4).astype(np.float32))


def _places(pairs: Any) -> Any:
    """The 16 values of four lanes' words (2, 4), in order of their places."""
    low = (pairs << np.uint32(16)).view(np.float32)
    high = (pairs & np.uint32(0xFFFF0000)).view(np.float32)
    return np.stack([low, high], axis=-1).reshape(DEPTH)


@assembly("fma.rn.bf16x2 $0, $1, $2, $3;", ("uint32",), ("uint32", "uint32", "uint32"))
def fused_bfloats(u, v, w):
    """``u * v + w`` of two pairs of bfloat16, rounded once."""
    a, b, c = (_pair(x) for x in (u, v, w))
    with np.errstate(all="ignore"):
        return _joined(a * b + c)


def _pair(u: Any) -> Any:
    return (
        np.array([int(u) << 16 & 0xFFFF0000, int(u) & 0xFFFF0000], np.uint32).view(np.float32).astype(float)
    )


def _joined(values: Any) -> Any:
    import ml_dtypes

    return values.astype(ml_dtypes.bfloat16).view(np.uint32)[0]


def _shared_place(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """The address of four neighbours of an array in shared memory, as a pointer to a vector."""
    from llvmlite import ir
    from numba.cuda import types

    array = context.make_array(signature.args[0])(context, builder, values[0])
    index = context.cast(builder, values[1], signature.args[1], types.int64)
    place = builder.gep(array.data, [index])
    return builder.bitcast(place, ir.VectorType(ir.IntType(32), 4).as_pointer(place.type.addrspace))


def _type_shared_load(types: Any, array: Any, index: Any) -> Any:
    return types.UniTuple(types.uint32, 4)


def _lower_shared_load(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    from llvmlite import ir

    whole = builder.load(_shared_place(context, builder, signature, values), align=16)
    parts = [builder.extract_element(whole, ir.Constant(ir.IntType(32), i)) for i in range(4)]
    return context.make_tuple(builder, signature.return_type, parts)


@instruction(_type_shared_load, _lower_shared_load)
def shared_load4(array, index):
    """Four neighbours of a uint32 array in shared memory, from a multiple of 4 on."""
    return array[index], array[index + 1], array[index + 2], array[index + 3]


def _type_shared_store(types: Any, array: Any, index: Any, *given: Any) -> Any:
    return types.void


def _lower_shared_store(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    from llvmlite import ir
    from numba.cuda import types

    place = _shared_place(context, builder, signature, values)
    whole = ir.Constant(ir.VectorType(ir.IntType(32), 4), ir.Undefined)
    for i, (value, given) in enumerate(zip(values[2:], signature.args[2:], strict=True)):
        cast = context.cast(builder, value, given, types.uint32)
        whole = builder.insert_element(whole, cast, ir.Constant(ir.IntType(32), i))
    builder.store(whole, place, align=16)
    return context.get_dummy_value()


@instruction(_type_shared_store, _lower_shared_store)
def shared_store4(array, index, a, b, c, d):
    """Write four neighbours of a uint32 array in shared memory, from a multiple of 4 on."""
    array[index], array[index + 1], array[index + 2], array[index + 3] = a, b, c, d


def _type_begin(types: Any) -> Any:
    return types.void


def _lower_begin(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    from llvmlite import ir

    function = ir.FunctionType(ir.VoidType(), [])
    builder.call(ir.InlineAsm(function, "bar.warp.sync -1;", "~{memory}", side_effect=True), [])
    return context.get_dummy_value()


@instruction(_type_begin, _lower_begin)
def begin_loads():
    """Loads above stay above: they are on their way while what is below is worked out. For whole warps."""


def _type_thread(types: Any) -> Any:
    return types.int32


def _lower_thread(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    from llvmlite import ir

    function = ir.FunctionType(ir.IntType(32), [])
    return builder.call(ir.InlineAsm(function, "mov.u32 $0, %tid.x;", "=r", side_effect=True), [])


@instruction(_type_thread, _lower_thread)
def thread_again():
    """The thread's number, read anew: what follows from it isn't kept in registers from the last time on."""
    return np.int32(simulated().threadIdx.x)
