"""Embedding and attention modules: grouped heads, masks, positions, schemes, dropout, state."""

import numpy as np
import pytest

import autoq as aq
from autoq import nn
from autoq.devices import to_host
from autoq.errors import ArgumentError, IndexingError


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attention(*sizes, seed=0, **options):
    return nn.MultiHeadAttention(*(sizes or (64, 4)), rng=aq.Generator(seed), **options)


def by_hand(layer, x, mask=None, base=None):
    """The same from separate parts, heads on an axis of their own."""

    def heads(part, count, rope):
        y = part(x)
        y = y.reshape((*y.shape[:-1], count, y.shape[-1] // count)).permute_dims((0, 2, 1, 3))
        return aq.rope(y, base=base) if rope and base else y

    q, k = heads(layer.query, layer.heads, True), heads(layer.key, layer.kv_heads, True)
    y = aq.scaled_dot_product_attention(q, k, heads(layer.value, layer.kv_heads, False), mask, layer.causal)
    y = y.permute_dims((0, 2, 1, 3))
    return layer.output(y.reshape((*y.shape[:2], -1)))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kv_heads", [None, 2, 1])
@pytest.mark.parametrize("base", [None, 100.0])
def test_attention_is_four_linears_around_one_op(kv_heads, causal, base):
    layer, x = attention(kv_heads=kv_heads, causal=causal, rope_base=base), aq.tensor(data(2, 5, 64))
    y = layer(x)
    assert y.shape == x.shape
    np.testing.assert_allclose(y.numpy(), by_hand(layer, x, base=base).numpy(), rtol=1e-5, atol=1e-5)


def test_a_mask_leaves_positions_out():
    layer, x = attention(), data(2, 5, 64)
    mask = np.ones((2, 1, 1, 5), bool)
    mask[1, ..., 3:] = False
    y = layer(aq.tensor(x), mask).numpy()
    np.testing.assert_allclose(y[1, :3], layer(aq.tensor(x[1:, :3])).numpy()[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(y[0], layer(aq.tensor(x)).numpy()[0], rtol=1e-5, atol=1e-6)


def test_causal_attention_does_not_see_later_positions():
    layer, x = attention(causal=True, rope_base=1e4), data(1, 6, 64)
    y = layer(aq.tensor(x)).numpy()
    x[0, 4:] = 7.0
    np.testing.assert_array_equal(layer(aq.tensor(x)).numpy()[0, :4], y[0, :4])


def test_positions_shift_together_without_a_change():
    layer, x = attention(rope_base=1e4), aq.tensor(data(1, 6, 64))
    shifted = layer(x, positions=np.arange(6) + 50).numpy()
    np.testing.assert_allclose(shifted, layer(x).numpy(), atol=1e-4)
    stretched = layer(x, positions=np.arange(6) * 3).numpy()
    assert np.abs(stretched - layer(x).numpy()).max() > 1e-3


def test_the_signal_is_what_the_last_linear_gets_and_is_encoded_once():
    layer = attention(signal=aq.mxfp8, causal=True)  # heads of 16 values: no block of 32 fits between them
    seen = []
    layer.output.forward = lambda y: seen.append(y) or y
    x = aq.tensor(data(2, 5, 64))
    layer(x)
    assert seen[0].dtype == aq.mxfp8
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    exact = aq.scaled_dot_product_attention(q, k, v, causal=True, heads=4)
    assert seen[0].value.same_bits(exact.quantize(aq.mxfp8).value)


def test_a_packed_input_runs_packed_through_quantized_weights():
    layer = attention(weight_scheme=aq.nvfp4, rope_base=1e4, causal=True, kv_heads=2)
    x = aq.tensor(data(2, 5, 64)).quantize(aq.mxfp8)
    y = layer(x)
    assert y.dtype == aq.mxfp8
    notes = [e.note for e in aq.Tape.of(y).entries]
    assert not any(notes)  # nothing is moved or cut between the projections and the op
    assert np.abs(y.numpy() - layer(x.dequantize()).numpy()).max() < 0.3


def test_every_parameter_gets_a_gradient():
    layer = attention(weight_scheme=aq.mxfp8, rope_base=1e4, causal=True)
    layer(aq.tensor(data(2, 5, 64))).backward(data(2, 5, 64, seed=1))
    for name, parameter in layer.named_parameters():
        assert np.isfinite(parameter.grad.numpy()).all()
        # A constant added to all scores of a query changes nothing, but rope turns the key's bias.
        assert parameter.grad.numpy().any(), name


def test_dropout_draws_in_training_alone():
    layer, x = attention(dropout=0.5), aq.tensor(data(2, 5, 64))
    first, second = layer(x).numpy(), layer(x).numpy()
    assert (first != second).any()
    layer.eval()
    np.testing.assert_array_equal(layer(x).numpy(), layer(x).numpy())
    again = attention(dropout=0.5)
    np.testing.assert_array_equal(again(x).numpy(), first)


def test_state_makes_a_round_trip():
    a, b, x = attention(kv_heads=2), attention(kv_heads=2, seed=1), aq.tensor(data(1, 5, 64))
    b.load_state_dict(a.state_dict())
    np.testing.assert_array_equal(a(x).numpy(), b(x).numpy())
    assert [n for n, _ in a.named_parameters()][:3] == ["query.weight", "query.bias", "key.weight"]


def test_the_repr_shows_what_differs_from_the_defaults():
    layer = attention(causal=True, rope_base=1e4, dropout=0.1, signal=aq.mxfp8, bias=False)
    first = repr(layer).splitlines()[0]
    assert first == "MultiHeadAttention(4, causal=True, rope_base=10000.0, dropout=0.1, signal=mxfp8"
    assert "(key): Linear(64, 64, bias=False)" in repr(layer)


@pytest.mark.parametrize(
    ("sizes", "options", "text"),
    [
        ((64, 5), {}, "heads that divide the features"),
        ((64, 4), {"kv_heads": 3}, "kv_heads that divide the heads"),
        ((64, 0), {}, "heads is 0"),
        ((12, 4), {"rope_base": 1e4}, "rope on heads of 3"),
        ((64, 4), {"dropout": 1.0}, "dropout is 1.0"),
        ((64, 4), {"rng": None}, "rng is None"),
    ],
)
def test_errors_of_construction(sizes, options, text):
    with pytest.raises(ArgumentError, match=text):
        nn.MultiHeadAttention(*sizes, **{"rng": aq.Generator(0), **options})


@pytest.mark.parametrize("name", [None, "mxfp8", "nvfp4"])
def test_an_embedding_gives_rows_of_its_weight_as_it_is_stored(name):
    scheme = name and aq.scheme(name)
    layer = nn.Embedding(10, 32, weight_scheme=scheme, rng=aq.Generator(0))
    y = layer([[1, 2], [3, 1]])
    table = to_host(layer.packed_weight().dequantize()) if name else layer.weight.numpy()
    np.testing.assert_array_equal(y.numpy(), table[[[1, 2], [3, 1]]])
    assert y.dtype == (scheme or aq.float32)
    assert y.propagation is aq.Propagation.PROPAGATE
    y.sum().backward()
    np.testing.assert_array_equal(layer.weight.grad.numpy()[:4, 0], [0, 2, 1, 1])
    if name:
        np.testing.assert_array_equal(layer.pack()([1, 2]).numpy(), table[[1, 2]])


def test_an_embedding_with_padding_and_out_dtype():
    layer = nn.Embedding(10, 4, padding_idx=2, out_dtype="bfloat16", rng=aq.Generator(0))
    y = layer(aq.tensor(np.array([2, 3])))
    assert y.dtype == aq.bfloat16
    np.testing.assert_array_equal(y.numpy()[0].astype(np.float32), 0)
    y.sum().backward()
    assert layer.weight.grad.numpy()[2:4, 0].tolist() == [0, 1]
    assert repr(layer) == "Embedding(10, 4, padding_idx=2, out_dtype=bfloat16)"
    with pytest.raises(IndexingError, match="from 10 to 10"):
        layer([10])
    with pytest.raises(ArgumentError, match="padding_idx=10"):
        nn.Embedding(10, 4, 10, rng=aq.Generator(0))
    with pytest.raises(ArgumentError, match="Embedding: rng is None"):
        nn.Embedding(10, 4)


def test_policy_sets_every_kind_of_layer():
    rng = aq.Generator(0)
    model = nn.Sequential(
        nn.Embedding(10, 64, rng=rng), attention(), nn.LayerNorm(64), nn.Linear(64, 10, rng=rng)
    )
    nn.policy(model, signal=aq.mxfp8, stream=aq.bfloat16, weights=aq.nvfp4)
    table, layer, norm, head = model
    assert (table.weight_scheme, table.out_dtype) == (None, aq.bfloat16)
    assert (layer.signal, norm.signal) == (aq.mxfp8, aq.mxfp8)
    assert layer.query.weight_scheme == layer.output.weight_scheme == aq.nvfp4
    assert layer.output.out_dtype == aq.bfloat16
    assert head.out_dtype == aq.float32
    assert model([[1, 2, 3]]).dtype == aq.float32


def test_policy_of_convolutions():
    rng = aq.Generator(0)
    first, last = nn.Conv2d(1, 4, 3, rng=rng), nn.Conv2d(4, 2, 3, rng=rng)
    model = nn.Sequential(first, nn.BatchNorm2d(4), last)
    nn.policy(model, signal=aq.mxfp8, stream=aq.bfloat16, weights=aq.mxfp4)
    assert (first.weight_scheme, first.out_dtype) == (aq.mxfp4, aq.bfloat16)
    assert (last.weight_scheme, last.out_dtype) == (aq.mxfp4, aq.float32)
    assert model(aq.tensor(data(2, 1, 9, 9))).dtype == aq.float32
    model = nn.Sequential(first, nn.Linear(4, 2, rng=rng), last)
    nn.policy(model, stream=aq.bfloat16)
    assert last.out_dtype == aq.bfloat16
    nn.policy(model, stream=aq.bfloat16, logits=first)
    assert first.out_dtype == aq.float32
