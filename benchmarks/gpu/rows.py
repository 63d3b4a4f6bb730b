"""Rows: softmax and normalization of float and packed rows as fractions of a copy, torch beside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np

import autoq as aq
from autoq.storage import QTensor
from autoq.storage.layout import grid_shape, words_shape
from autoq.storage.plan import codec_of, plan_of
from gpu.dequantize import SAMPLE, Stored, on_device, peer
from gpu.map import nbytes, packed, sampled

VALUES = 1 << 27
COLUMNS = 8192
LENGTHS = (1024, 4096)  # of rows on which everything is timed; on others softmax and layer_norm
BFLOAT = ml_dtypes.bfloat16
TOLERANCE = {"float32": 2e-6, "bfloat16": 1e-2}
PAIRS = [
    ("mxfp8", "mxfp8"),
    ("mxfp8", "float32"),
    ("float32", "mxfp8"),
    ("mxfp4", "mxfp4"),
    ("nvfp4", "float32"),
]


def run(report: Any) -> None:
    """Forward and gradients of float rows of several lengths, then of packed ones, then torch."""
    import cupy

    if not report.device:
        report.note("the kernels of rows need a device")
        return
    size = report.size(VALUES, 1 << 16)
    for n in (64, 1024, 4096, 16384, 131072):
        floats(report, cupy, size, min(n, size), np.float32)
    floats(report, cupy, size, 4096, BFLOAT)
    spreads(report, cupy, size)
    for source, target in PAIRS:
        packed_rows(report, cupy, size, source, target)
    drops(report, cupy, size)
    entropies(report, cupy, size)
    if find_spec("torch") is not None:
        peers(report, cupy, size)


def random(cupy: Any, rows: int, n: int, dtype: Any, seed: int = 0) -> Any:
    """Normal values, rounded to a dtype."""
    return cupy.random.default_rng(seed).standard_normal((rows, n), dtype=np.float32).astype(dtype)


def vectors(cupy: Any, n: int) -> tuple[Any, Any]:
    """A weight and a bias."""
    return tuple([random(cupy, 1, n, np.float32, seed).reshape(-1) for seed in (2, 3)])


def floats(report: Any, cupy: Any, size: int, n: int, dtype: Any) -> None:
    """Everything on rows of one length and dtype."""
    from autoq.kernels.cuda import rows

    name = f"{np.dtype(dtype).name} rows of {n}"
    x, g = (random(cupy, max(size // n, 1), n, dtype, seed) for seed in (0, 1))
    (weight, bias), out = vectors(cupy, n), cupy.empty_like(x)
    head = slice(max(1, 65536 // n))
    given, cotangent = (a[head].get().astype(np.float32) for a in (x, g))
    w, b, ops = weight.get(), bias.get(), aq.tape.op.REGISTRY
    wanted = {
        "softmax": (partial(rows.softmax, x, out), lambda: ops["softmax"].forward(given), 2),
        "log_softmax": (
            partial(rows.softmax, x, out, None, True), lambda: ops["log_softmax"].forward(given), 2,
        ),
        "layer_norm": (
            partial(rows.norm, x, weight, bias, out, 1e-5, True),
            lambda: ops["layer_norm"].forward(given, w, b, eps=1e-5), 2,
        ),
        "rms_norm": (
            partial(rows.norm, x, weight, None, out, 1e-5, False),
            lambda: ops["rms_norm"].forward(given, w, eps=1e-5), 2,
        ),
        "gradient of softmax": (
            partial(rows.softmax_gradient, x, g, out),
            lambda: rule("softmax", cotangent, given, -1, None), 3,
        ),
        "gradient of layer_norm": (
            partial(rows.norm_gradient, x, weight, g, out, 1e-5, True),
            lambda: rule("layer_norm", cotangent, given, w, -1, 1e-5), 3,
        ),
    }  # fmt: skip
    for kind, (call, expected, arrays) in wanted.items():
        if n not in LENGTHS and kind not in ("softmax", "layer_norm"):
            continue
        call()
        detail = partial(near, out[head].get(), expected, TOLERANCE[np.dtype(dtype).name])
        report.check(f"{kind}, {name}", detail)
        report.time(f"{kind}, {name}", call, moved=arrays * x.nbytes)
    if n in LENGTHS:
        weight_gradient(report, cupy, name, x, g)


def weight_gradient(report: Any, cupy: Any, name: str, x: Any, g: Any) -> None:
    """The sums over rows, against CuPy's in float64."""
    from autoq.kernels.cuda import rows

    sums = cupy.empty(x.shape[-1], np.float32)
    call = partial(rows.norm_weight_gradient, x, g, sums, 1e-5, True)
    call()

    def right() -> bool:
        wide = x[:, :8].astype(np.float64)
        mean, deviation = x.astype(np.float32).mean(axis=1), x.astype(np.float32).std(axis=1)
        normal = (wide - mean[:, None]) / cupy.sqrt(deviation[:, None] ** 2 + 1e-5)
        found = (normal * g[:, :8].astype(np.float64)).sum(axis=0).get()
        return bool(np.allclose(sums[:8].get(), found, rtol=1e-3, atol=0.05 * len(x) ** 0.5))

    report.check(f"weight's gradient of layer_norm, {name}", right)
    report.time(f"weight's gradient of layer_norm, {name}", call, moved=2 * x.nbytes)


