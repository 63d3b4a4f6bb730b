"""Dequantize: named formats to float32 and bfloat16 as fractions of a copy, variants, torch beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import autoq as aq
from autoq.storage import convert
from autoq.storage.plan import codec_of

VALUES = 1 << 28
SAMPLE = 1 << 22  # values encoded on the CPU and repeated
COLUMNS = 8192
FLOATS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
BARS = {("mxfp8", "float32"): 0.95, ("mxfp8", "bfloat16"): 0.92}
SCHEMES = ("mxfp8", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "nvfp4", "int8", "int4", "fp8_e4m3")
TILES = ("mxfp8_2d", "nvfp4_2d", "fp8_block_2d")


class Stored(NamedTuple):
    """A packed array on the device, ``times`` copies of a sample below each other."""

    scheme: aq.QuantScheme
    packed: Any
    sample: Any
    shape: tuple[int, int]
    times: int

    @property
    def nbytes(self) -> int:
        """Bytes of words and scales."""
        return self.packed[0].nbytes + self.packed[1].nbytes


def run(report: Any) -> None:
    """All of it; what is timed is compared with the CPU first."""
    import cupy

    for name in SCHEMES:
        stored = on_device(cupy, aq.scheme(name), report.size(VALUES, 1 << 16))
        for dtype in FLOATS:
            out = cupy.empty(stored.shape, FLOATS[dtype])
            seconds = timed(report, f"{name} to {dtype}", stored, out)
            fraction = (stored.nbytes + out.nbytes) / seconds / report.copy_rate
            if (name, dtype) in BARS:
                report.bars(f"{name} to {dtype}, of a copy", fraction, BARS[name, dtype])
            if name in ("mxfp8", "nvfp4"):
                variants(report, name, stored, out)
        del stored, out
    strided(report, cupy)
    if report.device and find_spec("torch") is not None:
        peers(report, cupy)


def on_device(cupy: Any, scheme: aq.QuantScheme, values: int) -> Stored:
    """Random values, encoded on the CPU in a sample that is repeated on the device."""
    size = min(values, SAMPLE)
    columns = min(COLUMNS, size // 256)
    x = np.random.default_rng(0).standard_normal((size // columns, columns), dtype=np.float32)
    sample, times = convert.quantize(x, scheme), values // size
    scales = sample.scales.view(np.uint16) if sample.scales.dtype.itemsize == 2 else sample.scales
    level = None if sample.tensor_scale is None else cupy.asarray(np.array(sample.tensor_scale))
    repeated = cupy.tile(cupy.asarray(sample.words), (times, 1))
    # One block for the whole array has one scale however often it is repeated.
    grid = cupy.asarray(scales) if scheme.block is None else cupy.tile(cupy.asarray(scales), (times, 1))
    return Stored(scheme, (repeated, grid, level), sample, (times * len(x), columns), times)


def decode(stored: Stored, out: Any) -> None:
    """What is timed: one launch."""
    from autoq.kernels.cuda.dequantize import dequantize

    dequantize(*stored.packed, codec_of(stored.scheme), stored.scheme.block or (), out)


def timed(report: Any, name: str, stored: Stored, out: Any) -> float:
    """Check a decode into ``out``, then time it."""
    out.fill(0)
    decode(stored, out)
    report.check(f"{name} as on the CPU", partial(is_right, stored, out))
    return float(report.time(name, partial(decode, stored, out), moved=stored.nbytes + out.nbytes))


def is_right(stored: Stored, out: Any) -> bool:
    """Whether the first and the last repetition have the bits of the CPU's result."""
    shape = stored.shape[0] // stored.times, stored.shape[1]
    wanted = convert.dequantize(*stored.sample, stored.scheme, shape).astype(out.dtype)
    pattern = f"u{out.dtype.itemsize}"
    for rows in (out[: shape[0]], out[-shape[0] :]):
        if not np.array_equal(rows.view(pattern).get(), wanted.view(pattern)):
            return False
    return True


