"""What storage writes is what the oracle writes, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from autoq.errors import ArgumentError, NonFiniteError, ShapeError
from autoq.schemes import CATALOG, ELEMENTS, SCALES, QuantScheme, scheme
from autoq.testing.codecs import Oracle, Storage

NAMED = sorted({form.name for form in CATALOG.values()})
# One of each: stochastic rounding, saturation, means, two levels, wide scales, odd blocks.
OTHERS = [
    scheme("mxfp8").replace(rounding="stochastic"),
    scheme("mxfp4").replace(rounding="stochastic8", scale_rule="even"),
    scheme("nvfp4").replace(scale_rule="four_over_six", nonfinite="saturate"),
    QuantScheme("int2", None, calibration="abs_mean"),
    QuantScheme("int8", (2, 4), "f16", tensor_scale=True),
    QuantScheme("e4m3", (5,), "bf16", scale_rule="nearest", nonfinite="saturate"),
]
FLOATS = arrays(np.float32, array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=40),
                elements=st.floats(width=32))  # fmt: skip


@pytest.mark.compiled
def test_every_combination_interpreted():
    matrix = Path(__file__).parent / "interpreted_matrix.py"
    # NumPy warns of overflow where compiled code doesn't.
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(matrix),
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::RuntimeWarning",
    ]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "AUTOQ_MATRIX": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]


@pytest.mark.parametrize("name", NAMED)
@given(x=FLOATS)
@example(x=np.zeros((2, 40), np.float32))
@example(x=np.full((2, 40), np.finfo(np.float32).max, np.float32))
@example(x=np.full((2, 40), np.float32(1e-45)))
def test_named_schemes(name, x, assert_same):
    assert_same(scheme(name), x)


@pytest.mark.parametrize("form", [*map(scheme, NAMED), *OTHERS], ids=lambda form: form.name)
def test_edges_of_float32(form, edges, assert_same):
    rng = np.random.default_rng(20)
    for shape in ((40, 70), (3, 5, 33)):
        draw = None if form.rounding == "nearest" else (3, 1 << 40)
        assert_same(form, edges(rng, shape), draw)
        assert_same(form, edges(rng, shape, finite=True), draw)


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "int8", "fp8_e4m3", "mxfp8_2d"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_floats_are_rounded_to_float32_first(name, dtype, edges, assert_same):
    x = edges(np.random.default_rng(21), (20, 64)).astype(np.float64) * 1.0000001
    with np.errstate(over="ignore"):
        x = x.astype(getattr(ml_dtypes, dtype, dtype))
        assert_same(scheme(name), x)
        assert_same(scheme(name), x[::-1, ::2])
        ours, expected = (
            Storage.quantize(x, scheme(name)),
            Oracle.quantize(x.astype(np.float32), scheme(name)),
        )
    np.testing.assert_array_equal(ours.codes, expected.codes)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("shape", [(0,), (0, 32), (3, 0), (2, 0, 32), (1,), (1, 1), (1, 1, 33)])
def test_empty_and_small_shapes(name, shape, assert_same):
    form = scheme(name)
    if len(shape) < len(form.block or ()):
        for codec in (Oracle, Storage):
            with pytest.raises(ShapeError):
                codec.quantize(np.ones(shape, np.float32), form)
    else:
        assert_same(form, np.full(shape, -1.25, np.float32))


@pytest.mark.parametrize("codec", [Oracle, Storage])
def test_a_scalar_has_a_scale_of_its_own_under_one_block_a_tensor(codec):
    result = codec.quantize(np.float32(-3.0), scheme("fp8_e4m3"))
    assert result.codes.shape == result.scales.shape == ()
    assert codec.dequantize(*result, scheme("fp8_e4m3")) == -3.0
    with pytest.raises(ShapeError):
        codec.quantize(np.float32(-3.0), scheme("mxfp8"))


@pytest.mark.parametrize("codec", [Oracle, Storage])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_raise_names_the_first_offender(codec, dtype):
    x = np.ones((3, 40), dtype)
    x[1, 7], x[2, 3] = -np.inf, np.nan
    with pytest.raises(NonFiniteError, match=r"\(1, 7\)"):
        codec.quantize(x, scheme("int8").replace(nonfinite="raise"))
    x = np.nan_to_num(x, nan=0.0, neginf=0.0)
    assert np.isfinite(codec.dequantize(*codec.quantize(x, scheme("int8").replace(nonfinite="raise")),
                                        scheme("int8"))).all()  # fmt: skip


@pytest.mark.parametrize("codec", [Oracle, Storage])
def test_stochastic_rounding_without_a_draw_is_an_error(codec):
    with pytest.raises(ArgumentError):
        codec.quantize(np.ones(32, np.float32), scheme("mxfp8").replace(rounding="stochastic"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("element", ELEMENTS)
def test_every_short_float_encodes_alike(element, dtype):
    x = np.arange(1 << 16, dtype=np.uint16).view(getattr(ml_dtypes, dtype, dtype)).astype(np.float32)
    np.testing.assert_array_equal(Storage.encode(x, element), Oracle.encode(x, element))


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_code_decodes_alike(element):
    codes = np.arange(1 << ELEMENTS[element].bits, dtype=np.uint8)
    ours, expected = Storage.decode(codes, element), Oracle.decode(codes, element)
    np.testing.assert_array_equal(ours, expected)
    np.testing.assert_array_equal(np.signbit(ours) & (ours == 0), np.signbit(expected) & (expected == 0))


@pytest.mark.parametrize("name", ["ue8m0", "ue4m3", "f16", "bf16"])
def test_every_scale_that_is_stored_decodes_alike(name):
    form = SCALES[name]
    stored = np.arange(1 << form.bits, dtype=f"uint{form.bits}").view(form.stored_dtype)
    values = form.decode(stored)
    # Negative and infinite scales are never written.
    stored = stored[(np.isfinite(values) & ~np.signbit(values)) | np.isnan(values)]
    codes = np.resize(np.array([0x10, 0x08, 0x3C, 0xF7], np.uint8), (len(stored), 4))
    scheme = QuantScheme("e5m2", (4,), name)
    scales = stored.reshape(-1, 1)
    ours, expected = (c.dequantize(codes, scales, None, scheme) for c in (Storage, Oracle))
    np.testing.assert_array_equal(ours, expected)


@given(bits=st.sampled_from([2, 4, 6, 8]), n=st.integers(0, 70), seed=st.integers(0, 99))
def test_packing_is_the_little_endian_bit_stream(bits, n, seed):
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (3, n)).astype(np.uint8)
    words = Storage.pack(codes, bits)
    np.testing.assert_array_equal(words, Oracle.pack(codes, bits))
    np.testing.assert_array_equal(Storage.unpack(words, bits, n), codes)
