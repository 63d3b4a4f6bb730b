"""Element codes, packing, stochastic rounding and layouts against other implementations."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.schemes import ELEMENTS, SCALES
from autoq.testing import reference

ML_DTYPES = {
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float6_e3m2fn": "e3m2",
    "float6_e2m3fn": "e2m3",
    "float4_e2m1fn": "e2m1",
    "int4": "int4",
    "int2": "int2",
}


@pytest.mark.parametrize("name", ML_DTYPES)
def test_ml_dtypes_decodes_every_code_alike(codec, suite, name):
    table = suite("ml_dtypes_decode_tables")[name]
    codes = np.arange(len(table), dtype=np.uint8)
    values = codec.decode(codes, ML_DTYPES[name])
    np.testing.assert_array_equal(values, table)
    np.testing.assert_array_equal(np.signbit(values)[~np.isnan(table)], np.signbit(table)[~np.isnan(table)])


def test_ml_dtypes_decodes_every_scale_alike(suite):
    tables = suite("ml_dtypes_decode_tables")
    np.testing.assert_array_equal(SCALES["ue8m0"].values, tables["float8_e8m0fnu"])
    np.testing.assert_array_equal(SCALES["ue4m3"].values[:128], tables["float8_e4m3fn"][:128])
    assert np.isnan(SCALES["ue4m3"].values[128:]).all()


@pytest.mark.parametrize("name", [name for name in ML_DTYPES if name.startswith("float")])
def test_ml_dtypes_casts_alike_but_for_saturation(codec, suite, name):
    arrays = suite("ml_dtypes_casts_edges")
    x, expected = arrays["x"], arrays[f"codes_{name}"]
    element = ELEMENTS[ML_DTYPES[name]]
    codes = codec.encode(x, element.name)
    # Beyond the largest value ml_dtypes gives NaN or infinity where the format has them (D21, D22).
    over = ~np.isfinite(element.values[expected]) & ~np.isnan(x)
    largest = np.copysign(element.maximum, x[over])
    np.testing.assert_array_equal(codes[over], reference.encode(largest, element))
    nan = np.isnan(x)
    assert (codes[nan] == (element.nan_code or 0)).all()
    np.testing.assert_array_equal(codes[~over & ~nan], expected[~over & ~nan])
    # 464 and below round to 448; 61440 and above are infinite there.
    first = {"e4m3": 464.0, "e5m2": 61440.0}.get(element.name)
    assert over.any() == (first is not None)
    assert first is None or (np.abs(x[over]) >= first).all()


@pytest.mark.parametrize("element", ["e2m1", "e4m3", "e5m2", "e2m3", "e3m2"])
def test_gfloat_rounds_stochastically_alike(suite, element):
    arrays = suite("gfloat_stochastic_edges")
    codes = reference.encode(arrays["x"], element, arrays["srbits"], bits=8)
    expected = arrays[f"val_{element}_Stochastic"]
    values = reference.decode(codes, element)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(np.signbit(values), np.signbit(expected))


def test_compressed_tensors_packs_six_bits_alike(codec, suite):
    arrays = suite("compressed_tensors_fp6_pack")
    words = codec.pack(arrays["codes"], 6)
    np.testing.assert_array_equal(words.view(np.uint8), arrays["packed"])
    np.testing.assert_array_equal(codec.unpack(words, 6, 32), arrays["codes"])
    np.testing.assert_array_equal(codec.decode(arrays["codes"], "e2m3"), arrays["values"])


@pytest.mark.parametrize("shape", ["128x4", "256x8", "200x6"])
def test_torchao_swizzles_scales_alike(suite, shape):
    arrays = suite("torchao_scale_swizzle_128x4")
    np.testing.assert_array_equal(reference.swizzled(arrays[f"scale_{shape}"]), arrays[f"blocked_{shape}"])


def test_te_transforms_by_the_same_hadamard_matrix(suite):
    arrays = suite("te_ref_rht16")
    signs = np.sign(arrays["H_signed"][:, 0])
    matrix = reference.random_hadamard(np.eye(16, dtype=np.float32), signs)
    np.testing.assert_array_equal(4 * matrix, arrays["H_signed"])
    ours = reference.random_hadamard(arrays["x"], signs)
    # Sums of 16 products in float32 there, in float64 here.
    np.testing.assert_allclose(ours, arrays["out"], rtol=0, atol=1e-6)
