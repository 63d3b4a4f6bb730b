"""A few rows by a packed matrix: formats, ways to divide the work, torch's bfloat16 product beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np

import autoq as aq

SIZE = 8192
# Weights that take turns are together far larger than the second-level cache.
ROTATED = 256 << 20
BAR = 14.0  # microseconds: 1 x 8192 bfloat16 by NVFP4 8192 x 8192
NAMES = ("nvfp4", "mxfp4", "mxfp8", "int8", "int4", "fp8_block")
# Tiles, slices, chunks on their way, bytes fetched: beside the usual, each a kernel to compile.
SHAPES = {
    "nvfp4": [(4, 8, 1, 256), (4, 8, 0, 128), (4, 4, 2, 128)],
    "mxfp8": [(4, 4, 2, 128), (4, 8, 1, 256)],
}
BFLOAT = ml_dtypes.bfloat16
# A step of a model that runs in bfloat16 has such a vector, and torch's product beside it takes one.
BARS = ("nvfp4", 1, BFLOAT)
OTHERS = {
    "nvfp4": [(1, BFLOAT), (2, np.float32), (8, BFLOAT), (8, np.float32)],
    "mxfp8": [(1, BFLOAT), (8, np.float32)],
}


def run(report: Any) -> None:
    """All of it; on a device only, since the kernel is what is timed."""
    import cupy

    n = report.size(SIZE, 512)
    if not report.device:
        report.note("the vector product is a kernel, which needs a device")
        return
    for name in NAMES:
        weights = rotated(cupy, name, n)
        timed(report, cupy, name, weights, 1, np.float32)
        divided(report, cupy, name, weights)
        for rows, dtype in OTHERS.get(name, []):
            seconds = timed(report, cupy, name, weights, rows, dtype)
            if (name, rows, dtype) == BARS:
                report.bars(f"1 x {n} bfloat16 by nvfp4, microseconds", seconds * 1e6, BAR, at_most=True)
        if name == "nvfp4":
            whole(report, cupy, name, weights)
        del weights
    if find_spec("torch") is not None:
        peers(report, n)


def rotated(cupy: Any, name: str, n: int) -> list[Any]:
    """Packed weights (n, n), as many as it takes."""
    from autoq.ops.on_device.products import operand, turned

    sample = np.random.default_rng(0).standard_normal((256, n)).astype(np.float32)
    x = cupy.tile(cupy.asarray(sample), (n // 256, 1))
    first = aq.QTensor.quantize(x, aq.scheme(name))
    count = max(2, -(-ROTATED // first.nbytes))
    made = [aq.QTensor.quantize(cupy.roll(x, i, axis=1), aq.scheme(name)) for i in range(count)]
    return [operand(turned(q)) for q in made]


def calls(
    cupy: Any, weights: list[Any], rows: int, dtype: Any, shape: Any = None
) -> tuple[list[Callable[[], Any]], Any, Any]:
    """The product with each weight, the vector and where results go."""
    from autoq.kernels.cuda import vector

    k, n = weights[0].shape
    x = cupy.asarray(np.random.default_rng(rows).standard_normal((rows, k)).astype(np.float32)).astype(dtype)
    out = cupy.empty((rows, n), np.float32)
    return [partial(vector.multiply, x, w, out, shape) for w in weights], x, out


def timed(
    report: Any, cupy: Any, name: str, weights: list[Any], rows: int, dtype: Any, shape: Any = None
) -> float:
    """Check a product, then time it over all weights."""
    listed, x, out = calls(cupy, weights, rows, dtype, shape)
    title = f"{rows} x {x.shape[1]} {np.dtype(dtype).name} by {name}"
    title += "" if shape is None else f", {described(shape)}"
    if not report.check(f"{title}, near float64", partial(is_near, listed[0], weights[0], x, out)):
        return float("inf")
    packed = weights[0].packed
    moved = packed.words.nbytes + packed.scales.nbytes + x.nbytes + out.nbytes
    return float(report.time(title, listed, moved=moved, flops=2.0 * rows * x.shape[1] * out.shape[1]))


def described(shape: Any) -> str:
    """How a kernel divides the work, in words."""
    fetched = f", {shape.fetched} bytes fetched" if shape.fetched else ""
    return f"{shape.tiles} tiles by {shape.slices} slices, {shape.ahead} chunks ahead{fetched}"


def is_near(call: Callable[[], bool], weight: Any, x: Any, out: Any) -> bool:
    """Whether every sum is as near to the exact one as float32 sums in any order are."""
    from autoq.kernels.cuda.pieces import decoded

    out.fill(np.nan)
    if not call():
        return False
    values, exact = decoded(weight, "float32").astype(np.float64), x.astype(np.float32).astype(np.float64)
    error = abs(out.astype(np.float64) - exact @ values)
    bound = 1e-6 + x.shape[1] / 16 * 2.0**-22
    return bool((error <= bound * (abs(exact) @ abs(values))).all().item())


def divided(report: Any, cupy: Any, name: str, weights: list[Any]) -> None:
    """The same product by other numbers of tiles and slices."""
    from autoq.kernels.cuda.vector_kernels import Shape

    best = {}
    for parts in SHAPES.get(name, []):
        shape = Shape(*parts)
        best[timed(report, cupy, name, weights, 1, np.float32, shape)] = shape
    if best:
        report.note(
            f"{name}: best of these is {described(best[min(best)])}, {min(best) * 1e6:.2f} microseconds"
        )


def whole(report: Any, cupy: Any, name: str, weights: list[Any]) -> None:
    """What the layer costs with its op, and by a decoded copy and cuBLAS."""
    from autoq.kernels.cuda.launch import empty
    from autoq.kernels.cuda.matmul import product
    from autoq.kernels.cuda.panels import by_pieces

    k, n = weights[0].shape
    x = cupy.asarray(np.ones((1, k), np.float32))
    report.time(f"{name}: the product as ops call it", [partial(product, x, w) for w in weights])
    report.host_time(f"{name}: the product as ops call it", partial(product, x, weights[0]))

    def decoded(w: Any) -> None:
        by_pieces(x, w, empty((1, n), np.float32), False)

    report.time(f"{name}: decoded, then cuBLAS", [partial(decoded, w) for w in weights[:2]])


def peers(report: Any, n: int) -> None:
    """torch's bfloat16 product, its weights taking turns too."""
    import torch

    weights = [torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    for rows in (1, 8):
        x = torch.randn(rows, n, device="cuda", dtype=torch.bfloat16)
        listed = [partial(torch.matmul, x, w.T) for w in weights]
        report.time(f"torch bfloat16, {rows} rows", listed, moved=weights[0].nbytes, peer=True)