def rule(name: str, *arguments: Any) -> Any:
    """A gradient rule on NumPy arrays."""
    from autoq.tape.namespace import RAW

    return aq.tape.op.REGISTRY[name].vjp["x"](RAW, *arguments)


def near(found: Any, expected: Callable[[], Any], tolerance: float) -> bool:
    """Whether values agree with the CPU's within a tolerance of the largest of them."""
    wanted = expected()
    return bool(np.abs(found.astype(np.float32) - wanted).max() <= tolerance * max(1.0, np.abs(wanted).max()))


def spreads(report: Any, cupy: Any, size: int) -> None:
    """Other ways to spread rows over threads, and other numbers of blocks."""
    from autoq.kernels.cuda import rows
    from autoq.kernels.cuda.row_kernels import Shape

    x = random(cupy, size // 4096, 4096, np.float32)
    out, (weight, bias) = cupy.empty_like(x), vectors(cupy, 4096)
    for lanes, held in ((64, 16), (128, 8), (256, 4), (512, 2), (512, 0)):
        shape = Shape(4, lanes, held, held > 0, True)
        report.time(
            f"softmax, {lanes} threads, {held} chunks",
            partial(rows.softmax, x, out, shape=shape),
            moved=2 * x.nbytes,
        )
        call = partial(rows.norm, x, weight, bias, out, 1e-5, True, shape)
        report.time(f"layer_norm, {lanes} threads, {held} chunks", call, moved=2 * x.nbytes)
    usual = rows.WAVES
    for waves in (4, 8, 16, 64, 0):
        rows.WAVES = waves
        report.time(f"softmax, {waves} waves", partial(rows.softmax, x, out), moved=2 * x.nbytes)
    rows.WAVES = usual


def packed_rows(report: Any, cupy: Any, size: int, source: str, target: str) -> None:
    """Softmax, layer normalization and their gradients from and to packed rows."""
    from autoq.kernels.cuda import rows

    x, sample = operand(cupy, size, source)
    result = target_of(cupy, x.shape, target)
    n = x.shape[-1]
    weight, bias = vectors(cupy, n)
    calls = {
        "softmax": partial(rows.softmax, x, result),
        "layer_norm": partial(rows.norm, x, weight, bias, result, 1e-5, True),
    }
    for kind, call in calls.items():
        report.check(f"{kind}, {source} to {target}, has a kernel", call())
        report.check(f"{kind}, {source} to {target}", partial(is_right, kind, sample, weight, bias, result))
        report.time(f"{kind}, {source} to {target}", call, moved=nbytes_of(x) + nbytes_of(result))
    if source != "float32" and target == "float32":
        g = random(cupy, *x.shape, np.float32, 1)
        moved = nbytes_of(x) + 2 * g.nbytes
        call = partial(rows.softmax_gradient, x, g, result)
        report.time(f"gradient of softmax, {source}", call, moved=moved)
        call = partial(rows.norm_gradient, x, weight, g, result, 1e-5, True)
        report.time(f"gradient of layer_norm, {source}", call, moved=moved)


def operand(cupy: Any, size: int, name: str) -> tuple[Any, Any]:
    """Rows as kernels take them, and the first of them on the CPU."""
    if name == "float32":
        x = random(cupy, size // COLUMNS if size >= COLUMNS * 8 else 8, min(COLUMNS, size // 8), np.float32)
        return x, x[:64].get()
    made: Stored = on_device(cupy, aq.scheme(name), size)
    return packed(made), sampled(made)


def target_of(cupy: Any, shape: tuple[int, ...], name: str) -> Any:
    """Where results go."""
    from autoq.kernels.cuda.operand import Packed

    if name == "float32":
        return cupy.empty(shape, np.float32)
    scheme = aq.scheme(name).innermost(len(shape))
    plan = plan_of(scheme)
    words = cupy.empty(words_shape(shape, plan.bits), np.uint32)
    scales = cupy.empty(grid_shape(shape, scheme.extents(len(shape))), plan.scale_dtype)
    return Packed(words, scales, None, codec_of(scheme), scheme.block, shape)


def nbytes_of(x: Any) -> int:
    """Bytes of an operand."""
    return nbytes(x)


def is_right(kind: str, sample: Any, weight: Any, bias: Any, result: Any) -> bool:
    """Whether the first rows are nearly the CPU's: of packed results nearly all codes."""
    dense = sample.dequantize() if isinstance(sample, QTensor) else sample
    dense = dense[:64]
    op = aq.tape.op.REGISTRY[kind].forward
    wanted = op(dense) if kind == "softmax" else op(dense, weight.get(), bias.get(), eps=1e-5)
    if not hasattr(result, "words"):
        return near(result[:64].get(), lambda: wanted, 2e-6)
    name = {8: "mxfp8", 4: "mxfp4"}[result.codec.element.bits]
    expected = QTensor.encode(wanted, aq.scheme(name))
    return bool((result.words[:64].get() == expected.words).mean() > 0.98)


def drops(report: Any, cupy: Any, size: int) -> None:
    """Dropout, whose draws are the CPU's."""
    from autoq.kernels.cuda.dropout import dropout
    from autoq.random import Draw, uniform01

    x = random(cupy, size // 4096, 4096, np.float32)
    out, draw = cupy.empty_like(x), Draw(1, 2)
    call = partial(dropout, x, out, 0.1, draw)
    call()
    kept = uniform01(draw, SAMPLE if size > SAMPLE else size) >= np.float32(0.1)
    report.check("dropout of float32", lambda: np.array_equal(out.reshape(-1)[: kept.size].get() != 0, kept))
    report.time("dropout of float32", call, moved=2 * x.nbytes)
    source, _ = operand(cupy, size, "mxfp8")
    target = target_of(cupy, source.shape, "mxfp8")
    report.check("dropout of mxfp8 to mxfp8", partial(dropout, source, target, 0.1, draw))
    call = partial(dropout, source, target, 0.1, draw)
    report.time("dropout of mxfp8 to mxfp8", call, moved=nbytes_of(source) + nbytes_of(target))


def entropies(report: Any, cupy: Any, size: int) -> None:
    """The cross-entropy, its mean and its gradient, of a classifier's and a language model's rows."""
    from autoq.kernels.cuda import losses

    op = aq.tape.op.REGISTRY["cross_entropy"].forward
    for n in (1000, 50304):
        x = random(cupy, max(size // n, 1), n, np.float32)
        labels, out = cupy.arange(len(x)) % n, cupy.empty(len(x), np.float32)
        grown, g = cupy.empty_like(x), cupy.ones((), np.float32)

        def forward(x: Any = x, labels: Any = labels, out: Any = out) -> Any:
            losses.losses(x, labels, out)
            return losses.reduced(out, labels, True)[0]

        expected = op(x[:256].get(), labels=labels[:256].get(), reduction="none")
        forward()
        found = out[:256].get()
        report.check(f"cross_entropy of {n}", partial(np.allclose, found, expected, rtol=1e-5, atol=1e-5))
        report.time(f"cross_entropy of {n}", forward, moved=x.nbytes)
        call = partial(losses.losses_gradient, x, labels, g, float(len(x)), grown)
        report.time(f"gradient of cross_entropy of {n}", call, moved=2 * x.nbytes)


def peers(report: Any, cupy: Any, size: int) -> None:
    """torch's own kernels on the same values."""
    import torch
    from torch.nn import functional

    for n, dtype in (
        (1024, "float32"),
        (4096, "float32"),
        (16384, "float32"),
        (131072, "float32"),
        (4096, "bfloat16"),
    ):
        x, g = (torch.from_dlpack(random(cupy, size // n, n, np.float32, seed)) for seed in (0, 1))
        x, g = x.to(getattr(torch, dtype)), g.to(getattr(torch, dtype))
        weight, bias = (torch.from_dlpack(a).to(x.dtype) for a in vectors(cupy, n))
        moved, end = 2 * x.numel() * x.element_size(), f"{dtype} rows of {n}"
        peer(report, f"torch softmax, {end}", partial(torch.softmax, x, -1), moved)
        call = partial(functional.layer_norm, x, (n,), weight, bias)
        peer(report, f"torch layer_norm, {end}", call, moved)
        peer(report, f"torch rms_norm, {end}", partial(functional.rms_norm, x, (n,), weight), moved)
        y = torch.softmax(x, -1)
        call = partial(torch.ops.aten._softmax_backward_data, g, y, -1, x.dtype)
        peer(report, f"torch gradient of softmax, {end}", call, 1.5 * moved)
        _, mean, inverse = torch.ops.aten.native_layer_norm(x, (n,), weight, bias, 1e-5)
        for parts in ([True, False, False], [False, True, False]):
            name = "x" if parts[0] else "weight"
            call = partial(
                torch.ops.aten.native_layer_norm_backward, g, x, (n,), mean, inverse, weight, bias, parts
            )
            peer(
                report,
                f"torch gradient of layer_norm by {name}, {end}",
                call,
                (1.5 if parts[0] else 1.0) * moved,
            )
    for n in (1000, 50304):
        x = torch.from_dlpack(random(cupy, max(size // n, 1), n, np.float32)).requires_grad_()
        labels = torch.arange(len(x), device="cuda") % n
        peer(report, f"torch cross_entropy of {n}", partial(functional.cross_entropy, x, labels), x.nbytes)
        loss = functional.cross_entropy(x, labels)
        call = partial(torch.autograd.grad, loss, x, retain_graph=True)
        peer(report, f"torch gradient of cross_entropy of {n}", call, 2 * x.nbytes)
    x = torch.from_dlpack(random(cupy, size // 4096, 4096, np.float32))
    peer(report, "torch dropout of float32", partial(functional.dropout, x, 0.1, True), 2 * x.nbytes)
