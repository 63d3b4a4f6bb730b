"""Attention against a loop over queries: masks, grouped heads, packed operands; and rotary positions."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, DTypeError, ShapeError


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def attended(q, k, v, mask=None, scale=None):
    """One query after another; `mask` has the shape of the scores."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    repeats = q.shape[1] // k.shape[1]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    for b, h, i in np.ndindex(q.shape[:-1]):
        keep = np.ones(k.shape[2], bool) if mask is None else mask[b, h, i]
        if keep.any():
            scores = k[b, h // repeats][keep] @ q[b, h, i] * scale
            weights = np.exp(scores - scores.max())
            out[b, h, i] = weights @ v[b, h // repeats][keep] / weights.sum()
    return out


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_is_the_weighted_mean_of_the_values(groups, scale):
    q, k, v = data(2, 4, 5, 6), data(2, groups, 7, 6, seed=1), data(2, groups, 7, 3, seed=2)
    y = aq.scaled_dot_product_attention(q, k, v, scale=scale)
    np.testing.assert_allclose(y.numpy(), attended(q, k, v, scale=scale), atol=1e-12)


def test_a_mask_leaves_keys_out_and_a_query_without_keys_gives_zero():
    q, k, v = data(2, 4, 5, 6), data(2, 2, 7, 6, seed=1), data(2, 2, 7, 3, seed=2)
    mask = np.random.default_rng(3).random((2, 4, 5, 7)) < 0.4
    mask[0, 1, 2] = False
    y = aq.scaled_dot_product_attention(q, k, v, mask)
    np.testing.assert_allclose(y.numpy(), attended(q, k, v, mask), atol=1e-12)
    np.testing.assert_array_equal(y.numpy()[0, 1, 2], 0)
    shared = mask[0, 0]
    y = aq.scaled_dot_product_attention(q, k, v, shared)
    np.testing.assert_allclose(y.numpy(), attended(q, k, v, np.broadcast_to(shared, mask.shape)), atol=1e-12)


def test_what_is_masked_reaches_neither_values_nor_gradients():
    q, k, v = (aq.tensor(data(1, 2, 4, 6, seed=s), requires_grad=True) for s in range(3))
    mask = np.ones((4, 4), bool)
    mask[:, 3] = mask[1] = False
    y = aq.scaled_dot_product_attention(q, k, v, mask)
    y.sum().backward()
    for x in (q, k, v):
        assert np.isfinite(x.grad.numpy()).all()
    np.testing.assert_array_equal(k.grad.numpy()[..., 3, :], 0)
    np.testing.assert_array_equal(v.grad.numpy()[..., 3, :], 0)
    np.testing.assert_array_equal(q.grad.numpy()[..., 1, :], 0)


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (1, 5), (3, 5), (5, 3)])
def test_causal_attention_lets_the_last_query_see_the_last_key(queries, keys):
    q, k, v = data(1, 2, queries, 4), data(1, 2, keys, 4, seed=1), data(1, 2, keys, 4, seed=2)
    mask = np.broadcast_to(
        [[j <= i + keys - queries for j in range(keys)] for i in range(queries)], (1, 2, queries, keys)
    )
    y = aq.scaled_dot_product_attention(q, k, v, causal=True)
    np.testing.assert_allclose(y.numpy(), attended(q, k, v, mask), atol=1e-12)
    both = np.arange(keys) % 2 == 0
    y = aq.scaled_dot_product_attention(q, k, v, both, causal=True)
    np.testing.assert_allclose(y.numpy(), attended(q, k, v, mask & both), atol=1e-12)


def test_heads_side_by_side_are_heads_on_an_axis():
    q, k, v = data(2, 5, 4 * 6), data(2, 7, 2 * 6, seed=1), data(2, 7, 2 * 3, seed=2)

    def opened(x, heads):
        return x.reshape(*x.shape[:-1], heads, -1).swapaxes(1, 2)

    expected = attended(opened(q, 4), opened(k, 2), opened(v, 2)).swapaxes(1, 2).reshape(2, 5, 12)
    y = aq.scaled_dot_product_attention(q, k, v, heads=4, kv_heads=2)
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("scheme", ["mxfp8", "nvfp4", "int8"])
def test_packed_operands_are_decoded_once_and_the_result_is_encoded_once(scheme):
    q, k, v = (aq.tensor(data(2, 5, 64, seed=s), dtype=aq.scheme(scheme)) for s in range(3))
    mask = np.tri(5, dtype=bool)
    mask[2] = False
    y = aq.scaled_dot_product_attention(q, k, v, mask, heads=4)
    exact = aq.scaled_dot_product_attention(*(x.dequantize() for x in (q, k, v)), mask, heads=4)
    assert y.dtype == q.dtype
    assert y.value.same_bits(exact.quantize(q.dtype).value)
    assert np.isfinite(y.numpy()).all()
    np.testing.assert_array_equal(y.numpy()[:, 2], 0)


def test_rows_of_minus_infinity_are_rows_without_keys():
    q, k, v = np.full((1, 2, 4), -np.inf), np.ones((1, 3, 4)), data(1, 3, 4)
    np.testing.assert_array_equal(aq.scaled_dot_product_attention(q, k, v).numpy(), 0)


