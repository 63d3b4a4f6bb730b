"""What the digits network keeps on the tape: its MXFP8 activations are packed, each buffer counted once."""

from __future__ import annotations

import autoq as aq
from autoq.train.digits import Recipe, as_signal, build


def test_mxfp8_activations_take_about_a_byte_a_value_on_the_tape():
    recipe = Recipe(signal="mxfp8")
    digits = aq.data.digits(recipe.seed)
    model = build(recipe)
    loss = aq.nn.cross_entropy(model(as_signal(digits.train_x[:64], recipe)), digits.train_y[:64])
    packed = [value for value in aq.Tape.of(loss).buffers() if isinstance(value, aq.QTensor)]
    whole = [q for q in packed if q.shape[-1] % 32 == 0]
    assert len(whole) == 3  # the input and each hidden layer: what a ReLU gave is what the next layer takes
    assert all(q.scheme == aq.mxfp8 for q in whole)
    assert sum(q.nbytes for q in whole) / sum(q.size for q in whole) <= 1.04
