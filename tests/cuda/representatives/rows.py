"""Kernels of rows: softmax, normalization, their gradients, dropout."""

from __future__ import annotations

from typing import Any

from autoq.kernels.cuda import loss_kernels, norm_kernels, row_kernels
from autoq.kernels.cuda.chunks import ANY, WHOLE, WIDE, Codes, chunk_size
from autoq.kernels.cuda.decode import CONVERTS
from autoq.kernels.cuda.dropout import dropout_kernel
from autoq.kernels.cuda.row_kernels import Shape, Side
from autoq.schemes import scheme
from autoq.storage.plan import codec_of


def side(name: str, access: str = WIDE) -> Side:
    """An operand or result: a float dtype, or a scheme."""
    if name in ("float32", "float16", "bfloat16"):
        return Side(name, access)
    block = scheme(name).block or (0,)
    return Side(Codes(codec_of(scheme(name)), block[-1], block[-2] if len(block) > 1 else 1), access)


def spread(*sides: Any, lanes: int = 64, held: int = 1, full: bool = True, converts: bool = False) -> Shape:
    """How rows of these operands are spread over threads."""
    return Shape(chunk_size(*[each.kind for each in sides if each is not None]), lanes, held, full, converts)


F32, F16, BF16 = side("float32"), side("float16"), side("bfloat16")
LOOSE = side("float32", ANY)
MX8, MX4 = side("mxfp8"), side("mxfp4", ANY)
SOFTMAX, NORM = row_kernels.softmax_kernel, norm_kernels.norm_kernel
SOFTMAX_GRADIENT, NORM_GRADIENT = row_kernels.softmax_gradient_kernel, norm_kernels.norm_gradient_kernel

REPRESENTATIVES = [
    (SOFTMAX, (F32, F32, spread(F32, lanes=256, held=4), False, False)),
    (SOFTMAX, (F32, F32, spread(F32, lanes=512, held=12), False, False)),
    (SOFTMAX, (LOOSE, LOOSE, spread(F32, lanes=256, held=0, full=False), True, True)),
    (SOFTMAX, (BF16, F16, spread(BF16, lanes=256, held=2), True, False)),
    (SOFTMAX, (MX8, MX8, spread(MX8, lanes=512, converts=True), False, False), CONVERTS),
    (SOFTMAX, (MX8, MX8, spread(MX8), False, True)),
    (SOFTMAX, (side("mxfp6_e3m2", WHOLE), side("mxfp6_e3m2", WHOLE), spread(MX8, lanes=512), False, False)),
    (SOFTMAX, (side("nvfp4_2d"), side("int8", ANY), spread(MX8, lanes=16, full=False), False, False)),
    (SOFTMAX_GRADIENT, (F32, F32, F32, spread(F32, lanes=512, held=6), False, False)),
    (SOFTMAX_GRADIENT, (MX8, F32, F32, spread(MX8, lanes=512), True, True)),
    (SOFTMAX_GRADIENT, (LOOSE, LOOSE, LOOSE, spread(F32, lanes=256, held=0, full=False), False, False)),
    (NORM, (F32, F32, F32, F32, spread(F32, lanes=512, held=12), True)),
    (NORM, (MX8, F32, F32, MX8, spread(MX8, lanes=512, converts=True), True), CONVERTS),
    (NORM, (MX4, LOOSE, None, MX4, spread(MX4, held=0, full=False), False)),
    (NORM_GRADIENT, (F32, F32, F32, F32, spread(F32, lanes=512, held=6), True)),
    (NORM_GRADIENT, (MX8, F32, F32, F32, spread(MX8, lanes=512), True)),
    (NORM_GRADIENT, (LOOSE, None, LOOSE, LOOSE, spread(F32, held=0, full=False), False)),
    (norm_kernels.weight_kernel, (F32, F32, spread(F32, lanes=512, held=4), True)),
    (norm_kernels.weight_kernel, (MX8, F32, spread(MX8, lanes=512), False)),
    (norm_kernels.columns_kernel, ()),
    (loss_kernels.losses_kernel, (F32, spread(F32, lanes=512, held=6), True)),
    (loss_kernels.losses_kernel, (MX8, spread(MX8, lanes=64), False)),
    (loss_kernels.mean_kernel, (True,)),
    (loss_kernels.losses_gradient_kernel, (F32, F32, spread(F32, lanes=512, held=6), True, False)),
    (loss_kernels.losses_gradient_kernel, (MX8, LOOSE, spread(MX8, full=False), False, True)),
    (dropout_kernel, (F32, F32, 4, False, False)),
    (dropout_kernel, (MX4, BF16, 16, True, False)),
    (dropout_kernel, (MX8, MX8, 16, True, True), CONVERTS),
]
EXPONENTIAL = {"fma.": "the exponential of CUDA's library is written with it"}
# test_rows.py holds the older architectures to registers alone.
REGISTERS = {".local": "from sm_100 on the compiler leaves loops over chunks that it unrolled before"}
ALLOWED = {
    "softmax_kernel": EXPONENTIAL | REGISTERS,
    "softmax_gradient_kernel": EXPONENTIAL | REGISTERS,
    "losses_kernel": EXPONENTIAL | REGISTERS,
    "losses_gradient_kernel": EXPONENTIAL | REGISTERS,
    "norm_kernel": REGISTERS,
    "norm_gradient_kernel": REGISTERS,
    "weight_kernel": REGISTERS,
}
