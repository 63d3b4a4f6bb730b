"""Sweeps over all bit patterns of a float32: the device and the CPU make the same sums of what they compute.

A slot is ``RUN`` patterns in a row. Each pattern adds a product that changes with every bit of its result,
so slots are compared instead of results, and only a slot that differs is looked at pattern by pattern.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from autoq.kernels.bind import compile_cpu, scalar
from autoq.kernels.codec import Codec
from autoq.kernels.cpu.signatures import array, signature
from autoq.kernels.cuda.compile import uses_cuda
from autoq.kernels.cuda.launch import Kernel, empty, grid, kernel, library
from autoq.kernels.cuda.quantize_instructions import four_e4m3, four_e5m2
from autoq.kernels.scalar.bits import INFINITY, MAGNITUDE, ONE, ZERO, F, U, bits, real
from autoq.kernels.scalar.element import element_functions, stored_magnitudes
from autoq.kernels.scalar.philox import W
from autoq.kernels.scalar.rules import block_rule, te_rule, tensor_factors

Function = Callable[..., Any]
cuda: Any = None
uses_cuda(globals())

RUN = 4096
PATTERNS = 1 << 32
THREADS = 128
PIECE = 1 << 12
MIX, SPREAD = U(0x9E3779B1), U(0x85EBCA6B)
INSTRUCTIONS = {"e4m3": four_e4m3, "e5m2": four_e5m2}


class Sweep(NamedTuple):
    """What is computed of every pattern.

    Attributes:
        kind: ``"codes"``, ``"instructions"``, ``"rule"`` or ``"tensor"``.
        codec: Of the encoder or rule.
    """

    kind: str
    codec: Codec


@scalar
def weight(pattern):
    """An odd number that changes with every bit of the pattern."""
    return U(U(pattern * MIX) | ONE)


@scalar
def folded(a, b, c, d):
    """32 bits that change with every bit of one of four results."""
    h = U(U(a * MIX) ^ b)
    h = U(U(h * MIX) ^ c)
    return U(U(h * MIX) ^ d)


def result_of(sweep: Sweep) -> Function:
    """``result(pattern, limits, mask, p, q, t)``: 32 bits that stand for what a pattern gives."""
    return {
        "codes": code_of,
        "instructions": code_without_nan,
        "rule": rule_of,
        "tensor": tensor_of,
    }[sweep.kind](sweep.codec)


def code_of(codec: Codec) -> Function:
    """The code of a float32, under one of the limits, with a draw that depends on the pattern."""
    encode = element_functions(codec.element, codec.rounding, codec.nonfinite).encode

    @scalar
    def code(pattern, limits, mask, p, q, t):
        mixed = U(U(pattern >> U(2)) * SPREAD)
        return encode(real(pattern), limits[U(U(mixed >> U(7)) & mask)], U(U(pattern * MIX) >> U(16)))

    return code


def code_without_nan(codec: Codec) -> Function:
    """The code where the float32 is a number, else nothing: only blocks without codes hold others."""
    code = code_of(codec)

    @scalar
    def code_or_nothing(pattern, limits, mask, p, q, t):
        return code(pattern, limits, mask, p, q, t) if U(pattern & MAGNITUDE) <= INFINITY else ZERO

    return code_or_nothing


def rule_of(codec: Codec) -> Function:
    """A block's scale, factor and limit, from the pattern as its measure, or as its given scale."""
    # Four over six tries rule te, and te with the block's maximum at 4.
    rule = te_rule(codec, 1.5) if codec.rule == "four_over_six" else block_rule(codec)
    given = codec.given

    @scalar
    def scale(pattern, limits, mask, p, q, t):
        measured = U(U(pattern * MIX) & U(0x7F7FFFFF)) if given else pattern
        real_scale = real(U(pattern & U(0x7F7FFFFF))) if given else F(0.0)
        stored, factor, value, limit = rule(measured, real_scale, p, q, t)
        return folded(U(stored), bits(factor), bits(value), limit)

    return scale


def tensor_of(codec: Codec) -> Function:
    """The tensor's part of a two-level rule, from the pattern as the tensor's finite magnitude."""
    factors = tensor_factors(codec)

    @scalar
    def tensor(pattern, limits, mask, p, q, t):
        a, b, c, d = factors(real(U(pattern & U(0x7F7FFFFF))))
        return folded(bits(a), bits(b), bits(c), bits(d))

    return tensor


def folder(result: Function) -> Function:
    """``fold(first, count, limits, mask, p, q, t) -> uint64``: the sum of patterns in a row."""

    @scalar
    def fold(first, count, limits, mask, p, q, t):
        total = W(0)
        for i in range(count):
            pattern = U(first + U(i))
            found = U(result(pattern, limits, mask, p, q, t))
            total = W(total + W(W(found) * W(weight(pattern))))
        return total

    return fold


