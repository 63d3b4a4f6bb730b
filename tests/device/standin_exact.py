"""Ops that a GPU computes by autoq's own kernels: their forwards, without CuPy's flush of subnormals to 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from .standin_array import ndarray
from .standin_flush import exact

# Beside the element-wise ops; those with names of their own in ``autoq.ops.on_device``.
NAMES = ("sum", "mean", "var", "std", "norm", "floor_divide", "remainder")
NAMES += ("cumulative_sum", "cumulative_prod", "cummax", "cummin", "extremum_so_far")


def register() -> None:
    """Let the ops find their kernels."""
    from autoq.tape.accelerated import ELEMENTWISE, accelerate
    from autoq.tape.apply import computed

    @accelerate(ELEMENTWISE, *NAMES)
    def by_kernel(op: Any, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
        if compute != np.float32 or op.variadic:
            return NotImplemented
        kinds = {x.dtype.kind for x in values if isinstance(x, ndarray)}
        wide = np.float64 if op.kind == "index" and kinds & set("iu") else np.float32
        arrays = [_decoded(x, wide, bools=op.integers or op.kind == "index") for x in values]
        with exact():
            return computed(op, arrays, static, np.dtype(np.float32))


def _decoded(x: Any, dtype: Any, bools: bool) -> Any:
    """A stored operand as kernels take it: floats as ``dtype``, integers of comparisons as they are."""
    from autoq.storage import QTensor
    from autoq.storage.inputs import converted

    if isinstance(x, QTensor):
        return x.dequantize(dtype)
    if not isinstance(x, ndarray) or (bools and x.dtype.kind == "b"):
        return x
    whole = x.dtype.kind in "biu" and dtype == np.float64
    return x if whole else converted(x, np.dtype(dtype))
