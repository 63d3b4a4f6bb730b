"""Loss modules: the op they stand for, with its options."""

import numpy as np
import pytest

import autoq as aq
from autoq import nn
from autoq.errors import ArgumentError

A = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
P, LOG = aq.sigmoid(B).numpy(), aq.log_softmax(A).numpy()
LABELS = np.array([0, 4, -1, 2])
LOSSES = [
    (nn.MSELoss, "mse_loss", (A, B), {}),
    (nn.L1Loss, "l1_loss", (A, B), {}),
    (nn.SmoothL1Loss, "smooth_l1_loss", (A, B), {"beta": 0.5}),
    (nn.HuberLoss, "huber_loss", (A, B), {"delta": 0.5}),
    (nn.BCELoss, "binary_cross_entropy", (P, P), {}),
    (nn.BCEWithLogitsLoss, "binary_cross_entropy_with_logits", (A, P), {}),
    (nn.KLDivLoss, "kl_div", (LOG, LOG), {"log_target": True}),
    (nn.NLLLoss, "nll_loss", (LOG, LABELS), {"ignore_index": -1}),
    (nn.CrossEntropyLoss, "cross_entropy", (A, LABELS), {"ignore_index": -1, "label_smoothing": 0.1}),
]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("kind", "op", "operands", "options"), LOSSES)
def test_a_loss_module_is_its_op_with_its_options(kind, op, operands, options, reduction):
    module = kind(reduction, **options)
    expected = getattr(aq, op)(*operands, reduction=reduction, **options)
    np.testing.assert_array_equal(module.eval()(*operands).numpy(), expected.numpy())


@pytest.mark.parametrize(("kind", "op", "operands", "options"), LOSSES)
def test_the_repr_shows_what_differs_from_the_defaults(kind, op, operands, options):
    assert repr(kind().train()) == f"{kind.__name__}()"
    text = repr(kind("sum", **options))
    assert "reduction='sum'" in text
    assert all(f"{key}={value!r}" in text for key, value in options.items())


@pytest.mark.parametrize(("kind", "op", "operands", "options"), LOSSES)
def test_a_loss_of_a_packed_prediction_is_float32_and_has_a_gradient(kind, op, operands, options):
    x = aq.tensor(operands[0], dtype=aq.mxfp8)
    x.requires_grad = True
    loss = kind(**options)(x, operands[1])
    loss.backward()
    assert loss.dtype == aq.float32
    assert np.isfinite(x.grad.numpy()).all()
    assert x.grad.numpy().any()


def test_an_unknown_reduction_is_an_error():
    with pytest.raises(ArgumentError, match="'max'"):
        nn.L1Loss("max")(A, B)
