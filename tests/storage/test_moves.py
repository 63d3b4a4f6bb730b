"""Layout functions commute with decoding, bit for bit, on every scheme, shape, axis and step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoq.devices import to_host
from autoq.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from autoq.schemes import CATALOG
from autoq.storage import QTensor, move
from tests.examples import scaled
from tests.storage.tensors import (
    SCHEMES,
    check_invariants,
    check_moved,
    names,
    quantized,
    same_floats,
    small_names,
    tensors,
    values,
)

either = st.one_of(small_names, names)


def reshaped_sizes(draw: Any, size: int) -> tuple[int, ...]:
    """A shape of ``size`` values, axes of 1 among them."""
    sizes: list[int] = []
    while size > 1 and len(sizes) < 3 and draw(st.booleans()):
        divisors = [d for d in range(1, size + 1) if size % d == 0 and d < 100]
        sizes.append(draw(st.sampled_from(divisors)))
        size //= sizes[-1]
    sizes.append(size)
    for _ in range(draw(st.integers(0, 2))):
        sizes.insert(draw(st.integers(0, len(sizes))), 1)
    return tuple(sizes)


@settings(max_examples=scaled(200))
@given(st.data(), tensors(either))
def test_reshape(data: Any, q: QTensor) -> None:
    shape = reshaped_sizes(data.draw, q.size) if q.size else (0, 3)
    if q.scheme.block and len(q.scheme.innermost(len(shape)).block or ()) > len(shape):
        return
    result, how = move.reshape(q, shape)
    if q.size and result.shape != q.shape:
        check_moved(q, result, how, lambda x: x.reshape(shape))


@settings(max_examples=scaled(100))
@given(st.data(), tensors(either))
def test_permute_dims(data: Any, q: QTensor) -> None:
    axes = data.draw(st.permutations(range(q.ndim)))
    result, how = move.permute_dims(q, axes)
    assert how == "view"
    check_moved(q, result, how, lambda x: x.transpose(axes))


@settings(max_examples=scaled(100))
@given(st.data(), tensors(either))
def test_expand_dims_and_squeeze_undo_each_other(data: Any, q: QTensor) -> None:
    axis = data.draw(st.integers(0, q.ndim))
    wider, how = move.expand_dims(q, axis)
    assert how == "view" or not q.size or not q.ndim or not q.words.flags.c_contiguous
    check_moved(q, wider, how, lambda x: np.expand_dims(x, axis))
    back, how = move.squeeze(wider, axis)
    assert how != "decode"
    check_moved(wider, back, how, lambda x: np.squeeze(x, axis))
    assert same_floats(back.dequantize(), q.dequantize())


@settings(max_examples=scaled(100))
@given(tensors(either))
def test_squeeze_all(q: QTensor) -> None:
    if q.scheme.block and len(q.scheme.block) > sum(n != 1 for n in q.shape) > 0:
        return
    result, how = move.squeeze(q)
    if result is not q:
        check_moved(q, result, how, np.squeeze)


@settings(max_examples=scaled(100))
@given(st.data(), tensors(either))
def test_broadcast_to(data: Any, q: QTensor) -> None:
    shape = tuple(data.draw(st.sampled_from((1, 2, 5))) if n == 1 else n for n in q.shape)
    shape = (*data.draw(st.sampled_from(((), (3,), (2, 1)))), *shape)
    result, how = move.broadcast_to(q, shape)
    assert how != "decode"
    assert same_floats(result.dequantize(), np.broadcast_to(to_host(q.dequantize()), shape))
    check_invariants(result)
    assert how == "copy" or not q.size or result.shares_memory(q)


def an_index(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A NumPy index: slices of any step, integers, None, Ellipsis, at most one array."""
    parts: list[Any] = []
    array_at = draw(st.one_of(st.none(), st.integers(0, max(0, len(shape) - 1))))
    for axis, n in enumerate(shape[: draw(st.integers(0, len(shape)))]):
        bound = st.one_of(st.none(), st.integers(-n - 2, n + 2))
        kind = draw(st.sampled_from(("slice", "slice", "step", "block", "int")))
        if axis == array_at and n:
            places = st.lists(st.integers(-n, n - 1), max_size=5).map(lambda p: np.array(p, np.int64))
            parts.append(draw(st.one_of(places, st.just(np.arange(n) % 2 == 0))))
        elif kind == "int" and n:
            parts.append(draw(st.integers(-n, n - 1)))
        elif kind == "block":
            parts.append(slice(4 * draw(st.integers(0, 3)), draw(bound)))
        else:
            step = None if kind == "slice" else draw(st.sampled_from((-3, -1, 1, 2)))
            parts.append(slice(draw(bound), draw(bound), step))
        if draw(st.integers(0, 9)) == 0:
            parts.append(None)
    if draw(st.booleans()) and len(parts) < len(shape):
        parts.append(Ellipsis)
    return tuple(parts)


