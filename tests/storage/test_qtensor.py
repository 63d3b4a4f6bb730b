"""The packed tensor itself: its invariants, its size, and how it meets the rest of Python."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from autoq.errors import ArgumentError, DTypeError, SchemeError, ShapeError
from autoq.schemes import CATALOG
from autoq.storage import Layout, QTensor
from tests.examples import scaled
from tests.storage.tensors import SCHEMES, same_floats, tensors, values

VECTORS = Path(__file__).parents[1] / "data" / "vectors"
MXFP8, NVFP4 = CATALOG["mxfp8"], CATALOG["nvfp4"]


@settings(max_examples=scaled(60))
@given(tensors())
def test_pickle_and_copies_keep_every_bit(q: QTensor) -> None:
    for other in (pickle.loads(pickle.dumps(q)), copy.deepcopy(q), copy.copy(q), q.copy()):
        assert other.same_bits(q)
        assert other.scheme == q.scheme
        assert other.layout == q.layout
        assert not (q.size and other.shares_memory(q))


def test_a_pickled_slice_takes_the_slices_bytes() -> None:
    q = QTensor.quantize(values((64, 320)), MXFP8)
    assert len(pickle.dumps(q[:2])) < 1200 < len(pickle.dumps(q))


def test_quantize_then_slice_equals_slice_then_quantize() -> None:
    x = values((8, 96))
    for name in ("mxfp8", "mxfp6_e2m3", "mxfp4", "nvfp4_single", "int2", "int8"):
        q = QTensor.quantize(x, SCHEMES[name])
        for part in ((slice(1, 7, 2),), (..., slice(32, 96)), (slice(None, None, -1),)):
            assert q[part].same_bits(QTensor.quantize(x[part], SCHEMES[name]))


def test_bytes_are_those_of_words_and_scales() -> None:
    q = QTensor.quantize(values((4, 64)), MXFP8)
    assert (q.nbytes, q.bits_per_value) == (4 * 64 + 4 * 2, 8.25)
    assert q[::2].nbytes == q.nbytes // 2
    assert QTensor.quantize(values((4, 64)), NVFP4).nbytes == 4 * 32 + 4 * 4 + 4
    wide = q[:1].broadcast_to((1000, 64))
    assert wide.nbytes == 66
    assert q.dtype is q.scheme is MXFP8
    assert (q.ndim, q.size, len(q)) == (2, 256, 4)


def test_numpy_sees_decoded_values_and_never_the_memory() -> None:
    q = QTensor.quantize(values((4, 64)), MXFP8)
    assert same_floats(np.asarray(q), q.dequantize())
    assert np.asarray(q, np.float64).dtype == np.float64
    assert not hasattr(q, "__array_interface__")
    with pytest.raises(ArgumentError, match="decode|Decode"):
        np.asarray(q, copy=False)


def test_repr_is_one_line_and_html_a_small_table() -> None:
    q = QTensor.quantize(values((4, 64)), MXFP8)
    assert repr(q) == "QTensor(mxfp8, shape=(4, 64), 264 bytes)"
    html = q._repr_html_()
    for said in ("(4, 64)", "mxfp8", "264", "8.25", " to "):
        assert said in html
    assert "none" in QTensor.quantize(np.full((1, 32), np.nan, np.float32), MXFP8)._repr_html_()


def test_printing_shows_the_line_of_repr_and_a_few_decoded_values() -> None:
    q = QTensor.quantize(values((64, 64)), MXFP8)
    first, *rest = str(q).splitlines()
    assert first == repr(q)
    assert len(rest) == 7  # three rows, what stands for the others, three rows
    corner = [float(text) for text in rest[0].strip(" []").split() if text != "..."]
    np.testing.assert_allclose(corner, q.dequantize()[0, [0, 1, 2, -3, -2, -1]], rtol=1e-3)
    assert str(QTensor.quantize(np.zeros((0, 32), np.float32), MXFP8)).splitlines()[1:] == ["[]"]


def test_same_bits_tells_codes_scales_scheme_and_shape_apart() -> None:
    x = values((4, 64))
    q = QTensor.quantize(x, MXFP8)
    assert q.same_bits(QTensor.quantize(x, MXFP8.replace(scale_rule="ceil"))) == (
        q.scales.tobytes() == QTensor.quantize(x, MXFP8.replace(scale_rule="ceil")).scales.tobytes()
    )
    changed = q.copy()
    changed.words[3, 15] ^= 1 << 31
    assert not q.same_bits(changed)
    rescaled = q.copy()
    rescaled.scales[0, 0] += 1
    assert not q.same_bits(rescaled)
    assert not q.same_bits(q[:2])
    assert not q.same_bits(q.T)
    assert not q.same_bits(QTensor.quantize(x, CATALOG["mxfp8_e5m2"]))
    n = QTensor.quantize(x, NVFP4)
    assert not n.same_bits(QTensor(n.words, n.scales, n.tensor_scale * 2, NVFP4, n.shape))
    assert q.T.same_bits(q.T.copy())


Q = QTensor.quantize(np.ones((2, 64), np.float32), MXFP8)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((Q.words.view(np.int32), Q.scales, None, MXFP8, (2, 64)), DTypeError, "words are int32"),
        ((Q.words[:, :8], Q.scales, None, MXFP8, (2, 64)), ShapeError, r"words have the shape \(2, 8\)"),
        ((Q.words, Q.scales[:, :1], None, MXFP8, (2, 64)), ShapeError, "scales have the shape"),
        ((Q.words, Q.scales.astype(np.float32), None, MXFP8, (2, 64)), DTypeError, "scales are float32"),
        ((Q.words, Q.scales, 1.0, MXFP8, (2, 64)), DTypeError, "tensor_scale"),
        ((Q.words, Q.scales, None, "mxfp8", (2, 64)), DTypeError, "QuantScheme"),
        ((Q.words, Q.scales, None, MXFP8, (2, 64), Layout((0, 0))), ShapeError, "axis order"),
        ((Q.words, Q.scales, None, CATALOG["mxfp8_2d"], (64,)), ShapeError, "axes"),
    ],
)
def test_broken_invariants_are_named(arguments: tuple[Any, ...], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        QTensor(*arguments)


def test_out_of_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 64\)"):
        Q.dequantize(out=np.empty((64, 2), np.float32))


def test_len_of_a_scalar_is_refused() -> None:
    with pytest.raises(ShapeError, match="without axes"):
        len(QTensor.quantize(np.float32(2.0), CATALOG["fp8_e4m3"]))


@pytest.mark.parametrize("shape", ["128x4", "256x8", "200x6"])
def test_scale_tiles_equal_torchaos(shape: str) -> None:
    vectors = np.load(VECTORS / "torchao_scale_swizzle_128x4.npz")
    scales = vectors[f"scale_{shape}"]
    rows, columns = scales.shape
    words = np.zeros((rows, columns * 8), np.uint32)
    q = QTensor(words, scales, None, MXFP8, (rows, columns * 32))
    assert np.array_equal(q.scales_swizzled(), vectors[f"blocked_{shape}"])


def test_methods_are_the_layout_functions() -> None:
    x = values((4, 1, 64))
    q = QTensor.quantize(x, MXFP8)
    x = q.dequantize()
    pairs = [
        (q.reshape(8, 32), x.reshape(8, 32)),
        (q.transpose(), x.transpose()),
        (q.transpose(1, 0, 2), x.transpose(1, 0, 2)),
        (q.T, x.T),
        (q.mT, np.swapaxes(x, -1, -2)),
        (q.expand_dims(0), x[None]),
        (q.squeeze(1), x[:, 0]),
        (q.broadcast_to((4, 3, 64)), np.broadcast_to(x, (4, 3, 64))),
        (q.flip(), np.flip(x)),
        (q.take([2, 0], 0), x[[2, 0]]),
        (q.repeat(2, 0), np.repeat(x, 2, 0)),
        (q.pad(((0, 1), (0, 0), (0, 0))), np.pad(x, ((0, 1), (0, 0), (0, 0)))),
        (q.T.contiguous(), x.T),
    ]
    for packed, dense in pairs:
        assert same_floats(packed.dequantize(), dense)
    assert [row.shape for row in q] == [(1, 64)] * 4


def test_a_scheme_may_be_named_and_a_misspelled_one_is_refused():
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    assert QTensor.quantize(x, "nvfp4").same_bits(QTensor.quantize(x, NVFP4))
    with pytest.raises(SchemeError, match="Did you mean 'nvfp4'"):
        QTensor.quantize(x, "nvpf4")
