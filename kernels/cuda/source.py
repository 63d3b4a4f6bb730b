"""Map kernels from their records: Python text with the names that it uses.

It is text because the number of parameters depends on the operands, and because every value of a lane has a
name of its own, which the compiler keeps in a register.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bind import scalar
from ..scalar.bits import INFINITY, ZERO, F, U, bits, real
from ..scalar.rules import tensor_factors
from .block import (
    block_measure,
    chunk_encoder,
    larger_magnitude,
    note_finite,
    noter,
    quick_encoder,
    quick_test,
)
from .compile import uses_cuda
from .decode import from_halves, to_bfloats, to_halves
from .functions import NAMES, as_float
from .intrinsics import load2, load4, shuffle_xor, store2, store4
from .items import items_body
from .lanes import lanes_body
from .launch import kernel
from .lines import indented
from .octets import chunk_decoder
from .operand import code_reader, decoder, effective, float_reader, float_writer
from .quantize_block import chooser, combiner, encoder, scaler
from .quantize_instructions import atomic_max
from .quotient import over, reciprocal, signed_over
from .task import HALVES, Input, Output, Task, parameters_of
from .trace import source_of

Names = dict[str, Any]
LOW_HALF, HIGH_HALF = U(0xFFFF), U(0xFFFF0000)


@kernel
def map_kernel(task: Task) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The kernel of a task."""
    text, names = text_of(task)
    uses_cuda(names)
    exec(compile(text, "<map kernel>", "exec"), names)
    scalar(names["compute"])
    return names["mapped"], tuple(kind for _, kind in parameters_of(task))


def text_of(task: Task) -> tuple[str, Names]:
    """The functions ``compute`` and ``mapped`` as text, and what they use."""
    text, names = source_of(task.expression)
    names |= names_of(task)
    body = lanes_body(task) if task.values else items_body(task)
    parameters = ", ".join(name for name, _ in parameters_of(task))
    lines = [text, "", f"def mapped({parameters}):", *indented(body)]
    return "\n".join(lines) + "\n", names


def names_of(task: Task) -> Names:
    """What the text of a kernel names, besides the functions of its expression."""
    names: Names = {
        "cuda": None, "I": np.int64, "W": np.uint64, "F": F, "U": U, "ZERO": ZERO, "INFINITY": INFINITY,
        "bits": bits, "real": real, "load2": load2, "load4": load4, "store2": store2, "store4": store4,
        "shuffle_xor": shuffle_xor, "atomic_max": atomic_max, "note_finite": note_finite,
        "larger_magnitude": larger_magnitude, "reciprocal": reciprocal,
        "as_float": as_float,
    }  # fmt: skip
    for each in task.inputs:
        names |= {f"{name}{each.place}": function for name, function in _reading(each, task).items()}
    return names | _writing(task.output, task) | NAMES


def _reading(each: Input, task: Task) -> Names:
    """The functions that read an operand."""
    if each.is_packed:
        element = each.kind.element
        return {
            "code": code_reader(element.bits),
            "scale": effective(each.kind),
            "decode": decoder(each.kind),
            "chunk": chunk_decoder(element, task.converts)[1],
        }
    if each.kind == "bool":
        return {"read": read_truth}
    found: Names = {"read": float_reader(each.kind)}
    if each.kind in HALVES:
        found["pair"] = from_halves if each.kind == "float16" else from_bfloats
    return found


def _writing(output: Output, task: Task) -> Names:
    """The functions that encode or write a result."""
    if output.is_packed:
        codec = output.kind
        return {
            "note": noter(codec),
            "measured": block_measure(codec),
            "all_measured": combiner(codec),
            "choose": chooser(codec),
            "encode": encoder(codec),
            "encode_chunk": chunk_encoder(codec),
            "encode_quick": quick_encoder(codec, task.converts),
            "quickly": quick_test(codec, task.converts),
            "scaled": scaler(codec),
            "over": over if codec.element.kind == "integer" else signed_over,
            "factors": tensor_factors(codec),
        }
    if output.kind in ("amax", "sum", "bool"):
        return {}
    to_pair = to_halves if output.kind == "float16" else to_bfloats
    return {"write": float_writer(output.kind), "to_pair": to_pair}


@scalar
def read_truth(pointer, index):
    """A bool of an array."""
    return pointer[index] != 0


@scalar
def from_bfloats(u):
    """The float32 equal to the two bfloat16 with these bits, the low one first."""
    return real(U(U(u & LOW_HALF) << U(16))), real(U(u & HIGH_HALF))
