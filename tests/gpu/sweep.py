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
LARGEST = U(0x7F7FFFFF)
GROUP = 8


class Sweep(NamedTuple):
    """What is computed of every pattern.

    Attributes:
        kind: ``"codes"``, ``"quick4"``, ``"quick8"``, ``"rule"`` or ``"tensor"``.
        codec: Of the encoder or rule.
        converts: Whether quick ways may use the device's conversions.
    """

    kind: str
    codec: Codec
    converts: bool = False


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
    if sweep.kind in ("quick4", "quick8"):
        return counted_code(sweep)
    return {"codes": code_of, "rule": rule_of, "tensor": tensor_of}[sweep.kind](sweep.codec)


@scalar
def drawn(pattern):
    """The 16-bit draw of a pattern."""
    return U(U(pattern * MIX) >> U(16))


def code_of(codec: Codec) -> Function:
    """The code of a float32, under one of the limits, with a draw that depends on the pattern.

    A NaN is an integer's under the limit 0 alone, as in every block that isn't finite: its bits after
    arithmetic are the processor's own.
    """
    encode = element_functions(codec.element, codec.rounding, codec.nonfinite).encode
    without_codes = codec.element.kind == "integer"

    @scalar
    def code(pattern, limits, mask, p, q, t):
        mixed = U(U(pattern >> U(2)) * SPREAD)
        limit = limits[U(U(mixed >> U(7)) & mask)]
        if without_codes and U(pattern & MAGNITUDE) > INFINITY:
            limit = ZERO
        return encode(real(pattern), limit, drawn(pattern))

    return code


@scalar
def finite(pattern):
    """The bits of a finite magnitude."""
    return min(U(pattern & MAGNITUDE), LARGEST)


def rule_of(codec: Codec) -> Function:
    """A block's scale, factor and limit, from the pattern as its measure, or as its given scale."""
    # Four over six tries rule te, and te with the block's maximum at 4.
    rule = te_rule(codec, 1.5) if codec.rule == "four_over_six" else block_rule(codec)
    given = codec.given

    @scalar
    def scale(pattern, limits, mask, p, q, t):
        measured = finite(U(pattern * MIX)) if given else pattern
        real_scale = real(finite(pattern)) if given else F(0.0)
        stored, factor, value, limit = rule(measured, real_scale, p, q, t)
        return folded(U(stored), bits(factor), bits(value), limit)

    return scale


def tensor_of(codec: Codec) -> Function:
    """The tensor's part of a two-level rule, from the pattern as the tensor's finite magnitude."""
    factors = tensor_factors(codec)

    @scalar
    def tensor(pattern, limits, mask, p, q, t):
        a, b, c, d = factors(real(finite(pattern)))
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


def counter(sweep: Sweep) -> Function:
    """``counted(pattern)``: whether a value may be in a block that takes the quick way, with factor 1."""
    from autoq.kernels.cuda.quantize_encode import certain

    sure, saturates = certain(sweep.codec, sweep.converts), sweep.codec.nonfinite == "saturate"

    @scalar
    def counted(pattern):
        a = U(pattern & MAGNITUDE)
        return sure(real(a), F(1.0)) and (saturates or a < INFINITY)

    return counted


def counted_code(sweep: Sweep) -> Function:
    """The code where the quick way holds, else nothing."""
    encode = element_functions(sweep.codec.element, sweep.codec.rounding, sweep.codec.nonfinite).encode
    counted, limit = counter(sweep), element_functions(sweep.codec.element).top

    @scalar
    def code(pattern, limits, mask, p, q, t):
        return encode(real(pattern), limit, drawn(pattern)) if counted(pattern) else ZERO

    return code


def quick_eight_of(sweep: Sweep) -> Function:
    """``eight(values, factor, draws) -> (low, high)`` by the ways that fast kernels take."""
    from autoq.kernels.cuda.quantize_encode import joiner, quick_eight, quick_four

    if sweep.kind == "quick8":
        return quick_eight(sweep.codec, sweep.converts)
    four, join = quick_four(sweep.codec, sweep.converts), joiner(sweep.codec.element.bits)

    @scalar
    def eight(values, factor, draws):
        low = four(values[0:4], factor, draws[0], draws[1])
        return join(low, four(values[4:8], factor, draws[2], draws[3]))

    return eight


def quick_folder(sweep: Sweep) -> Function:
    """``fold`` of codes that are made eight at once."""
    eight, counted, bits_ = quick_eight_of(sweep), counter(sweep), sweep.codec.element.bits
    mask_, per_word = U((1 << bits_) - 1), 8 if bits_ <= 4 else 4

    @scalar
    def number(pattern):
        return real(pattern) if counted(pattern) else F(0.0)

    @scalar
    def four_numbers(a):
        return number(a), number(U(a + U(1))), number(U(a + U(2))), number(U(a + U(3)))

    @scalar
    def two_draws(a):
        return U(drawn(a) | U(drawn(U(a + U(1))) << U(16)))

    @scalar
    def fold(first, count, limits, mask, p, q, t):
        total = W(0)
        for i in range(0, count, GROUP):
            a = U(first + U(i))
            draws = two_draws(a), two_draws(U(a + U(2))), two_draws(U(a + U(4))), two_draws(U(a + U(6)))
            low, high = eight(four_numbers(a) + four_numbers(U(a + U(4))), p, draws)
            for k in range(GROUP):
                word = low if k < per_word else high
                code = U(U(word >> U(k % per_word * bits_)) & mask_)
                total = W(total + W(W(code) * W(weight(U(a + U(k))))))
        return total

    return fold


@kernel
def sweep_kernel(sweep: Sweep) -> Any:
    """A slot a thread."""
    fold = quick_folder(sweep) if sweep.kind in ("quick4", "quick8") else folder(result_of(sweep))

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
        first: Where to begin, a multiple of 8.
        patterns: How many, a multiple of ``run``.
        run: Patterns a slot.
    """
    slots = patterns // run
    device = on_device(sweep, first, slots, run, limits, numbers)
    host = on_host(sweep, first, slots, run, limits, numbers)
    different = np.flatnonzero(_fetched(device) != host)
    if not different.size:
        return None
    if run <= GROUP:
        return first + int(different[0]) * run
    return first_difference(sweep, limits, numbers, first + int(different[0]) * run, run, GROUP)


def _fetched(device: Any) -> np.ndarray:
    return device if isinstance(device, np.ndarray) else device.get()


def top(codec: Codec) -> np.ndarray:
    """The limit of an ordinary block."""
    return np.array([element_functions(codec.element).top], np.uint32)


def limits_of(codec: Codec) -> np.ndarray:
    """All limits that rules give: 0 and every magnitude that is stored, 256 of them."""
    magnitudes = stored_magnitudes(codec.element).view(np.uint32)
    return np.resize(np.append(np.uint32(0), magnitudes), 256).astype(np.uint32)
