"""Batch and group norm modules: running statistics, modes, signal, state."""

import numpy as np
import pytest

import autoq as aq
from autoq import nn
from autoq.errors import ArgumentError, ShapeError


def data(*shape, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 3 + 1).astype(np.float32)


def test_training_uses_the_batch_and_averages_its_statistics():
    norm, mean, variance = nn.BatchNorm1d(4, momentum=0.3), np.zeros(4), np.ones(4)
    for seed in range(3):
        x = data(10, 4, seed=seed)
        np.testing.assert_allclose(norm(aq.tensor(x)).numpy(), aq.batch_norm(x).numpy(), atol=1e-6)
        mean = 0.7 * mean + 0.3 * x.mean(0)
        variance = 0.7 * variance + 0.3 * x.var(0, ddof=1)
    np.testing.assert_allclose(norm.running_mean.numpy(), mean, rtol=1e-5)
    np.testing.assert_allclose(norm.running_var.numpy(), variance, rtol=1e-5)


def test_inference_uses_the_averages_and_leaves_them_alone():
    norm = nn.BatchNorm2d(4)
    norm(aq.tensor(data(3, 4, 5, 5)))
    norm.eval()
    before = norm.state_dict()
    x = data(1, 4, 5, 5, seed=1)
    expected = aq.batch_norm(x, norm.running_mean.numpy(), norm.running_var.numpy()).numpy()
    np.testing.assert_allclose(norm(aq.tensor(x)).numpy(), expected, atol=1e-6)
    for name, value in norm.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


def test_gradients_flow_through_the_batch_statistics_but_not_to_the_averages():
    norm, x = nn.BatchNorm1d(3), aq.tensor(data(6, 3), requires_grad=True)
    norm(x).backward(data(6, 3, seed=1))
    np.testing.assert_allclose(x.grad.numpy().sum(0), 0, atol=1e-5)
    assert norm.weight.grad.shape == norm.bias.grad.shape == (3,)
    assert not norm.running_mean.requires_grad
    assert norm.running_mean.propagation is aq.Propagation.INHIBIT


def test_a_backward_after_a_further_batch_is_not_disturbed():
    norm, x = nn.BatchNorm1d(3), aq.tensor(data(6, 3), requires_grad=True)
    y = norm(x)
    norm(aq.tensor(data(6, 3, seed=2)))
    y.sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_state_with_buffers_makes_a_round_trip():
    a, b = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
    a(aq.tensor(data(3, 4, 5, 5)))
    assert list(a.state_dict()) == ["weight", "bias", "running_mean", "running_var"]
    b.load_state_dict(a.state_dict())
    x = aq.tensor(data(2, 4, 5, 5, seed=1))
    np.testing.assert_array_equal(a.eval()(x).numpy(), b.eval()(x).numpy())


@pytest.mark.parametrize("make", [lambda **s: nn.BatchNorm1d(4, **s), lambda **s: nn.GroupNorm(2, 4, **s)])
def test_signal_is_a_persistent_output_dtype_and_averages_are_of_decoded_values(make):
    x = aq.tensor(data(3, 4, 32))
    y = make(signal=aq.mxfp8)(x)
    assert y.value.same_bits(make()(x).quantize(aq.mxfp8).value)
    norm, exact = make(), make()
    q = x.quantize(aq.mxfp8)
    assert norm(q).dtype == aq.mxfp8
    exact(q.dequantize())
    for (_, kept), (_, expected) in zip(norm.named_buffers(), exact.named_buffers(), strict=True):
        np.testing.assert_array_equal(kept.numpy(), expected.numpy())


def test_half_signals_keep_their_dtype_and_float32_averages():
    norm = nn.BatchNorm1d(4)
    assert norm(aq.tensor(data(6, 4), dtype=aq.bfloat16)).dtype == aq.bfloat16
    assert norm.running_mean.dtype == aq.float32


def test_group_norm_is_its_op():
    x, norm = data(2, 6, 5), nn.GroupNorm(3, 6)
    np.testing.assert_array_equal(norm(aq.tensor(x)).numpy(), aq.group_norm(x, groups=3).numpy())
    assert not list(nn.GroupNorm(3, 6, affine=False).parameters())


def test_reprs():
    assert repr(nn.BatchNorm1d(4, momentum=0.5, affine=False)) == "BatchNorm1d(4, momentum=0.5, affine=False)"
    assert repr(nn.GroupNorm(2, 4, signal=aq.mxfp8)) == "GroupNorm(2, 4, signal=mxfp8)"


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nn.BatchNorm2d(4)(aq.zeros((2, 4))), ShapeError, r"BatchNorm2d: x is \(2, 4\)"),
        (lambda: nn.BatchNorm1d(4)(aq.zeros((2, 4, 1, 1))), ShapeError, "2 or 3 axes"),
        (lambda: nn.BatchNorm1d(4)(aq.zeros((1, 4))), ShapeError, "at least two values"),
        (lambda: nn.BatchNorm1d(4)(aq.zeros((0, 4))), ShapeError, "at least two values"),
        (lambda: nn.BatchNorm1d(4)(aq.zeros((2, 3))), ShapeError, "4 channels"),
        (lambda: nn.BatchNorm1d(0), ArgumentError, "channels is 0"),
        (lambda: nn.BatchNorm1d(4, momentum=2), ArgumentError, "momentum is 2"),
        (lambda: nn.GroupNorm(3, 4), ArgumentError, "4 channels in 3 groups"),
    ],
)
def test_errors_say_what_was_given_allowed_and_what_to_do(call, error, text):
    with pytest.raises(error, match=text) as caught:
        call()
    assert caught.value.allowed
    assert caught.value.remedy


def test_one_value_a_channel_is_fine_in_inference():
    assert nn.BatchNorm1d(4).eval()(aq.zeros((1, 4))).shape == (1, 4)
