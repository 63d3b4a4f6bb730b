"""Arrays for tests of element-wise kernels in the simulator, where NumPy's stand for the device's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autoq.kernels.cuda.map import mapped
from autoq.kernels.cuda.trace import traced
from autoq.ops.on_device.elementwise import as_operand, kinds_of, new_packed
from autoq.schemes import scheme
from autoq.storage import QTensor


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def quantized(name: str, *shape: int, seed: int = 0) -> QTensor:
    """A packed tensor whose tensor scale is an array, as on a device."""
    return on_device(QTensor.quantize(floats(*shape, seed=seed), scheme(name)))


def on_device(q: QTensor) -> QTensor:
    level = None if q.tensor_scale is None else np.array(q.tensor_scale)
    return QTensor.make(q.words, q.scales, level, q.scheme, q.shape, q.layout)


def decoded(x: Any) -> np.ndarray:
    if isinstance(x, QTensor):
        return x.dequantize()
    return x if x.dtype == np.bool_ else x.astype(np.float32)


def into(out: Any, function: Any, operands: Sequence[Any]) -> Any:
    """An expression of stored operands in ``out``, the name of a scheme or a dtype, poisoned before."""
    shape = np.broadcast_shapes(*[x.shape for x in operands])
    found = traced(function, kinds_of(operands, whole=False) or "")
    assert found is not None
    result = new_packed(scheme(out), shape) if isinstance(out, str) else np.full(shape, 77, out)
    if isinstance(result, QTensor):
        result.words[...] = 0xDEADBEEF
    mapped(found.expression, [as_operand(x) for x in operands], found.numbers, as_operand(result))
    return result