@settings(max_examples=scaled(400))
@given(st.data(), tensors(either, least=1))
def test_getitem(data: Any, q: QTensor) -> None:
    index = an_index(data.draw, q.shape)
    expected = q.dequantize()[index]
    if q.scheme.block and 0 < expected.ndim < len(q.scheme.innermost(expected.ndim).block or ()):
        return
    result, how = move.getitem(q, index)
    check_moved(q, result, how, lambda x: x[index])


@settings(max_examples=scaled(100))
@given(st.data(), tensors(either, least=1))
def test_flip_take_repeat(data: Any, q: QTensor) -> None:
    axis = data.draw(st.integers(-q.ndim, q.ndim - 1))
    n = q.shape[axis]
    check_moved(q, *move.flip(q, axis), lambda x: np.flip(x, axis))
    check_moved(q, *move.repeat(q, 3, axis), lambda x: np.repeat(x, 3, axis))
    if n:
        indices = np.array(data.draw(st.lists(st.integers(-n, n - 1), max_size=6)), np.int64)
        indices = indices.reshape(2, -1) if len(indices) % 2 == 0 else indices
        check_moved(q, *move.take(q, indices, axis), lambda x: np.take(x, indices, axis))


@settings(max_examples=scaled(100))
@given(st.data(), tensors(either, least=1))
def test_concat_and_stack_of_one_tensors_parts(data: Any, q: QTensor) -> None:
    axis = data.draw(st.integers(0, q.ndim - 1))
    cut = data.draw(st.integers(0, q.shape[axis]))
    parts = []
    for piece in (slice(0, cut), slice(cut, None)):
        part, how = move.getitem(q, (slice(None),) * axis + (piece,))
        if how == "decode":
            return
        parts.append(part)
    joined, how = move.concat(parts, axis)
    if how == "decode":
        whole = np.concatenate([to_host(p.dequantize()) for p in parts], axis)
        assert joined.same_bits(QTensor.encode(whole, q.scheme.innermost(q.ndim)))
    else:
        check_moved(q, joined, how, lambda x: x)
    at = data.draw(st.integers(0, q.ndim))
    stacked, how = move.stack([q, q], at)
    assert how == "copy"
    check_moved(q, stacked, how, lambda x: np.stack([x, x], at))


@settings(max_examples=scaled(100))
@given(st.data(), tensors(either, least=1))
def test_pad(data: Any, q: QTensor) -> None:
    widths = [(data.draw(st.sampled_from((0, 0, 1, 4, 32))), data.draw(st.sampled_from((0, 0, 1, 4, 32))))
              for _ in q.shape]  # fmt: skip
    result, how = move.pad(q, widths)
    if any(map(any, widths)):
        check_moved(q, result, how, lambda x: np.pad(x, widths))
    else:
        assert result is q


