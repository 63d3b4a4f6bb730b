"""Kernels of dequantizing: every width and kind of element, format of scale, dtype and walk."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from autoq.kernels.cuda.decode import CONVERTS, decoding, is_e4m3
from autoq.kernels.cuda.dequantize_kernels import flat_kernel, strided_kernel
from autoq.schemes import CATALOG, QuantScheme, scheme
from autoq.storage.plan import codec_of

DTYPES = ("float32", "float16", "bfloat16")


def codec(name: str | QuantScheme) -> Any:
    return decoding(codec_of(scheme(name)))


REPRESENTATIVES = [
    (flat_kernel, (codec("mxfp8"), "float32", True, 1, 4), CONVERTS),
    (flat_kernel, (codec("mxfp8"), "bfloat16", True, 2, 4), CONVERTS),
    (flat_kernel, (codec("mxfp8"), "float32", False, 1, 4)),
    (flat_kernel, (codec("mxfp8"), "float32", False, 1, 4, True)),
    (flat_kernel, (codec("mxfp4"), "bfloat16", True, 1, 1, False, True)),
    (flat_kernel, (codec("mxfp8_e5m2"), "float16", True, 1, 2)),
    (flat_kernel, (codec("mxfp6_e3m2"), "bfloat16", True, 2, 2)),
    (flat_kernel, (codec("nvfp4"), "float32", True, 1, 4)),
    (flat_kernel, (codec("nvfp4"), "bfloat16", True, 2, 4)),
    (flat_kernel, (codec("int8"), "float32", True, 1, 4)),
    (flat_kernel, (codec(QuantScheme("int2", (16,), "bf16")), "float32", True, 2, 1)),
    (strided_kernel, (codec("mxfp8"), "float32", False, 2, 1, 4, True, True)),
    (strided_kernel, (codec("mxfp6_e2m3"), "bfloat16", False, 2, 0, 4, True, False)),
    (strided_kernel, (codec(QuantScheme("int4", (20,), "f16")), "float16", True, 4, 3, 4, False, True)),
    (strided_kernel, (codec("nvfp4_2d"), "float32", True, 1, 0, 1, True, False)),
]


def every() -> Iterator[tuple[Any, ...]]:
    """Every named scheme to every dtype, by both kernels."""
    codecs = dict.fromkeys(codec(name) for name in CATALOG)
    for each, dtype, converts in product(codecs, DTYPES, (False, True)):
        if converts and not is_e4m3(each.element):
            continue
        oldest = [CONVERTS] if converts else []
        for quads in (1,) if dtype == "float32" else (1, 2):
            for tiles in (False, True):
                yield flat_kernel, (each, dtype, converts, quads, 4, tiles), *oldest
        for run, line, vector in ((4, 1, True), (4, 0, False), (1, 1, False)):
            yield strided_kernel, (each, dtype, converts, 2, line, run, run == 4, vector), *oldest
