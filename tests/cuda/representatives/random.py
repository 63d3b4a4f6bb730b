"""Kernels of random numbers."""

from __future__ import annotations

from autoq.kernels.cuda import random

REPRESENTATIVES = [
    (random.words_kernel, (True,)),
    (random.uniform_kernel, ("float32", False, True)),
    (random.uniform_kernel, ("bfloat16", True, False)),
    (random.normal_kernel, ("float32", True)),
    (random.normal_kernel, ("float16", False)),
]
ALLOWED = {"normal_kernel": {"fma.": "the logarithms of CUDA's library are written with it"}}


def every():
    """All combinations."""
    kinds = [(kind, keyed) for kind in ("float32", "float16", "bfloat16") for keyed in (False, True)]
    return [
        *[(random.words_kernel, (keyed,)) for keyed in (False, True)],
        *[(random.normal_kernel, kind) for kind in kinds],
        *[(random.uniform_kernel, (*kind, wide)) for kind in kinds for wide in (False, kind[0] == "float32")],
    ]