@settings(max_examples=scaled(100))
@given(tensors(either))
def test_contiguous_is_lossless_and_done_once(q: QTensor) -> None:
    result, how = move.contiguous(q)
    assert how in ("view", "copy")
    check_moved(q, result, how, lambda x: x)
    assert result.words.flags.c_contiguous
    assert result.is_contiguous
    again, how = move.contiguous(result)
    assert again is result
    assert how == "view"
    if q.scheme.block is None or result.layout.order[q.ndim - 1 :] == (q.ndim - 1,):
        assert result.layout.is_identity or len(q.scheme.block or ()) > 1


MX, NV, TENSOR = CATALOG["mxfp8"], CATALOG["nvfp4"], CATALOG["fp8_e4m3"]
BLOCK8, TILE = SCHEMES["int2_block8"], SCHEMES["int4_tile"]
# Scheme, shape, what is done, and what S34 to S36 say it takes.
SITUATIONS = [
    (MX, (4, 64), lambda q: move.permute_dims(q, (1, 0)), "view"),
    (MX, (4, 64), lambda q: move.expand_dims(q, 2), "view"),
    (MX, (4, 1, 64), lambda q: move.squeeze(q), "view"),
    (MX, (4, 6, 64), lambda q: move.reshape(q, (24, 64)), "view"),
    (MX, (24, 64), lambda q: move.reshape(q, (2, 3, 4, 64)), "view"),
    (MX, (2, 4, 96), lambda q: move.reshape(q, (2, 4, 3, 32)), "view"),
    (MX, (2, 4, 3, 32), lambda q: move.reshape(q, (2, 4, 96)), "view"),
    (MX, (2, 4, 3, 32), lambda q: move.reshape(q, (-1,)), "view"),
    (MX, (4, 6, 64), lambda q: move.reshape(move.permute_dims(q, (1, 0, 2))[0], (24, 64)), "copy"),
    (MX, (4, 64), lambda q: move.reshape(q, (4, 4, 16)), "copy"),
    (MX, (4, 48), lambda q: move.reshape(q, (2, 96)), "decode"),
    (MX, (4, 48), lambda q: move.reshape(q, (12, 16)), "copy"),
    (MX, (4, 48), lambda q: move.reshape(q, (8, 24)), "decode"),
    (MX, (1, 64), lambda q: move.broadcast_to(q, (5, 64)), "view"),
    (MX, (64, 1), lambda q: move.broadcast_to(q, (64, 5)), "copy"),
    (MX, (9, 64), lambda q: move.getitem(q, slice(7, 1, -2)), "view"),
    (MX, (9, 64), lambda q: move.getitem(q, 3), "view"),
    (MX, (9, 64), lambda q: move.flip(q, 0), "view"),
    (MX, (9, 80), lambda q: move.getitem(q, (..., slice(32, 64))), "view"),
    (MX, (9, 80), lambda q: move.getitem(q, (..., slice(32, 80))), "view"),
    (MX, (9, 80), lambda q: move.getitem(q, (..., slice(32, 50))), "copy"),
    (MX, (9, 80), lambda q: move.getitem(q, (..., slice(2, 9))), "copy"),
    (MX, (9, 80), lambda q: move.getitem(q, (..., slice(20, 40))), "decode"),
    (MX, (9, 80), lambda q: move.getitem(q, (..., 5)), "decode"),
    (MX, (9, 64), lambda q: move.flip(q, 1), "copy"),
    (MX, (9, 80), lambda q: move.flip(q, 1), "decode"),
    (MX, (9, 64), lambda q: move.take(q, [3, 3], 0), "copy"),
    (MX, (9, 64), lambda q: move.getitem(q, np.arange(9) > 4), "copy"),
    (MX, (9, 64), lambda q: move.take(q, [3, 40], 1), "decode"),
    (MX, (9, 64), lambda q: move.repeat(q, 2, 0), "copy"),
    (MX, (9, 64), lambda q: move.repeat(q, 32, 1), "copy"),
    (MX, (9, 64), lambda q: move.concat([q, q], 0), "copy"),
    (MX, (9, 64), lambda q: move.concat([q, q], 1), "copy"),
    (MX, (9, 80), lambda q: move.concat([q, q], 1), "decode"),
    (MX, (9, 80), lambda q: move.stack([q, q], 2), "copy"),
    (MX, (9, 64), lambda q: move.pad(q, ((1, 1), (32, 7))), "copy"),
    (MX, (9, 64), lambda q: move.pad(q, ((0, 0), (8, 0))), "decode"),
    (MX, (9, 64), lambda q: move.pad(q, 1, value=2.0), "decode"),
    (BLOCK8, (4, 32), lambda q: move.getitem(q, (..., slice(16, 32))), "view"),
    (BLOCK8, (4, 32), lambda q: move.getitem(q, (..., slice(8, 24))), "copy"),
    (BLOCK8, (4, 32), lambda q: move.reshape(q, (4, 4, 8)), "copy"),
    (BLOCK8, (4, 32), lambda q: move.reshape(q, (4, 2, 16)), "view"),
    (TENSOR, (4, 30), lambda q: move.getitem(q, (..., slice(4, 12))), "view"),
    (TENSOR, (4, 30), lambda q: move.getitem(q, (..., slice(3, 12))), "copy"),
    (TENSOR, (4, 30), lambda q: move.flip(q), "copy"),
    (TENSOR, (4, 30), lambda q: move.getitem(q, (..., 3)), "copy"),
    (TENSOR, (4, 30), lambda q: move.getitem(q, (1, 3)), "copy"),
    (TENSOR, (4, 32), lambda q: move.reshape(q, (128,)), "view"),
    (TENSOR, (4, 30), lambda q: move.reshape(q, (120,)), "copy"),
    (TENSOR, (4, 30), lambda q: move.contiguous(q.T), "copy"),
    (TILE, (8, 16), lambda q: move.getitem(q, slice(2, 6)), "view"),
    (TILE, (8, 16), lambda q: move.getitem(q, (slice(4, None), slice(8, 16))), "view"),
    (TILE, (8, 16), lambda q: move.getitem(q, slice(1, 5)), "decode"),
    (TILE, (8, 16), lambda q: move.flip(q), "copy"),
    (TILE, (3, 8, 16), lambda q: move.reshape(q, (24, 16)), "view"),
    (TILE, (6, 32), lambda q: move.reshape(q, (6, 4, 8)), "view"),
    (TILE, (6, 32), lambda q: move.reshape(q.reshape(6, 4, 8), (6, 32)), "view"),
    (TILE, (6, 32), lambda q: move.reshape(q, (6, 8, 4)), "copy"),
    (MX, (4, 6, 64), lambda q: move.reshape(q.permute_dims((2, 0, 1)), (2, 32, 24)), "view"),
    (TILE, (3, 7, 16), lambda q: move.reshape(q, (21, 16)), "decode"),
    (TILE, (8, 16), lambda q: move.permute_dims(q, (1, 0)), "view"),
    (TILE, (8, 16), lambda q: move.getitem(q, 0), "decode"),
    (NV, (4, 32), lambda q: move.getitem(q, (slice(1, 3), slice(16, 32))), "view"),
    (NV, (4, 32), lambda q: move.concat([q, q[1:]], 0), "copy"),
    (NV, (4, 32), lambda q: move.concat([q, quantized(values((2, 32), 7), NV)], 0), "decode"),
    (MX, (0, 64), lambda q: move.getitem(q, slice(1)), "view"),
    (MX, (4, 64), lambda q: move.contiguous(q), "view"),
    (MX, (4, 64), lambda q: move.contiguous(q[::2]), "copy"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(SITUATIONS)))
