"""One call that says which dtypes run through a whole model (S49)."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoq.errors import ArgumentError
from autoq.nn.embedding import Embedding
from autoq.nn.linear import Linear
from autoq.nn.module import Module
from autoq.nn.setting import dtype_setting, scheme_setting
from autoq.nn.weighted import Weighted
from autoq.schemes.scheme import QuantScheme


def policy(
    model: Module,
    *,
    signal: Any = None,
    stream: Any = None,
    weights: QuantScheme | None = None,
    logits: Weighted | None = None,
) -> Module:
    """Set the dtypes of every norm, activation, linear module and convolution below ``model``, and return it.

    Every norm and activation, and any module with an attribute ``signal``, gets ``signal``. Every Linear
    and convolution gets ``weights`` as its weight scheme and ``stream`` as its ``out_dtype``, so that
    residual sums are made in the stream's dtype and quantized where a norm or an activation hands them to
    the next of them. The last Linear in the order of assignment, or the last convolution of a model
    without a Linear, makes the logits: its weight follows ``weights``, its output is float32. An Embedding
    starts a stream, so it gets ``stream`` as its ``out_dtype``, and keeps its own weight scheme. None means
    what it means to a module: follow the input (``signal``, ``stream``), float weights (``weights``).

    The input of the model is the caller's: quantize it (``x.quantize(aq.mxfp8)``) for a packed first layer.

    Args:
        model: Changed in place.
        signal: Dtype or scheme of norm and activation outputs.
        stream: Dtype or scheme of the outputs of embeddings, Linears and convolutions, but for the last.
        weights: Scheme through which the weights of Linears and convolutions are trained.
        logits: The layer whose output stays float32, where it isn't the last one.

    Raises:
        ArgumentError: If ``logits`` is no Linear or convolution of the model.

    Example:
        >>> import autoq as aq
        >>> rng = aq.Generator(0)
        >>> first, last = aq.nn.Linear(64, 32, rng=rng), aq.nn.Linear(32, 10, rng=rng)
        >>> model = aq.nn.Sequential(first, aq.nn.ReLU(), last)
        >>> policy(model, signal=aq.mxfp8, stream=aq.bfloat16, weights=aq.nvfp4)
        Sequential(
          (0): Linear(64, 32, weight_scheme=nvfp4, out_dtype=bfloat16)
          (1): ReLU(signal=mxfp8)
          (2): Linear(32, 10, weight_scheme=nvfp4, out_dtype=float32)
        )
    """
    if not isinstance(model, Module):
        raise ArgumentError(
            f"policy of a {type(model).__name__}.",
            "an nn.Module",
            "Pass the model whose layers are to be set.",
        )
    signal, stream = dtype_setting(signal), dtype_setting(stream)
    weights = scheme_setting("policy: weights", weights)
    layers = [m for m in model.modules() if isinstance(m, Weighted) and not isinstance(m, Embedding)]
    head = _logits_layer(layers, logits)
    for layer in layers:
        layer.weight_scheme = weights
        layer.out_dtype = np.dtype(np.float32) if layer is head else stream
    for module in model.modules():
        if isinstance(module, Embedding):
            module.out_dtype = stream
        if hasattr(module, "signal"):
            module.signal = signal
    return model


def _logits_layer(layers: list[Weighted], logits: Weighted | None) -> Weighted | None:
    if logits is None:
        last = [layer for layer in layers if isinstance(layer, Linear)] or layers
        return last[-1] if last else None
    if not any(layer is logits for layer in layers):
        raise ArgumentError(
            f"policy: logits={logits!r} is not a part of the model.",
            "a Linear or a convolution inside the model",
            "Pass the layer itself, for example logits=model.head.",
        )
    return logits
