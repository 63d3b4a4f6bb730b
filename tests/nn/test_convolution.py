"""Convolution modules: the op they stand for, fake-quantized weights, packing, state and repr."""

import numpy as np
import pytest

import autoq as aq
from autoq import nn
from autoq.errors import ArgumentError, StateError

LAYERS = [
    (nn.Conv1d, (4, 6, 3), {"padding": 1}, (2, 4, 9), (2, 6, 9)),
    (nn.Conv2d, (4, 6, (3, 2)), {"stride": 2, "groups": 2}, (2, 4, 9, 8), (2, 6, 4, 4)),
    (nn.ConvTranspose2d, (4, 6, 2), {"stride": 2, "output_padding": 1}, (2, 4, 3, 3), (2, 6, 7, 7)),
]


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def made(kind, sizes, options, scheme=None, **more):
    return kind(*sizes, weight_scheme=scheme, rng=aq.Generator(0), **options, **more)


def by_hand(layer, x, weight):
    given = layer._placement()
    return aq.tape.apply.apply(layer.op, x, weight, layer.bias, kernel_size=layer.kernel_size, **given)


@pytest.mark.parametrize(("kind", "sizes", "options", "shape", "out"), LAYERS)
@pytest.mark.parametrize("name", [None, "mxfp8", "nvfp4", "int4"])
def test_the_forward_computes_with_exactly_the_packed_weight(kind, sizes, options, shape, out, name):
    layer, x = made(kind, sizes, options, name and aq.scheme(name)), aq.tensor(data(*shape))
    y = layer(x)
    assert y.shape == out
    weight = aq.tensor(layer.packed_weight().dequantize()) if name else layer.weight
    np.testing.assert_array_equal(y.numpy(), by_hand(layer, x, weight).numpy())
    if name:
        rows = layer.weight.numpy().reshape(layer.weight.shape[0], -1)
        assert layer.packed_weight().same_bits(aq.QTensor.quantize(rows, aq.scheme(name)))


@pytest.mark.parametrize(("kind", "sizes", "options", "shape", "out"), LAYERS)
def test_the_gradient_passes_straight_through_to_the_master_weight(kind, sizes, options, shape, out):
    layer, x = made(kind, sizes, options, aq.mxfp4), aq.tensor(data(*shape), requires_grad=True)
    g = data(*out, seed=1)
    layer(x).backward(g)
    decoded = aq.tensor(layer.packed_weight().dequantize().reshape(layer.weight.shape), requires_grad=True)
    z = aq.tensor(data(*shape), requires_grad=True)
    by_hand(layer, z, decoded).backward(g)
    np.testing.assert_allclose(layer.weight.grad.numpy(), decoded.grad.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy(), rtol=1e-5, atol=1e-5)
    assert layer.bias.grad.shape == (6,)


@pytest.mark.parametrize(("kind", "sizes", "options", "shape", "out"), LAYERS)
def test_a_packed_layer_computes_the_same(kind, sizes, options, shape, out):
    layer, x = made(kind, sizes, options, aq.nvfp4), aq.tensor(data(*shape))
    packed = layer.pack()
    np.testing.assert_array_equal(packed(x).numpy(), layer(x).numpy())
    assert packed.packed_weight().same_bits(layer.packed_weight())
    assert "weight=nvfp4" in repr(packed)
    again = layer.pack()
    again.load_state_dict(packed.state_dict())
    np.testing.assert_array_equal(again(x).numpy(), layer(x).numpy())


@pytest.mark.parametrize(("kind", "sizes", "options", "shape", "out"), LAYERS)
def test_state_makes_a_round_trip(kind, sizes, options, shape, out):
    a, x = made(kind, sizes, options, aq.mxfp8), aq.tensor(data(*shape))
    b = kind(*sizes, weight_scheme=aq.mxfp8, rng=aq.Generator(1), **options)
    assert (a(x).numpy() != b(x).numpy()).any()
    b.load_state_dict(a.state_dict())
    np.testing.assert_array_equal(a(x).numpy(), b(x).numpy())
    with pytest.raises(StateError, match="weight"):
        b.load_state_dict({"weight": np.zeros((1, 1), np.float32), "bias": b.bias.numpy()})


def test_a_packed_signal_stays_in_its_scheme_and_out_dtype_overrides_it():
    x = aq.tensor(data(2, 4, 9, 32), dtype=aq.mxfp8)
    layer = nn.Conv2d(4, 6, 3, padding=1, weight_scheme="nvfp4", rng=aq.Generator(0))
    assert layer(x).dtype == aq.mxfp8
    layer.out_dtype = aq.bfloat16
    assert layer(x).dtype == aq.bfloat16


