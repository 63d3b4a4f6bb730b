"""Changed entries: ``at``, scatter, index_add, masked_fill keep the target's type and its untouched bits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import autoq as aq
from autoq.devices import to_host
from autoq.errors import ArgumentError, DTypeError, GradientError, IndexingError, ShapeError

SCHEMES = [
    *(aq.scheme(name) for name in ("mxfp8", "mxfp6_e2m3", "mxfp4", "nvfp4", "int8", "int4")),
    aq.QuantScheme("int8", (4, 16)),
    aq.QuantScheme("int8", None),
]


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def blocks_of(scheme, shape, touched):
    """Which values lie in a block with a touched one; for one block a tensor, the touched ones alone."""
    if scheme.block is None:
        return touched
    spread = np.zeros(shape, bool)
    for place in zip(*np.nonzero(touched), strict=True):
        spread[
            tuple(
                slice(i // extent * extent, i // extent * extent + extent)
                for i, extent in zip(place, scheme.extents(len(shape)), strict=True)
            )
        ] = True
    return spread


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.name)
@pytest.mark.parametrize(
    "index", [(2, slice(30, 34)), (slice(None), 5), (Ellipsis, [0, 69]), np.eye(6, 70, dtype=bool)]
)
def test_only_touched_blocks_are_encoded_again(scheme, index):
    q = aq.tensor(data(6, 70), dtype=scheme)
    new = q.at[index].set(0.25)
    touched = np.zeros((6, 70), bool)
    touched[index] = True
    kept = ~blocks_of(scheme, (6, 70), touched)
    assert kept.any()
    assert new.tensor_type is q.tensor_type
    np.testing.assert_array_equal(to_host(new.qtensor.codes())[kept], to_host(q.qtensor.codes())[kept])
    np.testing.assert_array_equal(new.numpy()[kept], q.numpy()[kept])
    changed = q.numpy().copy()
    changed[index] = 0.25
    if scheme.block is not None and not scheme.tensor_scale:
        np.testing.assert_array_equal(new.numpy()[~kept], aq.tensor(changed, dtype=scheme).numpy()[~kept])
    assert q.numpy()[index].max() != 0.25


@pytest.mark.parametrize(
    "scheme", [aq.mxfp4, aq.nvfp4, aq.QuantScheme("int8", (4, 16))], ids=lambda s: s.name
)
def test_a_transposed_target_keeps_its_axis_order(scheme):
    q = aq.tensor(data(32, 64), dtype=scheme)
    turned = q.T.at[3, 4].set(0.5)
    assert turned.T.qtensor.same_bits(q.at[4, 3].set(0.5).qtensor)


def test_a_scale_of_the_whole_tensor_stays_and_values_beyond_it_clip():
    q = aq.tensor(np.linspace(-1, 1, 8, dtype=np.float32), dtype=aq.QuantScheme("int8", None))
    new = q.at[0].set(50.0)
    np.testing.assert_array_equal(to_host(new.qtensor.scales), to_host(q.qtensor.scales))
    assert new.numpy()[0] == q.numpy().max()
    q = aq.tensor(data(2, 64), dtype=aq.nvfp4)
    new = q.at[0, 0].set(1e6)
    assert new.qtensor.tensor_scale == q.qtensor.tensor_scale
    assert np.isfinite(new.numpy()).all()
    np.testing.assert_array_equal(new.numpy()[:, 16:], q.numpy()[:, 16:])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("scheme", [aq.mxfp8, aq.nvfp4, aq.QuantScheme("int8", None)], ids=lambda s: s.name)
def test_a_non_finite_value_is_seen_in_its_block(scheme, value):
    assert np.isnan(aq.tensor(data(2, 64), dtype=scheme).at[0, 0].set(value).numpy()[0, :16]).all()


@pytest.mark.parametrize("dtype", [aq.float64, aq.float32, aq.float16, aq.bfloat16, aq.int64, aq.uint8])
def test_dense_targets_equal_numpy_and_keep_their_dtype(dtype):
    x = np.arange(12).reshape(3, 4)
    t = aq.tensor(x, dtype=dtype)
    expected = x.copy()
    expected[1:, ::2] = 7
    assert t.at[1:, ::2].set(7).tolist() == expected.tolist()
    expected = x.copy()
    np.add.at(expected, [0, 0, 2], 1)
    added = t.at[[0, 0, 2]].add(1)
    assert added.tolist() == expected.tolist()
    assert added.dtype == dtype


def test_the_flag_of_the_target_stays():
    weight = aq.Parameter(data(4, 32), dtype=aq.mxfp8)
    assert weight.at[0].set(aq.tensor(data(32))).tensor_type is weight.tensor_type
    x = aq.tensor(data(4), dtype=aq.float16)
    assert x.at[0].add(aq.tensor(np.float64(1))).dtype == aq.float16


def test_gradients_of_set_and_add():
    x, v = (aq.tensor(data(4, seed=s), requires_grad=True) for s in (1, 2))
    weights = aq.tensor([1.0, 2.0, 3.0, 4.0])
    (x.at[1:3].set(v[:2]) * weights).sum().backward()
    assert x.grad.tolist() == [1, 0, 0, 4]
    assert v.grad.tolist() == [2, 3, 0, 0]
    x.grad = v.grad = None
    (x.at[[0, 0, 1, 3]].add(v) * weights).sum().backward()
    assert x.grad.tolist() == [1, 2, 3, 4]
    assert v.grad.tolist() == [1, 1, 2, 4]


def test_of_an_entry_set_twice_the_last_value_has_the_gradient():
    x, v = aq.tensor(data(3), requires_grad=True), aq.tensor([5.0, 6.0, 7.0], requires_grad=True)
    new = x.at[[0, 0, -3]].set(v)
    assert new.tolist()[0] == 7.0
    new.sum().backward()
    assert v.grad.tolist() == [0, 0, 1]
    assert x.grad.tolist() == [0, 1, 1]


def test_a_packed_target_passes_gradients_to_itself_and_to_the_values():
    q = aq.tensor(data(2, 64), dtype=aq.mxfp4, requires_grad=True)
    v = aq.tensor(data(64), requires_grad=True)
    q.at[0].set(v).sum().backward()
    assert q.grad.tolist() == [[0.0] * 64, [1.0] * 64]
    assert v.grad.tolist() == [1.0] * 64


def test_scatter_is_the_counterpart_of_take_along_axis():
    x, v = data(3, 5), data(3, 2)
    indices = np.array([[0, 4], [1, 2], [3, 0]])
    expected = x.copy()
    np.put_along_axis(expected, indices, v, axis=1)
    np.testing.assert_array_equal(aq.scatter(x, indices, v, axis=1).numpy(), expected)
    np.testing.assert_array_equal(aq.scatter(x, indices, v).gather(indices).numpy(), v)
    twice = aq.tensor(x).scatter_add([[0, 0]], 1.0)
    np.testing.assert_array_equal(twice.numpy(), x + 2 * np.eye(1, 5, dtype=np.float32))


def test_index_add_is_the_counterpart_of_take():
    x, v = data(3, 5), data(3, 4)
    expected = x.copy()
    np.add.at(expected, (slice(None), [0, 0, 4, 2]), v)
    np.testing.assert_array_equal(aq.index_add(x, [0, 0, -1, 2], v, axis=1).numpy(), expected)


def test_masked_fill_and_its_gradient():
    x = aq.tensor(data(3, 4), requires_grad=True)
    mask = np.array([True, False, True, False])
    y = x.masked_fill(mask, 5.0)
    np.testing.assert_array_equal(y.numpy(), np.where(mask, 5.0, x.numpy()))
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.broadcast_to(~mask, (3, 4)))
    value = aq.tensor(2.0, requires_grad=True)
    aq.masked_fill(x, mask, value).sum().backward()
    assert value.grad.item() == 6


def test_a_mask_value_into_a_quantized_result_warns_and_names_softmax():
    q, mask = aq.tensor(data(2, 32), dtype=aq.mxfp8), np.arange(32) < 3
    for call in (lambda: aq.masked_fill(q, mask, -1e9), lambda: aq.where(mask, -1e4, q)):
        with pytest.warns(UserWarning, match=r"softmax\(mask=\)"):
            call()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aq.masked_fill(q, mask, -9e3)
        aq.where(mask, q, aq.tensor(-1e9))  # data is never inspected
        aq.masked_fill(q.dequantize(), mask, -1e9)
        aq.where(mask, q, -1e9, out_dtype=aq.float32)


def test_item_assignment_to_packed_values_is_the_same_update():
    q = aq.tensor(data(4, 64), dtype=aq.mxfp8)
    new, before = q.at[1, :40].set(0.5), q.qtensor
    q[1, :40] = 0.5
    assert q.qtensor.same_bits(new.qtensor)
    assert not q.qtensor.same_bits(before)


def test_errors_of_changing_tracked_tensors_name_at():
    x = aq.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match=r"\.at\["):
        x[0] = 1.0
    with pytest.raises(GradientError, match=r"\.at\["):
        x += 1.0


X = aq.tensor(np.ones((2, 3), np.float32))
WRONG = [
    (lambda: X.at[2].set(0.0), IndexingError, "(2, 3)"),
    (lambda: X.at["a"].set(0.0), IndexingError, "'a'"),
    (lambda: X.at[0].set(np.ones(2)), ShapeError, "(2,)"),
    (lambda: X.at[[0, 0]].add(np.ones((4, 2, 3))), ShapeError, "(4, 2, 3)"),
    (lambda: X.quantize(aq.mxfp8).at[0, 0, 0].set(1.0), IndexingError, "(2, 3)"),
    (lambda: aq.tensor([1, 2]).at[0].set(0.5), DTypeError, "float values into a int64"),
    (lambda: aq.tensor([1, 2], dtype=aq.uint8).at[0].set(300), ArgumentError, "uint8"),
    (lambda: aq.scatter(X, [[0, 3]], 1.0), IndexingError, "(2, 3)"),
    (lambda: aq.scatter(X, [0], 1.0), ShapeError, "indices are (1,)"),
    (lambda: aq.scatter_add(X, [[0.5]], 1.0), IndexingError, "float64"),
    (lambda: aq.scatter(X, [[0]], 1.0, axis=2), ShapeError, "axis=2"),
    (lambda: aq.index_add(X, [0], 1.0, axis=None), ShapeError, "axis=None"),
    (lambda: aq.masked_fill(X, [1, 0, 1], 0.0), DTypeError, "int64"),
    (lambda: aq.masked_fill(X, [True, False], 0.0), ShapeError, "(2,)"),
    (lambda: aq.masked_fill(X, True, [1.0, 2.0]), ShapeError, "(2,)"),
    (lambda: X.__setitem__(5, 0.0), IndexingError, "(2, 3)"),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG)
def test_error_says_what_was_given_allowed_and_what_to_do(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert caught.value.allowed
    assert caught.value.remedy


def test_an_empty_target_and_an_empty_index():
    assert aq.tensor(np.zeros((0, 3), np.float32)).at[:, 0].add(1.0).shape == (0, 3)
    q = aq.tensor(data(2, 32), dtype=aq.mxfp8)
    assert q.at[[]].set(1.0).qtensor.same_bits(q.qtensor)
    assert aq.tensor(3.0).at[()].add(1.0).item() == 4.0
