"""The stand-in's dropout by a key on the device, as in captured steps; other draws are made on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from .standin_array import ndarray

LAUNCHES: list[str] = []


def dropout(x: Any, out: Any, rate: float, draw: Any) -> None:
    """As ``autoq.kernels.cuda.dropout.dropout``."""
    from autoq.random import Draw, uniform01

    assert isinstance(x, ndarray)
    assert out.flags.c_contiguous
    LAUNCHES.append("dropout")
    numbers = uniform01(Draw(*draw), x.size).reshape(x.shape)
    out._array[...] = x._array * (1.0 / (1.0 - rate)) * (numbers >= np.float32(rate))


def register() -> None:
    """Let the op find that kernel."""
    from autoq.devices import array_namespace
    from autoq.kernels.cuda import dropout as module  # type: ignore[attr-defined]
    from autoq.recording import CapturedDraw
    from autoq.storage import QTensor
    from autoq.tape.accelerated import accelerate

    @accelerate("dropout")
    def dropped(op: Any, values: Any, static: dict[str, Any], out: Any, compute: Any) -> Any:
        x = values[0].dequantize() if isinstance(values[0], QTensor) else values[0]
        if type(static["draw"]) is not CapturedDraw or x.dtype != np.float32:
            return NotImplemented
        result = array_namespace(x).empty(x.shape, np.float32)
        module.dropout(x, result, static["rate"], draw=static["draw"].key)
        return result
