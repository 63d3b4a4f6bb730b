"""Kernels of quantizing: widths and kinds of elements, rules, roundings, policies; by lanes, by patches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from autoq.kernels.cuda import measure
from autoq.kernels.cuda.quantize import counts_of, strip_of
from autoq.kernels.cuda.quantize_axes import Axis, patch_of
from autoq.kernels.cuda.quantize_columns import columns_kernel
from autoq.kernels.cuda.quantize_encode import CONVERTS
from autoq.kernels.cuda.quantize_lanes import Lanes, lanes_kernel
from autoq.kernels.cuda.quantize_patches import patches_kernel
from autoq.kernels.cuda.quantize_tiles import tiles_kernel
from autoq.kernels.cuda.quantize_writers import is_storable
from autoq.schemes import CATALOG, QuantScheme, scheme
from autoq.storage.plan import codec_of

FLOATS = ("float32", "float16", "bfloat16")
LINE, LINES = Axis(4096, 1, 1), Axis(512, 4096, 1)
NVFP4 = scheme("nvfp4")
MEAN = QuantScheme("int8", (24,), "f32", calibration="abs_mean", nonfinite="saturate")
MEAN_REASON = "the CPU's mean of a block is summed in float64, in order"


def lanes(
    s: QuantScheme, kind: str, how: Lanes, converts: bool = True, keyed: bool = False
) -> tuple[Any, ...]:
    """A kernel by lanes, with the oldest device that it is compiled for."""
    entry = lanes_kernel, (codec_of(s), kind, s.block[-1] if s.block else 0, how, converts, keyed)
    return (*entry, CONVERTS) if converts else entry


def patches(s: QuantScheme, kind: str, transposed: bool = False, keyed: bool = False) -> tuple[Any, ...]:
    """A kernel by patches, of an array of two axes."""
    extents = s.extents(2) if s.block else (1, 1)
    strides = (1, 512) if transposed else (4096, 1)
    two = zip((LINES, LINE), strides, extents, strict=True)
    axes = [Axis(1, 0, 1)] * 3 + [axis._replace(stride=stride, extent=extent) for axis, stride, extent in two]
    patch = patch_of(axes, s.element_bits, s.block is None)
    return patches_kernel, (codec_of(s), kind, *patch, s.block is None, keyed)


def tiles(s: QuantScheme, kind: str, size: int = 8192, converts: bool = True) -> tuple[Any, ...]:
    """A kernel by strips of tiles, of rows of that size."""
    rows, columns = s.extents(2)
    strip = strip_of(codec_of(s), kind, rows, Axis(size, 1, columns))
    entry = tiles_kernel, (codec_of(s), kind, strip, converts, False)
    return (*entry, CONVERTS) if converts else entry


REPRESENTATIVES = [
    tiles(scheme("mxfp8"), "float32", 8188),
    tiles(scheme("mxfp8_2d"), "float32"),
    tiles(scheme("nvfp4_2d"), "bfloat16", converts=False),
    tiles(scheme("fp8_block_2d"), "float32"),
    (columns_kernel, (codec_of(scheme("mxfp8")), "float32", 32, True, False), CONVERTS),
    (columns_kernel, (codec_of(scheme("nvfp4")), "bfloat16", 16, False, True)),
    lanes(scheme("mxfp8"), "float32", Lanes(16)),
    lanes(scheme("mxfp8"), "float32", Lanes(4)),
    lanes(scheme("mxfp8"), "bfloat16", Lanes(8, 2, True)),
    lanes(scheme("mxfp8"), "float16", Lanes(8), False),
    lanes(scheme("mxfp8").replace(nonfinite="saturate"), "float32", Lanes(8, 4)),
    lanes(scheme("mxfp6_e3m2"), "float32", Lanes(4), False),
    lanes(scheme("mxfp6_e2m3"), "bfloat16", Lanes(16), False),
    lanes(scheme("mxfp4").replace(scale_rule="floor"), "float32", Lanes(4), False),
    lanes(NVFP4, "float32", Lanes(8), False),
    lanes(NVFP4, "bfloat16", Lanes(16), False),
    lanes(NVFP4.replace(scale_rule="torchao", rounding="stochastic"), "float32", Lanes(8), False, True),
    lanes(scheme("int8"), "float32", Lanes(16), False),
    lanes(scheme("int2"), "float16", Lanes(8), False),
    lanes(scheme("fp8_e4m3"), "float32", Lanes(4)),
    patches(scheme("mxfp8"), "float32", transposed=True),
    patches(scheme("mxfp6_e2m3"), "bfloat16"),
    patches(scheme("nvfp4_2d"), "float32"),
    patches(scheme("fp8_e4m3"), "float16"),
    patches(NVFP4.replace(scale_rule="four_over_six", rounding="stochastic"), "float32", keyed=True),
    patches(MEAN, "float16"),
    (measure.vectors_kernel, ("float32",)),
    (measure.vectors_kernel, ("bfloat16",)),
    (measure.values_kernel, ("float16", False)),
    (measure.first_kernel, ("float32", True)),
    (measure.mean_kernel, ("bfloat16", False)),
]
ALLOWED = {
    "mean_kernel": {".f64": MEAN_REASON},
    "patches_kernel": {".f64": MEAN_REASON},
    "lanes_kernel": {"fma.": "exact remainders of quotients, for integers"},
}


def every() -> Iterator[tuple[Any, ...]]:
    """Every named scheme from every dtype, by all ways of spreading the work."""
    for name, kind in product(sorted(CATALOG), FLOATS):
        s = scheme(name)
        yield patches(s, kind)
        yield patches(s, kind, transposed=True)
        if s.block is not None and len(s.block) > 1:
            continue
        for rounding, converts in product(("nearest", "stochastic"), (False, True)):
            drawn = s.replace(rounding=rounding)
            counts = [n for n in counts_of(codec_of(drawn), kind) if s.block is None or s.block[0] % n == 0]
            for count in counts:
                if is_storable(s.element_bits, count):
                    yield lanes(drawn, kind, Lanes(count), converts, rounding != "nearest")