def four_folder(codec: Codec) -> Function:
    """The sums of codes that one instruction makes of four float32, clamped to the limit before."""
    four, signed = INSTRUCTIONS[codec.element.name], U(0x80000000)

    @scalar
    def clamped(pattern, limit):
        # A block without codes has no signs either.
        sign = U(pattern & signed) if limit != ZERO else ZERO
        return real(U(min(U(pattern & MAGNITUDE), limit) | sign))

    @scalar
    def add(total, pattern, code):
        number = U(pattern & MAGNITUDE) <= INFINITY
        return W(total + W(W(code if number else ZERO) * W(weight(pattern))))

    @scalar
    def fold(first, count, limits, mask, p, q, t):
        total = W(0)
        for i in range(0, count, 4):
            a = U(first + U(i))
            b, c, d = U(a + U(1)), U(a + U(2)), U(a + U(3))
            mixed = U(U(a >> U(2)) * SPREAD)
            limit = limits[U(U(mixed >> U(7)) & mask)]
            word = four(clamped(a, limit), clamped(b, limit), clamped(c, limit), clamped(d, limit))
            total = add(add(total, a, U(word & U(0xFF))), b, U(U(word >> U(8)) & U(0xFF)))
            total = add(add(total, c, U(U(word >> U(16)) & U(0xFF))), d, U(word >> U(24)))
        return total

    return fold


@kernel
def sweep_kernel(sweep: Sweep) -> Any:
    """A slot a thread."""
    by_instruction = sweep.kind == "instructions"
    fold = four_folder(sweep.codec) if by_instruction else folder(result_of(sweep))

    def device_sweep(first, run, limits, mask, p, q, t, out, slots):
        slot = np.int64(cuda.grid(1))
        if slot < slots:
            out[slot] = fold(U((first + slot * run) & 0xFFFFFFFF), run, limits, U(mask), p, q, t)

    numbers = ("float32", "float32", "float32")
    return device_sweep, ("int64", "int64", "uint32*", "uint32", *numbers, "uint64*", "int64")


@cache
def host_kernel(sweep: Sweep) -> Function:
    """The same slots, compiled for the CPU from the same scalar source."""
    fold = folder(result_of(sweep))

    def host_sweep(first, run, limits, mask, p, q, t, out):
        for slot in range(out.shape[0]):
            out[slot] = fold(U((first + slot * run) & 0xFFFFFFFF), run, limits, U(mask), F(p), F(q), F(t))

    arrays = array("uint32", 1, False), array("uint64", 1)
    return compile_cpu(
        host_sweep,
        signature("void", "int64", "int64", arrays[0], "uint32", "float32", "float32", "float32", arrays[1]),
    )


def threads() -> int:
    """CPUs of this process, shared among the workers of a parallel run."""
    return max(1, len(os.sched_getaffinity(0)) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def on_host(
    sweep: Sweep, first: int, slots: int, run: int, limits: np.ndarray, numbers: tuple[float, ...]
) -> np.ndarray:
    """The sums of ``slots`` slots by the CPU."""
    out, compiled = np.empty(slots, np.uint64), host_kernel(sweep)

    def piece(start: int) -> None:
        part = out[start : start + PIECE]
        compiled(first + start * run, run, limits, len(limits) - 1, *numbers, part)

    with ThreadPoolExecutor(threads()) as pool:
        list(pool.map(piece, range(0, slots, PIECE)))
    return out


def on_device(
    sweep: Sweep, first: int, slots: int, run: int, limits: np.ndarray, numbers: tuple[float, ...]
) -> Any:
    """The sums of ``slots`` slots by the device, still there."""
    out, table = empty(slots, np.uint64), library().asarray(limits)
    launch: Kernel = sweep_kernel(sweep)
    launch(grid(slots, THREADS), THREADS, first, run, table, len(limits) - 1, *numbers, out, slots)
    return out


def first_difference(
    sweep: Sweep,
    limits: np.ndarray,
    numbers: tuple[float, ...] = (1.0, 1.0, 1.0),
    first: int = 0,
    patterns: int = PATTERNS,
    run: int = RUN,
) -> int | None:
    """The first pattern, near enough, for which device and CPU differ; None where none does.

    Args:
        sweep: What is computed.
        limits: uint32, the limits that patterns are encoded under; a power of two of them.
        numbers: ``p``, ``q`` and the tensor scale of two-level rules.
        first: Where to begin, a multiple of 4.
        patterns: How many, a multiple of ``run``.
        run: Patterns a slot.
    """
    slots = patterns // run
    device = on_device(sweep, first, slots, run, limits, numbers)
    host = on_host(sweep, first, slots, run, limits, numbers)
    different = np.flatnonzero(_fetched(device) != host)
    if not different.size:
        return None
    if run <= 4:
        return first + int(different[0]) * run
    return first_difference(sweep, limits, numbers, first + int(different[0]) * run, run, 4)


def _fetched(device: Any) -> np.ndarray:
    return device if isinstance(device, np.ndarray) else device.get()


def top(codec: Codec) -> np.ndarray:
    """The limit of an ordinary block."""
    return np.array([element_functions(codec.element).top], np.uint32)


def limits_of(codec: Codec) -> np.ndarray:
    """All limits that rules give: 0 and every magnitude that is stored, 256 of them."""
    magnitudes = stored_magnitudes(codec.element).view(np.uint32)
    return np.resize(np.append(np.uint32(0), magnitudes), 256).astype(np.uint32)
