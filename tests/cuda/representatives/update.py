"""Kernels of optimizer steps, gradient norms and scaling."""

from __future__ import annotations

from itertools import product

from autoq.kernels.cuda import gradients, update

KINDS = ("float32", "float16", "bfloat16")
REPRESENTATIVES = [
    (update.sgd_kernel, ("float32", "float32", True, True, True, False)),
    (update.sgd_kernel, ("float16", "float32", False, False, False, True)),
    (update.adam_kernel, ("float32", "float32", "decoupled", False)),
    (update.adam_kernel, ("bfloat16", "float32", "coupled", True)),
    (gradients.squares_kernel, ("float32",)),
    (gradients.squares_kernel, ("bfloat16",)),
    (gradients.norm_kernel, ()),
    (gradients.scale_kernel, ("float32", True)),
    (gradients.scale_kernel, ("float16", False)),
]
WIDE = {".f64": "squares of any float32 neither overflow nor vanish in float64"}
ALLOWED = {"squares_kernel": WIDE, "norm_kernel": WIDE}


def every():
    """All combinations."""
    flags = (False, True)
    pairs = [
        ("float32", "float32"),
        *[(kind, "float32") for kind in KINDS[1:]],
        *zip(KINDS, KINDS, strict=True),
    ]
    return [
        *[(update.sgd_kernel, (*pair, *rest)) for pair in pairs for rest in product(flags, repeat=4)],
        *[
            (update.adam_kernel, (*pair, decay, stored))
            for pair in pairs
            for decay in ("", "coupled", "decoupled")
            for stored in flags
        ],
        *[(gradients.squares_kernel, (kind,)) for kind in KINDS],
        *[(gradients.scale_kernel, (kind, stored)) for kind in KINDS for stored in flags],
    ]
