"""Activations, norms, dropout and losses: the op they stand for, and their persistent output dtype."""

import numpy as np
import pytest

import autoq as aq
from autoq import nn
from autoq.errors import ArgumentError, DTypeError, ShapeError

ACTIVATIONS = {
    nn.ReLU: lambda x: np.maximum(x, 0),
    nn.LeakyReLU: lambda x: np.where(x > 0, x, 0.01 * x),
    nn.GELU: lambda x: x * 0.5 * (1 + _erf(x / np.sqrt(2))),
    nn.SiLU: lambda x: x / (1 + np.exp(-x)),
    nn.Tanh: np.tanh,
    nn.Sigmoid: lambda x: 1 / (1 + np.exp(-x)),
    nn.Softplus: lambda x: np.log1p(np.exp(x)),
}


def _erf(x):
    from math import erf

    return np.vectorize(erf)(x)


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_an_activation_is_its_formula(kind):
    x = data(4, 32)
    np.testing.assert_allclose(kind()(aq.tensor(x)).numpy(), ACTIVATIONS[kind](x), rtol=1e-5, atol=1e-6)


NORMS = [lambda **s: nn.LayerNorm(32, **s), lambda **s: nn.RMSNorm(32, **s)]


@pytest.mark.parametrize("kind", [*ACTIVATIONS, *NORMS])
def test_signal_is_a_persistent_output_dtype(kind):
    x = aq.tensor(data(4, 32))
    module = kind(signal=aq.mxfp8)
    assert module(x).dtype == aq.mxfp8
    assert kind()(x).dtype == aq.float32
    assert "signal=mxfp8" in repr(module)
    expected = aq.quantize(kind()(x), aq.mxfp8)
    assert module(x).value.same_bits(expected.value)


def test_a_signal_can_be_given_by_name():
    assert nn.ReLU(signal="mxfp8").signal == aq.mxfp8
    assert nn.ReLU(signal="int8").signal == aq.int8
    assert nn.ReLU(signal="bfloat16").signal == aq.bfloat16


def test_a_signal_of_integers_is_refused():
    with pytest.raises(DTypeError, match=r"int8 as the dtype of a signal(.|\n)*aq.int8, not np.int8"):
        nn.ReLU(signal=np.int8)


def test_the_slope_of_a_leaky_relu_is_its_own():
    assert nn.LeakyReLU(0.5)(aq.tensor([-4.0])).item() == -2.0
    assert repr(nn.LeakyReLU(0.5)) == "LeakyReLU(0.5)"


def test_layer_norm_scales_what_has_mean_zero_and_variance_one():
    x, norm = data(4, 32) * 3 + 1, nn.LayerNorm(32)
    with aq.no_grad():
        norm.weight.assign(data(32, seed=1))
        norm.bias.assign(data(32, seed=2))
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    expected = normal * norm.weight.numpy() + norm.bias.numpy()
    np.testing.assert_allclose(norm(aq.tensor(x)).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert [name for name, _ in nn.LayerNorm(32, bias=False).named_parameters()] == ["weight"]
    without = nn.LayerNorm(32, bias=False)(aq.tensor(x)).numpy()
    np.testing.assert_allclose(without, normal, rtol=1e-4, atol=1e-5)


def test_rms_norm_divides_by_the_root_mean_square():
    x, norm = data(4, 32) * 3, nn.RMSNorm(32, eps=1e-3)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(norm(aq.tensor(x)).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_dropout_zeroes_its_rate_and_scales_the_rest():
    layer = nn.Dropout(0.25, aq.Generator(0))
    y = layer(aq.tensor(np.ones((100, 100), np.float32))).numpy()
    assert np.unique(y).tolist() == [0.0, np.float32(1 / 0.75)]
    assert abs((y == 0).mean() - 0.25) < 0.02


def test_dropout_repeats_with_its_seed_and_differs_from_call_to_call():
    first, second = (nn.Dropout(0.5, aq.Generator(3)) for _ in range(2))
    x = aq.tensor(np.ones((64,), np.float32))
    a, b = first(x).numpy(), first(x).numpy()
    assert not np.array_equal(a, b)
    np.testing.assert_array_equal(a, second(x).numpy())
    np.testing.assert_array_equal(b, second(x).numpy())


def test_dropout_passes_its_input_in_eval_and_at_rate_zero():
    x = aq.tensor(np.ones((8,), np.float32))
    assert nn.Dropout(0.5, aq.Generator(0)).eval()(x) is x
    assert nn.Dropout(0.0, aq.Generator(0))(x) is x


def test_dropout_of_a_packed_signal_stays_packed():
    x = aq.tensor(np.ones((4, 32), np.float32)).quantize(aq.mxfp8)
    assert nn.Dropout(0.5, aq.Generator(0))(x).dtype == aq.mxfp8


def test_dropout_without_a_generator_is_an_error():
    with pytest.raises(ArgumentError, match=r"Dropout: rng is None(.|\n)*Pass rng=aq.Generator\(seed\)"):
        nn.Dropout(0.5)
    with pytest.raises(ArgumentError, match="rate is 1.0"):
        nn.Dropout(1.0, aq.Generator(0))


@pytest.mark.parametrize(("shape", "flat"), [((3, 4, 64), (3, 256)), ((5,), (5, 1)), ((0, 2, 3), (0, 6))])
def test_flatten_keeps_the_first_axis_and_the_order(shape, flat):
    x = data(*shape)
    np.testing.assert_array_equal(nn.Flatten()(x).numpy(), x.reshape(flat))


def test_flatten_keeps_packed_values_packed_and_refuses_a_number():
    q = aq.tensor(data(3, 4, 64)).quantize(aq.mxfp8)
    assert nn.Flatten()(q).qtensor.shares_memory(q.qtensor)
    with pytest.raises(ShapeError, match="Flatten: start=1 of shape"):
        nn.Flatten()(aq.tensor(1.0))


def test_cross_entropy_is_the_mean_of_minus_log_softmax():
    logits, targets = data(6, 5), np.array([0, 1, 2, 3, 4, 0])
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = -np.log(p[np.arange(6), targets]).mean()
    for loss in (nn.cross_entropy, nn.CrossEntropyLoss()):
        assert loss(aq.tensor(logits), targets).item() == pytest.approx(expected, rel=1e-5)


def test_mse_is_the_mean_squared_difference():
    a, b = data(6, 5), data(6, 5, seed=1)
    for loss in (nn.mse_loss, nn.MSELoss()):
        assert loss(aq.tensor(a), aq.tensor(b)).item() == pytest.approx(((a - b) ** 2).mean(), rel=1e-5)


def test_losses_of_packed_logits_are_float32_and_of_float64_stay_float64():
    logits, targets = data(6, 32), np.arange(6)
    assert nn.cross_entropy(aq.tensor(logits).quantize(aq.mxfp8), targets).dtype == aq.float32
    assert nn.cross_entropy(aq.tensor(logits, dtype=aq.float16), targets).dtype == aq.float32
    assert nn.cross_entropy(aq.tensor(logits, dtype=aq.float64), targets).dtype == aq.float64
    assert nn.mse_loss(aq.tensor(logits).quantize(aq.int8), logits).dtype == aq.float32
