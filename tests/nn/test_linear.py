"""Linear: its forward uses exactly the packed weight, and the master weight and bias train."""

import numpy as np
import pytest

import autoq as aq
from autoq import nn
from autoq.devices import to_host
from autoq.errors import ArgumentError, DTypeError, SchemeError

SCHEMES = ["mxfp8", "mxfp6_e2m3", "mxfp4", "nvfp4", "nvfp4_2d", "int8", "int4", "fp8_e4m3", "fp8_block"]


def data(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def layer_of(scheme=None, **options):
    return nn.Linear(48, 7, weight_scheme=scheme, rng=aq.Generator(0), **options)


def test_a_float_layer_is_a_product_and_a_sum():
    layer, x = layer_of(), data(5, 48)
    expected = x @ layer.weight.numpy().T + layer.bias.numpy()
    np.testing.assert_allclose(layer(aq.tensor(x)).numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SCHEMES)
def test_the_forward_equals_the_packed_weight_bit_for_bit(name):
    layer, x = layer_of(aq.scheme(name)), aq.tensor(data(5, 48))
    decoded = aq.quantize(aq.tensor(layer.weight.numpy()), aq.scheme(name)).dequantize()
    by_hand = aq.linear(x, decoded, aq.tensor(layer.bias.numpy()))
    np.testing.assert_array_equal(layer(x).numpy(), by_hand.numpy())
    np.testing.assert_array_equal(to_host(layer.packed_weight().dequantize()), decoded.numpy())


def test_the_packed_weight_is_that_of_the_master_weight():
    layer = layer_of(aq.nvfp4)
    assert layer.packed_weight().same_bits(aq.QTensor.quantize(layer.weight.numpy(), aq.nvfp4))
    assert layer.packed_weight().scheme == aq.nvfp4


@pytest.mark.parametrize("bias", [True, False])
def test_the_gradient_passes_straight_through_to_the_master_weight(bias):
    layer, x = layer_of(aq.mxfp4, bias=bias), data(5, 48)
    cotangent = data(5, 7, seed=1)
    inputs = aq.tensor(x, requires_grad=True)
    layer(inputs).backward(cotangent)
    np.testing.assert_allclose(layer.weight.grad.numpy(), cotangent.T @ x, rtol=1e-4, atol=1e-5)
    packed = to_host(layer.packed_weight().dequantize())
    np.testing.assert_allclose(inputs.grad.numpy(), cotangent @ packed, rtol=1e-4, atol=1e-5)
    assert layer.weight.grad.dtype == aq.float32
    if bias:
        np.testing.assert_allclose(layer.bias.grad.numpy(), cotangent.sum(0), rtol=1e-5, atol=1e-6)


def test_a_packed_signal_stays_in_its_scheme_through_quantized_weights():
    layer = nn.Linear(64, 32, weight_scheme=aq.nvfp4, rng=aq.Generator(0))
    q = aq.tensor(data(5, 64)).quantize(aq.mxfp8)
    assert layer(q).dtype == aq.mxfp8
    assert type(layer(q)) is aq.AutodiffQTensor


def test_the_output_follows_the_input_and_out_dtype_overrides_it(float_dtype):
    x = aq.tensor(data(5, 48), dtype=float_dtype)
    assert layer_of(aq.int4)(x).dtype == float_dtype
    assert layer_of(dtype=np.float64)(x).dtype == float_dtype
    assert layer_of(aq.int4, out_dtype=aq.float64)(x).dtype == aq.float64
    assert layer_of(aq.int4, out_dtype="mxfp8")(x).dtype == aq.mxfp8


def test_parameters_have_the_dtype_that_was_asked_for(float_dtype):
    layer = layer_of(aq.mxfp8, dtype=float_dtype)
    assert layer.weight.dtype == layer.bias.dtype == float_dtype
    layer(aq.tensor(data(5, 48))).sum().backward()
    assert layer.weight.grad.dtype == layer.bias.grad.dtype == float_dtype


def test_the_scheme_can_be_changed_later():
    layer = layer_of()
    layer.weight_scheme = "int8"
    assert layer.packed_weight().scheme == aq.int8
    assert repr(layer) == "Linear(48, 7, weight_scheme=int8)"


def test_a_packed_layer_computes_the_same_and_is_not_trainable():
    layer, x = layer_of(aq.nvfp4), aq.tensor(data(5, 48))
    packed = layer.pack()
    np.testing.assert_array_equal(packed(x).numpy(), layer(x).numpy())
    assert packed.packed_weight().same_bits(layer.packed_weight())
    assert layer.weight_scheme == aq.nvfp4
    assert repr(packed) == "Linear(48, 7, weight=nvfp4)"
    with pytest.raises(DTypeError, match=r"nvfp4 \(7, 48\)(.|\n)*weight_scheme="):
        aq.optim.SGD(packed.parameters(), lr=0.1)


def test_a_stochastic_weight_draws_from_the_layers_generator():
    scheme = aq.int4.replace(rounding="stochastic")
    first, second = (layer_of(scheme) for _ in range(2))
    a, b = first.packed_weight(), first.packed_weight()
    assert not np.array_equal(a.codes(), b.codes())
    assert a.same_bits(second.packed_weight())


def test_starting_values_depend_on_the_seed_and_stay_in_their_bound():
    layer = layer_of()
    np.testing.assert_array_equal(layer.weight.numpy(), layer_of().weight.numpy())
    assert not np.array_equal(layer.weight.numpy(), nn.Linear(48, 7, rng=aq.Generator(1)).weight.numpy())
    assert np.abs(layer.weight.numpy()).max() <= 1 / np.sqrt(48)


def test_a_layer_without_a_generator_says_what_to_pass():
    with pytest.raises(ArgumentError, match=r"Linear: rng is None(.|\n)*Pass rng=aq.Generator\(seed\)"):
        nn.Linear(4, 2)


@pytest.mark.parametrize("size", [0, -1, 2.0])
def test_a_size_below_one_is_refused(size):
    with pytest.raises(ArgumentError, match="out_features is"):
        nn.Linear(4, size, rng=aq.Generator(0))


def test_a_weight_scheme_that_is_none_is_refused():
    with pytest.raises(DTypeError, match="weight_scheme=float32"):
        nn.Linear(4, 2, weight_scheme=aq.float32, rng=aq.Generator(0))
    with pytest.raises(SchemeError, match="nvfp4"):
        nn.Linear(4, 2, weight_scheme="nvfp5", rng=aq.Generator(0))


def test_packed_weight_without_a_scheme_says_what_to_do():
    with pytest.raises(ArgumentError, match=r"the weight is float32(.|\n)*weight_scheme="):
        layer_of().packed_weight()
