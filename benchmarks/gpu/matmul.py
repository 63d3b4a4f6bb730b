"""Matrix products: packed operands decoded, FP8 words as they are, float32 by precisions; torch beside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np

import autoq as aq

SIZE = 8192
CHECKED = 1024  # large enough for the FP8 tensor cores
PAIRS = [
    ("mxfp8", "mxfp8"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"), ("mxfp8", "nvfp4"),
    ("int8", "int8"), ("int4", "mxfp8"), ("fp8_e4m3", "fp8_e4m3"), ("fp8_e4m3", "fp8_e5m2"),
    ("fp8_block", "fp8_block_2d"), ("fp8_block", "fp8_block"), ("fp8_block_2d", "fp8_block_2d"),
]  # fmt: skip
MX_BAR, FP8_BAR = 0.90, 1.5


def run(report: Any) -> None:
    """All of it, torch first: its bfloat16 product is what others are fractions of."""
    import cupy

    n = report.size(SIZE, 256)
    torch_seconds = peers(report, cupy, n) if report.device and find_spec("torch") is not None else None
    for left, right in PAIRS:
        a, b = packed(cupy, left, n, 0), packed(cupy, right, n, 1)
        moved = a.nbytes + b.nbytes + 4 * n * n
        seconds = timed(report, f"{left} x {right}", partial(multiplied, a, b, "float32"), n, moved=moved)
        if torch_seconds and (left, right) in (("mxfp8", "mxfp8"), ("fp8_e4m3", "fp8_e4m3")):
            bar = MX_BAR if left == "mxfp8" else FP8_BAR
            report.bars(f"{left} product to float32, of torch's bfloat16", torch_seconds / seconds, bar)
        if report.device:
            forms(report, a, b, f"{left} x {right}", n, torch_seconds)
        del a, b
    dense(report, cupy, n)
    mixed(report, cupy, n)
    checks(report, cupy)
    small(report, cupy)


def random(cupy: Any, shape: tuple[int, ...], seed: int) -> Any:
    """Normal numbers on the device: a sample that is repeated."""
    sample = np.random.default_rng(seed).standard_normal((min(shape[0], 256), *shape[1:])).astype(np.float32)
    return cupy.tile(cupy.asarray(sample), (shape[0] // len(sample), *[1] * (len(shape) - 1)))


def packed(cupy: Any, scheme: str, n: int, seed: int) -> aq.QTensor:
    """A square packed matrix, whose blocks run along its rows."""
    return aq.QTensor.quantize(random(cupy, (n, n), seed), aq.scheme(scheme))


def multiplied(a: Any, b: Any, out_dtype: str, precision: str = "highest") -> Any:
    """``a @ b.mT`` of stored values, as ops call it."""
    with aq.no_grad():
        if not hasattr(a, "words") or out_dtype != "float32":
            from autoq.kernels.cuda.matmul import product
            from autoq.ops.on_device.products import operand, turned

            return product(operand(a), operand(turned(b)), out_dtype, precision)
        return aq.linear(tensor(a), tensor(b), out_dtype=aq.float32)


def tensor(q: aq.QTensor) -> aq.Tensor:
    """A packed tensor that isn't recorded."""
    from autoq.tape.tensor import AutodiffQTensor
    from autoq.types import TensorType

    return AutodiffQTensor(q, TensorType(q.scheme), None)


def timed(
    report: Any, name: str, call: Callable[[], Any], n: int, peer: bool = False, moved: float | None = None
) -> float:
    """Time a square product; ``moved`` are the bytes of operands and result."""
    return float(report.time(name, call, moved=moved, flops=2.0 * n**3, peer=peer))


def forms(report: Any, a: Any, b: Any, name: str, n: int, torch_seconds: float | None) -> None:
    """The same product in parts and in other ways: what decoding costs, 16-bit results, shorter FP8 sums."""
    from autoq.kernels.cuda import blas_fp8, matmul
    from autoq.kernels.cuda.pieces import pieces
    from autoq.ops.on_device.products import operand, turned

    seconds = timed(report, f"{name} to bfloat16", partial(multiplied, a, b, "bfloat16"), n)
    if torch_seconds:
        report.note(f"{name} to bfloat16: {torch_seconds / seconds:.3f} of torch's bfloat16")
    left, right = operand(a), operand(turned(b))
    report.time(f"{name}: decoding both", lambda: (pieces(left), pieces(right)))
    codes = [matmul._fp8_codes(x.packed) for x in (left, right)]
    if None in codes:
        return
    import cupy

    for dtype in (np.float32, ml_dtypes.bfloat16):
        out = cupy.empty((n, n), dtype)
        for fast in (False, True):
            call = partial(blas_fp8.product, *codes, out, fast=fast)
            title = f"{name}, FP8 words to {np.dtype(dtype).name}{', short sums' if fast else ''}"
            if not call():
                report.note(f"{title}: cuBLASLt refuses it: {blas_fp8.refusal()}")
                continue
            seconds = timed(report, title, call, n)
            if torch_seconds:
                report.note(f"{title}: {torch_seconds / seconds:.3f} of torch's bfloat16")
    report.time(f"{name}: by bfloat16 pieces", lambda: by_pieces(left, right, n), flops=2.0 * n**3)