def test_how_a_situation_is_handled(case: int) -> None:
    scheme, shape, action, expected = SITUATIONS[case]
    q = quantized(values(shape), scheme)
    result, how = action(q)
    assert how == expected
    if isinstance(result, QTensor) and q.size and result.size and how != "decode":
        assert result.shares_memory(q) == (how == "view")


def test_tensor_scale_and_shared_scales_travel() -> None:
    q = quantized(values((4, 32)), CATALOG["nvfp4"])
    assert q[1].tensor_scale == q.reshape(128).tensor_scale == q.T.tensor_scale == q.tensor_scale
    p = quantized(values((4, 32)), CATALOG["fp8_e4m3"])
    assert p[1, 3:9].scales == p.T.contiguous().scales == p.scales


def test_concat_takes_the_default_choices_where_choices_differ() -> None:
    a = quantized(values((2, 32)), CATALOG["mxfp8"].replace(scale_rule="floor"))
    b = quantized(values((2, 32)), CATALOG["mxfp8"].replace(scale_rule="even"))
    ab, ba = move.concat([a, b])[0], move.concat([b, a])[0]
    assert ab.scheme == ba.scheme == CATALOG["mxfp8"]
    assert same_floats(ab[:2].dequantize(), a.dequantize())


def test_several_index_arrays_copy_whole_lines() -> None:
    q = quantized(values((3, 4, 32)), CATALOG["mxfp4"])
    index = (np.array([[0], [2]]), np.array([1, 1, 3]))
    check_moved(q, *move.getitem(q, index), lambda x: x[index])
    assert move.getitem(q, index)[1] == "copy"
    mask = values((3, 4)) > 0
    check_moved(q, *move.getitem(q, mask), lambda x: x[mask])
    apart = (np.array([0, 1]), slice(None), np.array([0, 5]))
    check_moved(q, *move.getitem(q, apart), lambda x: x[apart])


