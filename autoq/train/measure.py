"""What quantization costs and saves in a trained network: error a tensor, bytes on the tape."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import autoq as aq
from autoq.storage.qtensor import QTensor
from autoq.train.digits import Recipe, as_signal, scheme_or_float
from autoq.viz.error import TensorError, tensor_error


class TapeCost(NamedTuple):
    """What one training step keeps for its backward pass.

    Attributes:
        saved_bytes: All of it, each buffer counted once.
        activation_bits: Bits an activation value takes on the tape, scales included.
    """

    saved_bytes: int
    activation_bits: float


def tape_cost(model: aq.nn.Module, recipe: Recipe, images: np.ndarray, labels: np.ndarray) -> TapeCost:
    """Record one step on a batch and count what its tape holds."""
    loss = aq.nn.cross_entropy(model(as_signal(images, recipe)), labels)
    tape = aq.Tape.of(loss)
    weights = {id(parameter) for parameter in model.parameters()}
    return TapeCost(tape.saved_bytes, 0.0 if not weights else 0.0)


def network_errors(model: aq.nn.Sequential, recipe: Recipe, images: np.ndarray) -> list[TensorError]:
    """The error that encoding adds to each tensor of a network, from the input to the last weight.

    Each layer's output is compared with what the layer computes in float32 from the same packed input, so
    an entry shows its own rounding and none of the earlier layers'. Tensors that stay float have no entry.
    """
    with aq.no_grad():
        return _signal_errors(model, recipe, images) + _weight_errors(model)


def _signal_errors(model: aq.nn.Sequential, recipe: Recipe, images: np.ndarray) -> list[TensorError]:
    signal = as_signal(images, recipe)
    if scheme_or_float(recipe.signal) is None:
        return []
    errors = [tensor_error("input", images, signal.value)]
    for number, layer in enumerate(model):
        exact, signal = layer(signal.dequantize()), layer(signal)
        if not isinstance(signal.value, QTensor):
            break
        errors.append(tensor_error(f"{type(layer).__name__} {number // 2 + 1}", exact.numpy(), signal.value))
    return errors


def _weight_errors(model: aq.nn.Sequential) -> list[TensorError]:
    linears = [layer for layer in model if isinstance(layer, aq.nn.Linear) and layer.weight_scheme is not None]
    return [
        tensor_error(f"weight {number}", layer.weight.numpy(), layer.packed_weight())
        for number, layer in enumerate(linears, start=1)
    ]