def variants(report: Any, name: str, stored: Stored, out: Any) -> None:
    """Values a thread, runs in flight, threads, waves of blocks, results that leave the cache first."""
    if not report.device:
        return
    # The fastest of some thirty that were tried on an H200.
    choices = [(1, 2, 512, 0, True), (1, 4, 256, 0, False), (1, 4, 256, 0, True), (2, 2, 512, 0, True)]
    for choice in choices:
        call = variant(stored, out, *choice)
        text = "{} fours, {} in flight, {} threads, {} waves{}".format(*choice[:4], ", first out" * choice[4])
        out.fill(0)
        call()
        title = f"{name} to {out.dtype}: {text}"
        if report.check(f"{title}, as on the CPU", partial(is_right, stored, out)):
            report.time(title, call, moved=stored.nbytes + out.nbytes)


def variant(
    stored: Stored, out: Any, quads: int, flight: int, threads: int, waves: int, first_out: bool
) -> Callable[[], None]:
    """A launch of the flat kernel with other parameters than the usual ones."""
    from autoq.kernels.cuda.decode import CONVERTS, decoding
    from autoq.kernels.cuda.dequantize_kernels import QUAD, flat_kernel
    from autoq.kernels.cuda.launch import current_device, device_capability, grid
    from autoq.kernels.cuda.walk import shifts

    converts = device_capability(current_device()) >= CONVERTS
    run_length = quads * QUAD
    runs, shift = out.size // run_length, shifts(stored.scheme.block[-1]) - (run_length.bit_length() - 1)
    kernel = flat_kernel(
        decoding(codec_of(stored.scheme)), out.dtype.name, converts, quads, flight, False, first_out
    )
    words, scales, level = stored.packed
    blocks = grid(runs, threads * flight, waves)
    return lambda: kernel(blocks, threads, words, scales, level, out, shift, runs, 0, 0, 0)


def strided(report: Any, cupy: Any) -> None:
    """Tiles of two axes; and results that are transposed, by the kernel for any strides."""
    values = report.size(COLUMNS * COLUMNS, 1 << 16)
    for name in TILES:
        stored = on_device(cupy, aq.scheme(name), values)
        for dtype in FLOATS:
            timed(report, f"{name} to {dtype}", stored, cupy.empty(stored.shape, FLOATS[dtype]))
    for name in ("mxfp8", "nvfp4"):
        stored = on_device(cupy, aq.scheme(name), values)
        for dtype in FLOATS:
            out = cupy.empty(stored.shape[::-1], FLOATS[dtype]).T
            timed(report, f"{name} to {dtype}, transposed", stored, out)


def peers(report: Any, cupy: Any) -> None:
    """MXFP8 in torch: a few lines under torch.compile, and torchao's tensor."""
    import torch

    stored = on_device(cupy, aq.scheme("mxfp8"), report.size(VALUES, 1 << 16))
    words, scales, _ = stored.packed
    codes = torch.from_dlpack(words.view(cupy.uint8)).view(torch.float8_e4m3fn)
    powers = torch.from_dlpack(scales)

    def plain(codes: Any, powers: Any, dtype: Any) -> Any:
        scale = (powers.to(torch.int32) << 23).view(torch.float32)
        values = codes.to(torch.float32).view(*powers.shape, 32) * scale.unsqueeze(-1)
        return values.view(codes.shape).to(dtype)

    compiled = torch.compile(plain)
    for dtype in (torch.float32, torch.bfloat16):
        moved = stored.nbytes + codes.numel() * dtype.itemsize
        peer(report, f"torch.compile mxfp8 to {dtype}", partial(compiled, codes, powers, dtype), moved)
    if find_spec("torchao") is not None:
        torchao(report, torch, stored)


def torchao(report: Any, torch: Any, stored: Stored) -> None:
    """torchao's MX tensor of as many values, compiled."""
    from torchao.prototype.mx_formats.mx_tensor import MXTensor

    x = torch.randn(stored.shape, device="cuda", dtype=torch.bfloat16)
    held = MXTensor.to_mx(x, torch.float8_e4m3fn, 32)
    del x
    compiled = torch.compile(lambda held, dtype: held.dequantize(dtype))
    for dtype in (torch.float32, torch.bfloat16):
        moved = stored.nbytes + held.numel() * dtype.itemsize
        peer(report, f"torchao mxfp8 to {dtype}, compiled", partial(compiled, held, dtype), moved)


def peer(report: Any, name: str, call: Callable[[], object], moved: float) -> None:
    """Time another library's work; what it can't do here is noted."""
    try:
        call()
    except Exception as error:
        report.note(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        return
    report.time(name, call, moved=moved, peer=True)
