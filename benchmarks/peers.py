"""What a user would pick instead: block quantization in NumPy with ml_dtypes, and torchao where installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

DTYPES = {
    "mxfp8": ml_dtypes.float8_e4m3fn,
    "mxfp6_e2m3": ml_dtypes.float6_e2m3fn,
    "mxfp4": ml_dtypes.float4_e2m1fn,
}


class Peer(NamedTuple):
    """Another implementation of one scheme: ``encode(x)``, and ``decode(encoded)`` to a float32 array."""

    name: str
    encode: Callable[[np.ndarray], Any]
    decode: Callable[[Any], np.ndarray]


def peers_of(scheme: str) -> list[Peer]:
    """The other implementations of a scheme that are at hand."""
    found = []
    if scheme in DTYPES:
        found.append(_ml_dtypes(DTYPES[scheme]))
    if find_spec("torchao") is not None and (peer := _torchao(scheme)) is not None:
        found.append(peer)
    return found


def _ml_dtypes(dtype: Any) -> Peer:
    """MX with the round-up rule, a block a row; codes stay one a byte."""
    top = np.float32(ml_dtypes.finfo(dtype).max)

    def encode(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        blocks = x.reshape(-1, 32)
        mantissa, exponent = np.frexp(np.abs(blocks).max(-1, keepdims=True) / top)
        exponent -= mantissa == 0.5
        return np.ldexp(blocks, -exponent).astype(dtype), exponent

    def decode(encoded: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        codes, exponent = encoded
        return np.ldexp(codes.astype(np.float32), exponent)

    return Peer("NumPy + ml_dtypes", encode, decode)


def _torchao(scheme: str) -> Peer | None:
    import torch
    from torchao.prototype.mx_formats.mx_tensor import MXTensor, ScaleCalculationMode
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale

    elements = {"mxfp8": torch.float8_e4m3fn, "mxfp4": torch.float4_e2m1fn_x2}

    def encode_mx(x: np.ndarray) -> Any:
        mode = ScaleCalculationMode.RCEIL
        return MXTensor.to_mx(torch.from_numpy(x), elements[scheme], 32, scaling_mode=mode)

    def encode_nvfp4(x: np.ndarray) -> Any:
        tensor = torch.from_numpy(x)
        scale = per_tensor_amax_to_scale(tensor.abs().max())
        return NVFP4Tensor.to_nvfp4(tensor, per_tensor_scale=scale)

    def decode(encoded: Any) -> np.ndarray:
        return encoded.dequantize(torch.float32).numpy()

    if scheme in elements:
        return Peer("torchao", encode_mx, decode)
    return Peer("torchao", encode_nvfp4, decode) if scheme == "nvfp4" else None