def test_parameters_have_the_dtype_that_was_asked_for(float_dtype):
    layer = nn.Conv2d(4, 6, 3, rng=aq.Generator(0), dtype=float_dtype)
    layer(aq.tensor(data(1, 4, 5, 5))).sum().backward()
    assert layer.weight.dtype == layer.bias.dtype == layer.weight.grad.dtype == float_dtype


def test_starting_values_stay_in_their_bound():
    weight = nn.Conv2d(4, 32, 3, groups=2, rng=aq.Generator(0)).weight.numpy()
    bound = 1 / np.sqrt(2 * 9)
    assert 0.9 * bound < np.abs(weight).max() <= bound


def test_a_small_network_learns():
    rng = aq.Generator(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, weight_scheme=aq.mxfp8, rng=rng), nn.BatchNorm2d(4), nn.ReLU(),
        nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2, rng=rng),
    )  # fmt: skip
    x = data(16, 1, 8, 8)
    labels = np.arange(16) % 2
    x[labels == 1] += 1.0
    optimizer = aq.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(30):
        loss = nn.cross_entropy(model(aq.tensor(x)), labels)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_reprs_show_what_differs_from_the_defaults():
    rng = aq.Generator(0)
    assert repr(nn.Conv2d(3, 8, 3, rng=rng)) == "Conv2d(3, 8, 3)"
    layer = nn.Conv2d(4, 8, (3, 2), (2, 1), 1, 2, 4, False, weight_scheme=aq.int4, rng=rng)
    expected = "(3, 2), stride=(2, 1), padding=1, dilation=2, groups=4, bias=False, weight_scheme=int4"
    assert repr(layer) == f"Conv2d(4, 8, {expected})"
    layer = nn.ConvTranspose2d(4, 8, 3, 2, output_padding=1, rng=rng)
    assert repr(layer) == "ConvTranspose2d(4, 8, 3, stride=2, output_padding=1)"


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((3, 8, 3), {"rng": None}, "Conv2d: rng is None"),
        ((0, 8, 3), {}, "in_channels is 0"),
        ((3, 8.0, 3), {}, "out_channels is 8.0"),
        ((3, 8, 3), {"groups": 2}, "groups that divide both"),
        ((3, 8, 0), {}, "kernel_size=0"),
        ((3, 8, (3, 3, 3)), {}, "or 2 of them"),
    ],
)
def test_errors_of_construction(arguments, options, text):
    with pytest.raises(ArgumentError, match=text):
        nn.Conv2d(*arguments, **{"rng": aq.Generator(0), **options})


def test_packed_weight_without_a_scheme_says_what_to_do():
    with pytest.raises(
        ArgumentError, match=r"Conv2d.packed_weight: the weight is float32(.|\n)*weight_scheme="
    ):
        nn.Conv2d(3, 8, 3, rng=aq.Generator(0)).packed_weight()


def test_pools_and_flatten_are_their_ops():
    x = aq.tensor(data(2, 3, 8, 8))
    pairs = [
        (nn.MaxPool2d(2), aq.max_pool2d(x, 2)),
        (nn.MaxPool1d(3, 1, 1), aq.max_pool1d(x, 3, 1, 1)),
        (nn.AvgPool2d(3, 2, 1, count_padding=False), aq.avg_pool2d(x, 3, 2, 1, False)),
        (nn.AvgPool1d(2), aq.avg_pool1d(x, 2)),
        (nn.AdaptiveAvgPool2d((2, 3)), aq.adaptive_avg_pool2d(x, (2, 3))),
        (nn.AdaptiveAvgPool1d(3), aq.adaptive_avg_pool1d(x, 3)),
    ]
    for module, expected in pairs:
        np.testing.assert_array_equal(module(x).numpy(), expected.numpy())
        assert not list(module.parameters())
    assert nn.Flatten()(x).shape == (2, 192)
    assert nn.Flatten(2)(x).shape == (2, 3, 64)
    assert nn.Flatten()(aq.zeros((0, 3, 4))).shape == (0, 12)
    with pytest.raises(aq.errors.ShapeError, match="start=3"):
        nn.Flatten(3)(aq.zeros((2, 3)))
    reprs = ["MaxPool2d(2)", "MaxPool1d(3, stride=1, padding=1)",
             "AvgPool2d(3, stride=2, padding=1, count_padding=False)"]  # fmt: skip
    assert [repr(module) for module, _ in pairs[:3]] == reprs
    assert repr(nn.AdaptiveAvgPool2d((2, 3))) == "AdaptiveAvgPool2d((2, 3))"


def test_flatten_of_whole_blocks_is_a_view():
    q = aq.tensor(data(2, 4, 32), dtype=aq.mxfp8)
    flat = nn.Flatten()(q)
    assert flat.value.shares_memory(q.value)
    np.testing.assert_array_equal(flat.numpy(), q.numpy().reshape(2, 128))
