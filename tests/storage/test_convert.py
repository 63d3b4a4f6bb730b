"""Quantize and dequantize give the oracle's bytes for every scheme, input dtype and memory layout."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoq.errors import ArgumentError, DTypeError, NonFiniteError, SchemeError, ShapeError
from autoq.random import Draw
from autoq.schemes import CATALOG, QuantScheme
from autoq.storage import QTensor, convert, encoding, inputs
from autoq.testing import reference
from tests.examples import scaled
from tests.storage.tensors import SCHEMES, check_invariants, names, same_floats, shapes, small_names, values

# float64, so that the float under test rounds them: to infinity or zero where it must.
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38, 1e-38])


def _special(dtype: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        return SPECIAL.astype(dtype)


def check_against_oracle(x: np.ndarray, scheme: QuantScheme, **options: Any) -> QTensor:
    q = QTensor.quantize(x, scheme, **options)
    expected = reference.quantize(x, scheme, **options)
    check_invariants(q)
    assert np.array_equal(q.codes(), expected.codes)
    if x.size:
        assert q.scales.tobytes() == np.asarray(expected.scales).tobytes()
        assert np.asarray(q.tensor_scale).tobytes() == np.asarray(expected.tensor_scale).tobytes()
    assert same_floats(q.dequantize(), reference.dequantize(q.codes(), q.scales, q.tensor_scale, scheme))
    return q


@settings(max_examples=scaled(120))
@given(st.data(), st.one_of(names, small_names))
def test_quantize_and_dequantize_equal_the_oracle(float_dtype: Any, data: Any, name: str) -> None:
    shape = data.draw(shapes(SCHEMES[name]))
    x = values(shape, data.draw(st.integers(0, 5))).astype(float_dtype)
    if x.size and data.draw(st.booleans()):
        x.reshape(-1)[data.draw(st.integers(0, x.size - 1))] = data.draw(
            st.sampled_from(list(_special(float_dtype)))
        )
    check_against_oracle(x, SCHEMES[name])


CHOICES = [
    CATALOG["nvfp4"].replace(scale_rule="torchao"),
    CATALOG["int2"].replace(calibration="abs_mean"),
    CATALOG["int2"].replace(calibration="abs_mean", block=None),
    CATALOG["mxfp8"].replace(nonfinite="saturate"),
    CATALOG["fp8_e4m3"].replace(nonfinite="saturate"),
    CATALOG["int4"].replace(scale="f16", tensor_scale=True),
    CATALOG["int8"].replace(scale="bf16", block=(2, 16)),
]


@pytest.mark.parametrize("scheme", CHOICES, ids=lambda s: s.name)
def test_encode_choices_equal_the_oracle(scheme: QuantScheme) -> None:
    x = values((6, 40))
    check_against_oracle(x, scheme)
    x[1, 3], x[2, 35] = np.inf, np.nan
    check_against_oracle(x, scheme)


@pytest.mark.parametrize("block", [(32,), (2, 16), None])
@pytest.mark.parametrize("shape", [(6, 40), (3, 2, 17)])
def test_stochastic_draws_are_numbered_by_element(block: Any, shape: tuple[int, ...]) -> None:
    scheme = CATALOG["int4"].replace(block=block, rounding="stochastic")
    check_against_oracle(values(shape), scheme, draw=Draw(7, 1 << 40))
    # A strided half-precision input is converted first and draws alike.
    half = values(shape).astype(np.float16)
    a = QTensor.quantize(half.T.copy().T, scheme, draw=(3, 4))
    assert a.same_bits(QTensor.quantize(half.astype(np.float32), scheme, draw=(3, 4)))


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "fp8_e4m3", "int4_tile", "int8"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, ">f4"])
def test_every_float_dtype_and_stride_is_rounded_to_float32_first(name: str, dtype: Any) -> None:
    x = values((9, 4, 40)).astype(dtype)
    expected = QTensor.quantize(np.ascontiguousarray(x, np.float32), SCHEMES[name])
    assert QTensor.quantize(x, SCHEMES[name]).same_bits(expected)
    wide = np.repeat(x, 2, axis=2)[:, :, ::2]
    assert QTensor.quantize(wide, SCHEMES[name]).same_bits(expected)
    turned = np.asfortranarray(x)
    assert QTensor.quantize(turned, SCHEMES[name]).same_bits(expected)


def test_chunks_of_a_large_half_precision_input_join_without_a_seam(monkeypatch: Any) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 256)
    monkeypatch.setattr(inputs, "CHUNK", 256)
    x = values((37, 80)).astype(np.float16)
    for name in ("mxfp8", "nvfp4"):
        expected = QTensor.quantize(x.astype(np.float32), SCHEMES[name])
        assert QTensor.quantize(x, SCHEMES[name]).same_bits(expected)
    scales = np.full((37, 3), 2.0)
    given_ = QTensor.quantize(x, CATALOG["int8"], scales=scales)
    assert given_.same_bits(QTensor.quantize(x.astype(np.float32), CATALOG["int8"], scales=scales))


def test_a_float64_beyond_float32_counts_as_infinite() -> None:
    q = QTensor.quantize(np.array([1e300, 1.0]), CATALOG["mxfp8"])
    assert np.isnan(q.dequantize()).all()
    saturated = QTensor.quantize(np.array([1e300, 1.0]), CATALOG["mxfp8"].replace(nonfinite="saturate"))
    assert saturated.codes().tolist() == [0x7E, 0x78]


@pytest.mark.parametrize("name", ["int8", "nvfp4", "fp8_e4m3", "int4_tile", "mxfp8"])
def test_given_scales_are_the_ones_divided_by(name: str) -> None:
    scheme, x = SCHEMES[name], values((4, 48))
    calibrated = QTensor.quantize(x, scheme)
    scales: Any = scheme.scale_format.decode(calibrated.scales)
    if scheme.tensor_scale:
        scales = scales, float(np.abs(x).max())
    assert QTensor.quantize(x, scheme, scales=scales).same_bits(calibrated)
    one = (2.0, 5.0) if scheme.tensor_scale else 2.0
    shared = QTensor.quantize(x, scheme, scales=one)
    assert np.unique(scheme.scale_format.decode(shared.scales)).tolist() == [2.0]
    check_against_oracle(x, scheme, scales=scales)


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_decoding_strided_words_and_other_dtypes(name: str) -> None:
    scheme = SCHEMES[name]
    q = QTensor.quantize(values((6, 4, 40)), scheme)
    whole = q.dequantize()
    if scheme.block is None or len(scheme.block) == 1:
        strided = convert.dequantize(
            q.words[::2, ::-1],
            q.scales[::2, ::-1] if scheme.block else q.scales,
            q.tensor_scale,
            scheme,
            (3, 4, 40),
        )
        assert same_floats(strided, whole[::2, ::-1])
    assert q.dequantize(np.float64).dtype == np.float64
    half = q.dequantize(np.float16)
    with np.errstate(over="ignore"):
        assert np.array_equal(half, whole.astype(np.float16))
    out = np.full((40, 4, 6), 9.0, np.float32).transpose(2, 1, 0)
    assert q.dequantize(out=out) is out
    assert same_floats(out, whole)
    turned = np.empty((40, 4, 6), ml_dtypes.bfloat16)
    q.T.dequantize(out=turned)
    assert np.array_equal(turned, whole.T.astype(ml_dtypes.bfloat16))


def test_pack_follows_the_bit_stream() -> None:
    codes = np.array([[1, 2, 3, 4, 5]], np.uint8)
    for bits in range(3, 9):
        words = convert.pack(codes, bits)
        stream = sum(int(c) << (bits * k) for k, c in enumerate(codes[0]))
        assert [int(w) for w in words[0]] == [stream >> (32 * i) & 0xFFFFFFFF for i in range(words.shape[1])]
        assert np.array_equal(convert.unpack(words, bits, codes.shape), codes)


@pytest.mark.parametrize("shape", [(0,), (0, 40), (3, 0), (2, 0, 33)])
@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_empty_tensors(name: str, shape: tuple[int, ...]) -> None:
    scheme = SCHEMES[name]
    if len(scheme.block or ()) > len(shape):
        return
    q = QTensor.quantize(np.zeros(shape, np.float32), scheme)
    check_invariants(q)
    assert q.dequantize().shape == q.codes().shape == shape
    assert q.bits_per_value == scheme.bits_per_value


@pytest.mark.parametrize(
    ("x", "scheme", "options", "error", "said"),
    [
        (np.ones(4, complex), "mxfp8", {}, DTypeError, "real or imaginary"),
        (np.ones(4, int), "mxfp8", {}, DTypeError, "astype"),
        (np.array([None]), "mxfp8", {}, DTypeError, "object"),
        (np.float32(1.0), "mxfp8", {}, ShapeError, "at least 1 axes"),
        (np.ones(32, np.float32), "nvfp4_2d", {}, ShapeError, "at least 2 axes"),
        (np.ones((2, 32)), "int8", {"scales": np.ones((2, 2))}, ShapeError, r"\(2, 1\)"),
        (np.ones((2, 32)), "nvfp4", {"scales": np.ones((2, 2))}, ArgumentError, "pair"),
    ],
)
def test_wrong_input_is_named(
    x: Any, scheme: str, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        QTensor.quantize(x, CATALOG[scheme], **options)


def test_decoding_to_integers_is_refused() -> None:
    q = QTensor.quantize(np.ones(32, np.float32), CATALOG["mxfp8"])
    with pytest.raises(DTypeError, match="int32"):
        q.dequantize(np.int32)
    with pytest.raises(DTypeError, match="uint8"):
        q.dequantize(out=np.zeros(32, np.uint8))


def test_stochastic_rounding_asks_for_a_draw() -> None:
    with pytest.raises(ArgumentError, match="Generator"):
        QTensor.quantize(np.ones(32, np.float32), CATALOG["int4"].replace(rounding="stochastic"))


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "fp8_e4m3", "int4_tile"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_raise_names_the_first_offender(name: str, dtype: Any) -> None:
    scheme = SCHEMES[name].replace(nonfinite="raise")
    x = values((3, 40)).astype(dtype)
    assert QTensor.quantize(x, scheme).same_bits(QTensor.quantize(x, SCHEMES[name]))
    x[1, 7], x[2, 0] = np.inf, np.nan
    with pytest.raises(NonFiniteError, match=r"index \(1, 7\) is inf"):
        QTensor.quantize(x, scheme)


def test_an_unknown_scheme_is_named() -> None:
    from autoq.schemes import scheme

    with pytest.raises(SchemeError, match="mxfp8"):
        scheme("mxpf8")