def test_dropout_repeats_with_its_seed_and_keeps_the_mean():
    q, k, v = np.zeros((1, 200, 4)), np.zeros((1, 64, 4)), np.ones((1, 64, 2))
    first, second, other = (
        aq.scaled_dot_product_attention(q, k, v, dropout=0.25, rng=aq.Generator(s)).numpy() for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    assert first.mean() == pytest.approx(1.0, abs=0.02)
    with pytest.raises(ArgumentError, match=r"dropout without a generator(.|\n)*Pass rng="):
        aq.scaled_dot_product_attention(q, k, v, dropout=0.25)


def test_attention_without_keys_or_queries():
    none = np.zeros((2, 0, 4))
    assert aq.scaled_dot_product_attention(none, none, none).shape == (2, 0, 4)
    y = aq.scaled_dot_product_attention(np.ones((2, 3, 4)), none, none)
    np.testing.assert_array_equal(y.numpy(), np.zeros((2, 3, 4)))


A = np.ones((2, 4, 3, 6))
WRONG = [
    ((A, A[..., :5], A), {}, ShapeError, "k is"),
    ((A, A[:, :3], A[:, :3]), {}, ShapeError, "groups dividing heads"),
    ((A, A, A[..., :2, :]), {}, ShapeError, "v is"),
    ((A[0, 0, 0], A, A), {}, ShapeError, r"q is \(6,\)"),
    ((A, A, A, np.ones((3, 2), bool)), {}, ShapeError, r"mask is \(3, 2\)"),
    ((A, A, A, np.zeros((3, 3))), {}, DTypeError, "a mask of float64"),
    ((A, A, A), {"heads": 4}, ShapeError, "as 4 heads"),
    ((A, A, A), {"dropout": 1.5, "rng": aq.Generator(0)}, ArgumentError, "1.5"),
]


@pytest.mark.parametrize(("operands", "static", "error", "text"), WRONG)
def test_errors_of_attention(operands, static, error, text):
    with pytest.raises(error, match=text) as caught:
        aq.scaled_dot_product_attention(*operands, **static)
    assert caught.value.allowed
    assert caught.value.remedy


def turned(x, positions, base, interleaved):
    out, d = np.empty_like(x), x.shape[-1]
    for p, row, result in zip(positions, x, out, strict=True):
        for i in range(d // 2):
            a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + d // 2)
            angle = p * base ** (-2 * i / d)
            result[a] = row[a] * np.cos(angle) - row[b] * np.sin(angle)
            result[b] = row[a] * np.sin(angle) + row[b] * np.cos(angle)
    return out


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("positions", [None, [7, 0, 3, 100]])
def test_rope_turns_each_pair_by_its_angle(interleaved, positions):
    x = data(4, 6)
    expected = turned(x, range(4) if positions is None else positions, 100.0, interleaved)
    y = aq.rope(x, positions=positions, base=100.0, interleaved=interleaved)
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-13)


def test_products_of_turned_vectors_depend_on_the_distance_alone():
    q, k = data(1, 8), data(1, 8, seed=1)

    def product(p, r):
        return float((aq.rope(q, positions=[p]) * aq.rope(k, positions=[r])).sum().item())

    assert product(3, 1) == pytest.approx(product(1002, 1000), rel=1e-9)
    assert product(3, 1) != pytest.approx(product(1, 3), rel=1e-3)
    assert product(5, 5) == pytest.approx(float((q * k).sum()), rel=1e-12)


def test_rope_keeps_lengths_and_its_gradient_turns_back():
    x, g = aq.tensor(data(2, 3, 8), requires_grad=True), data(2, 3, 8, seed=1)
    y = aq.rope(x, positions=[5, 6, 7])
    np.testing.assert_allclose(np.linalg.norm(y.numpy(), axis=-1), np.linalg.norm(x.numpy(), axis=-1))
    y.backward(g)
    np.testing.assert_allclose(aq.rope(x.grad, positions=[5, 6, 7]).numpy(), g, atol=1e-13)


def test_rope_of_heads_side_by_side_turns_each_by_itself():
    x = data(2, 5, 3 * 4)
    y = aq.rope(x, heads=3).numpy().reshape(2, 5, 3, 4)
    expected = aq.rope(x.reshape(2, 5, 3, 4).swapaxes(1, 2)).numpy().swapaxes(1, 2)
    np.testing.assert_array_equal(y, expected)


def test_rope_far_out_is_as_exact_as_near():
    x = np.ones((1, 4), np.float32)
    far = aq.rope(x, positions=[1_000_000]).numpy()
    np.testing.assert_allclose(far, turned(x.astype(float), [1_000_000], 1e4, False), atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "static", "error", "text"),
    [
        ((3, 5), {}, ShapeError, r"x is \(3, 5\)"),
        ((4,), {}, ShapeError, r"x is \(4,\)"),
        ((3, 6), {"heads": 2}, ShapeError, "heads=2"),
        ((3, 4), {"positions": [1, 2]}, ShapeError, r"positions are \(2,\)"),
        ((3, 4), {"positions": np.array(["a"])}, DTypeError, "numbers"),
    ],
)
def test_errors_of_rope(shape, static, error, text):
    with pytest.raises(error, match=text) as caught:
        aq.rope(np.ones(shape), **static)
    assert caught.value.remedy
