"""Quantize: named formats from float32 and bfloat16 as fractions of a copy, variants, torchao beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import autoq as aq
from autoq.storage import convert
from autoq.storage.layout import grid_shape, words_shape
from autoq.storage.plan import codec_of

VALUES = 1 << 28
SAMPLE = 1 << 22  # values encoded on the CPU and repeated
COLUMNS = 8192
DRAW = (0x0123456789ABCDEF, 0xFEDCBA9876543210)
FLOATS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
BARS = {
    ("mxfp8", "float32"): 0.96,
    ("mxfp8", "bfloat16"): 0.95,
    ("nvfp4", "float32"): 0.92,
    ("nvfp4", "bfloat16"): 0.70,
    ("nvfp4 stochastic", "float32"): 0.60,
}
SCHEMES = {
    **{name: aq.scheme(name) for name in ("mxfp8", "nvfp4", "mxfp4", "mxfp6_e3m2", "int8", "int4")},
    "nvfp4 stochastic": aq.scheme("nvfp4").replace(rounding="stochastic"),
}
# Timed once each, from these dtypes, after the ones that have bars.
MORE = [
    *[("mxfp4", "float32"), ("mxfp4", "bfloat16"), ("mxfp6_e3m2", "float32"), ("mxfp6_e3m2", "bfloat16")],
    *[("int8", "float32"), ("int8", "bfloat16"), ("int4", "float32"), ("mxfp8", "float16")],
]
# By strips of tiles, or with a launch for the tensor's magnitude first.
OTHERS = [
    *[
        ("mxfp8_2d", "float32"),
        ("mxfp8_2d", "bfloat16"),
        ("nvfp4_2d", "float32"),
        ("fp8_block_2d", "float32"),
    ],
    *[("fp8_block", "float32"), ("fp8_e4m3", "float32"), ("fp8_e4m3", "bfloat16")],
]
# Values a lane, runs a thread, loads past the first cache, thread blocks a multiprocessor (0: one pass).
VARIANTS = {
    "float32": [(8, 1, False, 0)],
    "bfloat16": [(16, 2, False, 0), (16, 1, False, 16)],
}


class Job(NamedTuple):
    """An array on the device, the arrays that it is encoded into, and a sample of it on the CPU."""

    scheme: aq.QuantScheme
    x: Any
    sample: Any
    words: Any
    scales: Any
    level: Any
    amax: Any
    kept: list[Any]

    @property
    def moved(self) -> int:
        """Bytes that must move."""
        return int(self.x.nbytes + self.words.nbytes + self.scales.nbytes)

    @property
    def draw(self) -> tuple[int, int] | None:
        """What stochastic rounding draws from."""
        return None if self.scheme.rounding == "nearest" else DRAW


def run(report: Any) -> None:
    """All of it; what is timed is compared with the CPU first."""
    import cupy

    for name, dtype in [*BARS, *MORE]:
        job = job_of(cupy, SCHEMES[name], dtype, report.size(VALUES, 1 << 16))
        title = f"{name} from {dtype}"
        seconds = timed(report, title, job)
        if (name, dtype) in BARS:
            report.bars(f"{title}, of a copy", job.moved / seconds / report.copy_rate, BARS[name, dtype])
            variants(report, title, dtype, job)
        del job
    others(report, cupy)
    if report.device and find_spec("torch") is not None and find_spec("torchao") is not None:
        peers(report)


def job_of(cupy: Any, scheme: aq.QuantScheme, dtype: str, values: int, columns: int = COLUMNS) -> Job:
    """Random values in a sample that is repeated on the device."""
    size = min(values, SAMPLE)
    columns = min(columns, size // 256)
    sample = np.random.default_rng(0).standard_normal((size // columns, columns), dtype=np.float32)
    sample = sample.astype(FLOATS[dtype])
    # CuPy copies bits; not every function of its knows bfloat16.
    pattern = sample.view(f"u{sample.dtype.itemsize}")
    x = cupy.tile(cupy.asarray(pattern), (values // size, 1)).view(sample.dtype)
    words = cupy.empty(words_shape(x.shape, scheme.element_bits), np.uint32)
    stored = scheme.scale_format.stored_dtype
    scales = cupy.empty(grid_shape(x.shape, scheme.extents(2)), stored)
    level = cupy.empty((), np.float32) if scheme.tensor_scale else None
    amax = cupy.asarray(np.array(np.abs(sample.astype(np.float32)).max())) if scheme.tensor_scale else None
    return Job(scheme, x, sample, words, scales, level, amax, [])


def encode(job: Job, measure: bool = False) -> None:
    """What is timed: one launch, given the tensor's magnitude unless it is to be measured."""
    from autoq.kernels.cuda.quantize import quantize

    codec, extents = codec_of(job.scheme), job.scheme.block or ()
    amax = None if measure else job.amax
    quantize(job.x, codec, extents, job.words, job.scales, job.level, given_amax=amax, draw=job.draw)


def timed(report: Any, name: str, job: Job, call: Callable[[], None] | None = None, moved: int = 0) -> float:
    """Check what a call encodes, then time it."""
    call = call or partial(encode, job)
    job.words.fill(0)
    call()
    report.check(f"{name} as on the CPU", partial(is_right, job))
    return float(report.time(name, call, moved=moved or job.moved))