Q = quantized(np.ones((4, 64), np.float32), CATALOG["mxfp8"])


@pytest.mark.parametrize(
    ("action", "error", "said"),
    [
        (lambda: move.reshape(Q, (5, 5)), ShapeError, "256 values"),
        (lambda: move.reshape(Q, (-1, -1)), ShapeError, "one -1"),
        (lambda: move.permute_dims(Q, (0, 0)), ShapeError, "twice"),
        (lambda: move.permute_dims(Q, (0,)), ShapeError, "every axis once"),
        (lambda: move.flip(Q, 2), ShapeError, "axis 2"),
        (lambda: move.squeeze(Q, 0), ShapeError, "size 4"),
        (lambda: move.broadcast_to(Q, (3, 64)), ShapeError, r"\(3, 64\)"),
        (lambda: move.take(Q, [4], 0), IndexingError, "index 4 along axis 0 of size 4"),
        (lambda: move.take(Q, [0.5], 0), IndexingError, "integers"),
        (lambda: move.getitem(Q, (0, 0, 0)), IndexingError, "2 parts"),
        (lambda: move.getitem(Q, -5), IndexingError, "index -5"),
        (lambda: move.getitem(Q, "row"), IndexingError, "slices"),
        (lambda: move.getitem(Q, np.ones(3, bool)), IndexingError, r"mask of shape \(3,\)"),
        (lambda: move.repeat(Q, -1, 0), ArgumentError, "none negative"),
        (lambda: move.concat([]), ShapeError, "no tensors"),
        (lambda: move.concat([Q, Q[:, :32]]), ShapeError, "other axes"),
        (lambda: move.stack([Q, Q[:2]]), ShapeError, "shapes"),
        (lambda: move.concat([Q, quantized(np.ones((4, 64), np.float32), CATALOG["int8"])]),
         DTypeError, "mxfp8, int8"),
        (lambda: move.pad(Q, ((1, 2, 3),)), ShapeError, "widths"),
        (lambda: Q[0].mT, ShapeError, "two axes"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(action: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        action()
