"""The kernel of the vector product, and those of products of pieces."""

from __future__ import annotations

from autoq import schemes
from autoq.kernels.cuda import pieces
from autoq.kernels.cuda.decode import decoding
from autoq.kernels.cuda.vector_kernels import Shape, vector_kernel
from autoq.storage.plan import plan_of


def vector(name: str, kind: str, rows: int, shape: tuple[int, ...]):
    scheme = schemes.scheme(name)
    parameters = decoding(plan_of(scheme).codec), scheme.block[-1], kind, rows, Shape(*shape)
    return vector_kernel, parameters


REPRESENTATIVES = [
    vector("nvfp4", "float32", 1, (4, 4, 2, 128)),
    vector("nvfp4", "float32", 2, (4, 4, 2, 128)),
    vector("mxfp8", "bfloat16", 8, (4, 4, 2, 256)),
    vector("mxfp4", "float32", 4, (2, 4)),
    vector("int4", "float16", 1, (4, 4, 1)),
    vector("fp8_block", "float32", 8, (2, 4)),
    (pieces.split_kernel, (3, True)),
    (pieces.split_kernel, (1, False)),
    (pieces.split_kernel, (3, True, 1)),
    (pieces.factor_kernel, ()),
]
ALLOWED = {
    "vector_kernel": {"fma.": "exact products of bfloat16, written as fma for devices without a product"}
}


def every():
    """All combinations."""
    names = ("nvfp4", "nvfp4_single", "mxfp4", "mxfp8", "int8", "int4", "int8_full", "fp8_block")
    kinds = [("nvfp4", kind) for kind in ("float16", "bfloat16")] + [(name, "float32") for name in names]
    shapes = [(1, (4, 4, 2, 128)), (2, (4, 4, 2, 128)), (8, (2, 4))]
    return [
        *[
            vector(name, kind, rows, shape if rows > 2 or name[:2] in ("nv", "mx") else (4, 4, 1))
            for name, kind in kinds
            for rows, shape in shapes
        ],
        *[(pieces.split_kernel, (count, wide)) for count in (1, 2, 3) for wide in (False, True)],
        *[(pieces.split_kernel, (3, wide, place)) for wide in (False, True) for place in range(3)],
    ]