def is_right(job: Job) -> bool:
    """Whether the first repetition, and the last where none is drawn, has the bytes of the CPU."""
    wanted = expected(job)
    rows, lines = len(job.sample), len(wanted.scales)
    parts = [(job.words[:rows], job.scales[:lines])]
    if job.draw is None:
        parts.append((job.words[-rows:], job.scales[-lines:]))
    return all(
        words.get().tobytes() == wanted.words.tobytes() and scales.get().tobytes() == wanted.scales.tobytes()
        for words, scales in parts
    )


def expected(job: Job) -> Any:
    """What the CPU makes of the sample; kept for the variants of a job."""
    if job.kept:
        return job.kept[0]
    job.kept.append(convert.quantize(job.sample, job.scheme, draw=job.draw))
    return job.kept[0]


def variants(report: Any, name: str, dtype: str, job: Job) -> None:
    """Values a lane, runs in flight, one pass or thread blocks that stay."""
    if not report.device:
        return
    best = {}
    for values, items, streams, waves in VARIANTS[dtype]:
        call = variant(job, dtype, values, items, streams, waves)
        if call is None:
            continue
        title = f"{name}: {values} a lane, {items} in flight, {waves} waves{', past the cache' * streams}"
        job.words.fill(0)
        call()
        if report.check(f"{title}, as on the CPU", partial(is_right, job)):
            seconds = report.time(title, call, moved=job.moved)
            best[job.moved / seconds / report.copy_rate] = title
    report.note(f"best variant: {best[max(best)]}, {max(best):.3f} of a copy")


def variant(
    job: Job, dtype: str, values: int, items: int, streams: bool, waves: int
) -> Callable[[], None] | None:
    """A launch of the kernel of lanes with other parameters than the usual ones; None where there is none."""
    from autoq.kernels.cuda.quantize import NO_DRAW, lanes_plan, measure_of
    from autoq.kernels.cuda.quantize import run as launch
    from autoq.kernels.cuda.quantize_axes import Axis
    from autoq.kernels.cuda.quantize_lanes import Lanes
    from autoq.kernels.cuda.quantize_writers import is_storable

    codec, block = codec_of(job.scheme), job.scheme.block
    drawn = job.draw is not None
    if not is_storable(codec.element.bits, values) or (drawn and values < 8) or block[0] % values:
        return None
    line = Axis(job.x.size, 1, block[0])
    plan = lanes_plan(codec, dtype, line, Lanes(values, items, streams), False, waves)
    measure = measure_of(job.x, codec, block, job.amax)
    arrays = (job.x, job.words, job.scales, job.level)
    return lambda: launch(plan, *arrays, measure, None, DRAW if drawn else NO_DRAW)


def others(report: Any, cupy: Any) -> None:
    """Tiles, whole tensors, measured magnitudes, odd lines and transposed arrays."""
    values = report.size(VALUES // 4, 1 << 16)
    for name, dtype in OTHERS:
        job = job_of(cupy, aq.scheme(name), dtype, values)
        again = job.x.nbytes if job.scheme.block is None else 0
        timed(report, f"{name} from {dtype}", job, moved=job.moved + again)
    for dtype in ("float32", "bfloat16"):
        job = job_of(cupy, aq.scheme("nvfp4"), dtype, values)
        title = f"nvfp4 from {dtype}, the magnitude measured"
        timed(report, title, job, partial(encode, job, measure=True), job.moved + job.x.nbytes)
    odd = job_of(cupy, aq.scheme("mxfp8"), "float32", values, COLUMNS - 4)
    timed(report, "mxfp8 from float32, partial blocks", odd)
    for name in ("mxfp8", "nvfp4"):
        across(report, cupy, name, values)


def across(report: Any, cupy: Any, name: str, values: int) -> None:
    """An array in the other order of axes: blocks run across its memory."""
    job = job_of(cupy, aq.scheme(name), "float32", values)
    turned = job._replace(x=cupy.ascontiguousarray(job.x.T).T)
    timed(report, f"{name} from float32, transposed", turned)


def peers(report: Any) -> None:
    """torchao's MXFP8 and NVFP4 under torch.compile, on as many values."""
    import torch
    from torchao.prototype.mx_formats import mx_tensor, nvfp4_tensor

    size = report.size(VALUES, 1 << 16)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(size // COLUMNS, COLUMNS, device="cuda", dtype=dtype) if report.device else None
        for mode in (mx_tensor.ScaleCalculationMode.FLOOR, mx_tensor.ScaleCalculationMode.RCEIL):
            mx = partial(mx_tensor.to_mx, elem_dtype=torch.float8_e4m3fn, block_size=32, scaling_mode=mode)
            moved = x.numel() * (x.element_size() + 1 + 1 / 32)
            peer(
                report,
                f"torchao mxfp8 {mode.name.lower()} from {dtype}, compiled",
                torch.compile(mx),
                (x,),
                moved,
            )
        level = nvfp4_tensor.per_tensor_amax_to_scale(x.abs().max().float())
        nvfp4 = torch.compile(lambda x, level: nvfp4_tensor.nvfp4_quantize(x, 16, level))
        moved = x.numel() * (x.element_size() + 1 / 2 + 1 / 16)
        peer(report, f"torchao nvfp4 from {dtype}, compiled", nvfp4, (x, level), moved)


def peer(
    report: Any, name: str, function: Callable[..., object], given: tuple[Any, ...], moved: float
) -> None:
    """Time another library's work; what it can't do here is noted."""
    try:
        function(*given)
    except Exception as error:
        report.note(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        return
    report.time(name, partial(function, *given), moved=moved, peer=True)
