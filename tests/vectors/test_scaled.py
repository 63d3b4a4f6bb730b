"""Float and integer schemes with float scales against TransformerEngine, torchao and mlx."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.schemes import QuantScheme, scheme
from autoq.testing import reference

F = np.float32


@pytest.mark.parametrize(
    ("element", "block", "different"),
    [("e4m3", (1, 128), 1), ("e4m3", (128, 128), 0), ("e5m2", (1, 128), 0), ("e5m2", (128, 128), 0)],
)
def test_te_fp8_blocks_store_the_reciprocal_of_a_reciprocal(codec, suite, element, block, different):
    arrays, form = suite("te_ref_fp8_block"), QuantScheme(element, block)
    name = f"{element}_{block[0]}x{block[1]}_f32"
    x, codes, inverse = arrays["x"], arrays[f"codes_{name}"], arrays[f"scale_inv_{name}"]
    ours = codec.quantize(x, form)
    blocks = np.abs(reference.to_blocks(x, form.extents(2)))
    amax = blocks.max(-1)
    zero = amax == 0
    # They multiply by max / amax and store the reciprocal of that; a zero block stores 1.
    factor = np.where(zero, F(1), F(form.element_format.maximum) / np.where(zero, F(1), amax))
    np.testing.assert_array_equal(inverse, F(1) / factor)
    spread = np.kron(factor, np.ones(form.extents(2), F))
    np.testing.assert_array_equal(codes, reference.encode(x * spread, element))
    np.testing.assert_array_max_ulp(ours.scales[~zero], inverse[~zero], maxulp=1)
    assert (ours.scales[zero] == 2.0**-126).all()
    distance = np.abs(ours.codes.astype(int) - codes)
    assert (distance.max(initial=0), distance.sum()) == (min(different, 1), different)


@pytest.mark.parametrize("index", range(21))
@pytest.mark.parametrize(("element", "name"), [("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2")])
def test_torchao_per_tensor_gives_the_same_codes(codec, suite, element, name, index):
    arrays = suite("torchao_float8_per_tensor")
    case, x = str(arrays["case"][index]), arrays["x"][index]
    scale, codes = arrays[f"scale_{name}_f32"][index], arrays[f"codes_{name}_f32"][index]
    form = scheme(f"fp8_{element}")
    ours = codec.quantize(x, form)
    if case in ("randn_1e-30", "tiny_1e-37", "neg_zero"):
        # An amax below 1e-12 counts as 1e-12 there: the codes of what is left are small (D29).
        assert scale == F(form.element_format.maximum / 1e-12)
        np.testing.assert_array_equal(codes, reference.encode(x * scale, element))
        assert (ours.codes.max() & 0x7F) >= (codes.max() & 0x7F)
    elif case == "one_nan":
        assert np.isnan(codec.dequantize(*ours, form)).all()
        assert np.isnan(scale)
    else:
        np.testing.assert_array_equal(ours.codes, codes)
        np.testing.assert_array_max_ulp(ours.scales.reshape(()), F(1) / scale, maxulp=1)


# Codes that differ, by suite: they multiply by 1/s where we divide by s, and at a tie of one of the two
# the other rounds elsewhere. `f32max_one` is ours alone: 127 · s would be beyond float32 (D10).
INTEGERS = {
    "int8_127_SYMMETRIC_NO_CLIPPING_ERR": ("int8", 12, ["f32max_one"]),
    "int8_127_SYMMETRIC": ("int8", 12, ["f32max_one"]),
    "int4_7_SYMMETRIC_NO_CLIPPING_ERR": ("int4", 13, []),
    "int4_7_SYMMETRIC": ("int4", 13, []),
    "int2_1_SYMMETRIC_NO_CLIPPING_ERR": ("int2", 2, []),
    "int2_1_SYMMETRIC": ("int2", 2, []),
    "int8_SYMMETRIC": ("int8_full", 26, []),
    "int4_SYMMETRIC": ("int4_full", 47, []),
    "int2_SYMMETRIC": ("int2_full", 43, []),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_torchao_integers_agree_but_for_quotients_at_ties(codec, suite, name):
    arrays = suite("torchao_int_symmetric_b32")
    element, different, overflowing = INTEGERS[name]
    x, codes, scales = arrays["x"], arrays[f"codes_{name}"], arrays[f"scale_{name}"]
    form = scheme(element)
    ours = codec.quantize(x, form)
    values = reference.decode(ours.codes, element)
    # Scales below float32's epsilon are that there (D29).
    floored = (scales <= np.finfo(F).eps)[:, 0]
    np.testing.assert_array_equal(ours.scales[~floored], scales[~floored])
    assert (ours.scales[floored] <= np.finfo(F).eps).all()

    low, high = form.element_format.minimum, form.element_format.maximum
    np.testing.assert_array_equal(codes, np.clip(np.rint(x * (F(1) / scales)), low, high))
    overflow = np.isin(arrays["case"], overflowing)
    rows = ~floored & ~overflow
    np.testing.assert_array_equal(values[rows], np.rint(np.clip(x[rows] / scales[rows], low, high)))
    assert (values[rows] != codes[rows]).sum() == different
    with np.errstate(over="ignore"):
        assert np.isinf(codes[overflow] * scales[overflow]).any(-1).all()
    assert np.isfinite(codec.dequantize(*ours, form)).all()


def test_torchao_without_clipping_error_has_another_scale_than_ours(suite):
    arrays = suite("torchao_int_symmetric_b32")
    x = arrays["x"]
    for bits in (8, 4, 2):
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        expected = np.maximum(
            np.maximum(-x.min(1, initial=0) / F(-low), x.max(1, initial=0) / F(high)), np.finfo(F).eps
        )
        np.testing.assert_array_equal(arrays[f"scale_int{bits}_SYMMETRIC_NO_CLIPPING_ERR"][:, 0], expected)


def test_mlx_affine_words_hold_four_bit_codes_as_ours(codec, suite):
    arrays = suite("mlx_affine_b4_g32")
    codes = codec.unpack(arrays["packed_u32"], 4, 128)
    scales, biases = (arrays[key].repeat(32, axis=1) for key in ("scales", "biases"))
    with np.errstate(invalid="ignore"):
        values = codes * scales + biases
    np.testing.assert_array_max_ulp(values, arrays["deq"], maxulp=1)
