"""What quantization costs and saves in a trained network: error a tensor, bytes on the tape."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import autoq as aq
from autoq.storage.qtensor import QTensor
from autoq.train.digits import WIDTHS, Recipe, as_signal, scheme_or_float
from autoq.viz.error import TensorError, tensor_error


class TapeCost(NamedTuple):
    """What one training step keeps for its backward pass.

    Attributes:
        saved_bytes: All of it, each buffer counted once.
        activation_bits: Bits a value of the signal takes on the tape, scales included; logits left out.
    """

    saved_bytes: int
    activation_bits: float


def tape_cost(model: aq.nn.Module, recipe: Recipe, images: np.ndarray, labels: Any) -> TapeCost:
    """Record one step on a batch and count what its tape holds."""
    tape = aq.Tape.of(aq.nn.cross_entropy(model(as_signal(images, recipe)), labels))
    signal = [value for value in tape.buffers() if _is_signal(value, len(images))]
    bits = 8 * sum(value.nbytes for value in signal) / sum(value.size for value in signal)
    return TapeCost(tape.saved_bytes, bits)


def _is_signal(value: Any, rows: int) -> bool:
    """Whether a kept buffer is an activation between layers: one row an image, and not the ten logits."""
    return len(value.shape) == 2 and value.shape[0] == rows and value.shape[1] in WIDTHS[:-1]


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
    linears = [
        layer for layer in model if isinstance(layer, aq.nn.Linear) and layer.weight_scheme is not None
    ]
    return [
        tensor_error(f"weight {number}", layer.weight.numpy(), layer.packed_weight())
        for number, layer in enumerate(linears, start=1)
    ]
