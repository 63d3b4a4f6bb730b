"""Operands as ops store them, in the simulator, whose arrays are NumPy's."""

from __future__ import annotations

import numpy as np

from autoq.storage import QTensor


def stored(x: np.ndarray, scheme: str | None) -> object:
    """The array, or a packed tensor whose scale for the whole tensor is an array as on a device."""
    if scheme is None:
        return x
    q = QTensor.quantize(x, scheme)
    scale = None if q.tensor_scale is None else np.array(q.tensor_scale)
    made = QTensor.make(q.words, q.scales, q.tensor_scale, q.scheme, q.shape)
    object.__setattr__(made, "tensor_scale", scale)
    return made