def by_pieces(left: Any, right: Any, n: int) -> Any:
    """The product without the FP8 tensor cores."""
    from autoq.kernels.cuda import matmul
    from autoq.kernels.cuda.launch import empty

    out = empty((n, n), np.float32)
    matmul.by_pieces(left, right, out, False)
    return out


def dense(report: Any, cupy: Any, n: int) -> None:
    """float32 by its precisions, and 16-bit floats."""
    if not report.device:
        return
    a, b = random(cupy, (n, n), 0), random(cupy, (n, n), 1)
    for precision in ("highest", "tf32", "bf16"):
        call = partial(multiplied, a, b, "float32", precision)
        timed(report, f"float32, {precision}", call, n, moved=12 * n * n)
    for dtype in (ml_dtypes.bfloat16, np.float16):
        x, y = a.astype(dtype), b.astype(dtype)
        name = np.dtype(dtype).name
        timed(report, f"{name} to float32", partial(multiplied, x, y, "float32"), n)
        timed(report, f"{name} to {name}", partial(multiplied, x, y, name), n)


def mixed(report: Any, cupy: Any, n: int) -> None:
    """A float32 cotangent by a packed weight, as in a backward pass; a batch; a tall matrix."""
    if not report.device:
        return
    g, weight = random(cupy, (n, n), 2), packed(cupy, "mxfp8", n, 3)
    timed(report, "float32 x mxfp8, three pieces", partial(multiplied, g, weight, "float32"), n)
    heads = random(cupy, (64, 16, 512, 64), 4).astype(ml_dtypes.bfloat16)
    flops = 2.0 * 64 * 16 * 512 * 512 * 64
    report.time(
        "64 x 16 heads, 512 x 64, bfloat16", partial(multiplied, heads, heads, "float32"), flops=flops
    )
    for rows in (16, 64, 256):
        x = random(cupy, (rows, n), 5)
        name = f"{rows} rows of float32 x mxfp8"
        report.time(name, partial(multiplied, x, weight, "float32"), flops=2.0 * rows * n * n)


def checks(report: Any, cupy: Any) -> None:
    """Each pair of schemes against float64, at a size where that is quick."""
    for left, right in PAIRS:
        a, b = packed(cupy, left, CHECKED, 0), packed(cupy, right, CHECKED, 1)
        bound = 2.0**-11 if left.startswith("fp8") else 2.0**-18
        report.check(f"{left} x {right} near float64", partial(is_near, a, b, bound))


def is_near(a: Any, b: Any, bound: float) -> bool:
    """Whether a product is as near to the exact one as its sums allow."""
    x, y = (q.dequantize().get().astype(np.float64) for q in (a, b))
    found = multiplied(a, b, "float32").numpy().astype(np.float64)
    return bool((np.abs(found - x @ y.T) <= bound * (np.abs(x) @ np.abs(y.T))).all())


def small(report: Any, cupy: Any) -> None:
    """What a product costs the host."""
    x = aq.tensor(random(cupy, (64, 64), 6))
    report.host_time("64 x 64 float32 product", lambda: x @ x)
    q = tensor(packed(cupy, "mxfp8", 64, 7))
    report.host_time("64 x 64 mxfp8 product", lambda: q @ q.mT)


def peers(report: Any, cupy: Any, n: int) -> float:
    """torch's products of the same matrices; the seconds of its bfloat16 one."""
    import torch

    a, b = (torch.from_dlpack(random(cupy, (n, n), seed)) for seed in range(2))
    x, y = a.bfloat16(), b.bfloat16().T
    seconds = timed(report, "torch bfloat16", lambda: x @ y, n, peer=True, moved=6 * n * n)
    timed(report, "torch float32", lambda: a @ b.T, n, peer=True, moved=12 * n * n)
    torch.backends.cuda.matmul.allow_tf32 = True
    timed(report, "torch float32 by TF32", lambda: a @ b.T, n, peer=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    one = torch.ones((), device="cuda")
    p, q = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).T
    for out, fast in ((torch.bfloat16, False), (torch.bfloat16, True), (torch.float32, False)):
        name = f"torch._scaled_mm e4m3 to {str(out)[6:]}{', fast sums' if fast else ''}"
        try:
            call = partial(torch._scaled_mm, p, q, one, one, out_dtype=out, use_fast_accum=fast)
            fp8_seconds = timed(report, name, call, n, peer=True)
            report.note(f"{name}: {seconds / fp8_seconds:.3f} of torch's bfloat16")
        except (RuntimeError, ValueError) as error:
            report.note(f"{name}: {error}")
    return seconds
