"""Casts: quantize and dequantize pass the gradient straight through (S3, S20, S23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autoq.devices import device_of, to_device
from autoq.ops.saturation import saturated
from autoq.storage import QTensor
from autoq.storage.inputs import converted
from autoq.tape.op import Op, register

if TYPE_CHECKING:
    from autoq.random import Draw
    from autoq.schemes import QuantScheme


def _quantize(
    x: Any, *, scheme: QuantScheme, scales: Any = None, ste: str = "identity", draw: Draw | None = None
) -> QTensor:
    values = x.dequantize() if isinstance(x, QTensor) else x
    return QTensor.quantize(values, scheme, scales=scales, draw=draw)


def _kept(values: tuple[Any, ...], static: dict[str, Any]) -> dict[str, Any]:
    """For the clip estimator: one bit a value, set where the value is not saturated."""
    if static.get("ste") != "clip":
        return {"kept": None}
    x = values[0].dequantize() if isinstance(values[0], QTensor) else values[0]
    packed = _quantize(x, scheme=static["scheme"], scales=static.get("scales"), draw=static.get("draw"))
    return {"kept": np.packbits(~saturated(x, packed, static.get("scales")))}


def _straight_through(F: Any, g: Any, kept: Any, x_shape: tuple[int, ...]) -> Any:
    if kept is None:
        return g
    size = int(np.prod(x_shape, dtype=np.int64))
    return g * np.unpackbits(kept)[:size].reshape(x_shape).astype(np.float32)


def _dequantize(x: Any, *, dtype: Any = np.float32) -> np.ndarray:
    """Packed values decoded to a float dtype; the gradient passes straight through (S20).

    Args:
        x: Any shape; a dense tensor is cast.
        dtype: float32, float64, float16 or bfloat16.

    Example:
        >>> import autoq as aq
        >>> aq.dequantize(aq.quantize(aq.tensor([1.0, 0.3]), aq.mxfp4))
        tensor([1.   0.25], float32)
    """
    return x.dequantize(dtype) if isinstance(x, QTensor) else converted(x, dtype, copy=True)


def _astype(x: Any, *, dtype: Any) -> Any:
    return converted(x, dtype, copy=True)


def _to_device(x: Any, *, device: str) -> Any:
    return x.to(device) if isinstance(x, QTensor) else to_device(x, device)


def _source(values: tuple[Any, ...], static: dict[str, Any]) -> dict[str, Any]:
    """Where the gradient goes back to."""
    return {"source": device_of(getattr(values[0], "words", values[0]))}


def _identity(x: Any) -> Any:
    return x


def _encoded_gradient(F: Any, g: Any, scheme: QuantScheme, draw: Draw | None) -> Any:
    return F.dequantize(F.quantize(g, scheme=scheme, draw=draw), dtype=np.dtype(np.float32))


register(Op("quantize", _quantize, {"x": _straight_through}, kind="cast", residual=_kept))
register(Op("dequantize", _dequantize, {"x": lambda F, g: g}, kind="cast"))
register(Op("astype", _astype, {"x": lambda F, g: g}, kind="cast"))
register(
    Op(
        "to_device",
        _to_device,
        {"x": lambda F, g, source: F.to_device(g, device=source)},
        kind="cast",
        residual=_source,
    )
)
register(Op("identity", _identity, {"x": lambda F, g: g}, kind="cast"))
register(Op("quantize_grad", lambda x, *, scheme, draw: x, {"x": _encoded_gradient}, kind="cast"))
