"""NVFP4 against TransformerEngine's reference quantizer and torchao."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.schemes import scheme
from autoq.testing import reference

TE = {"te_ref_nvfp4_1d": "nvfp4", "te_ref_nvfp4_2d": "nvfp4_2d"}
# Values a case whose codes differ because the block's scale rounds to 0: TransformerEngine saturates what
# it scales by FLT_MAX, ours stores zeros (D15); both decode to 0.
ZERO_SCALE_CODES = {
    "te_ref_nvfp4_1d": {"lognormal_s6": 16, "outlier_1e7_blocks_underflow": 496, "row_scales_1e-8..1": 192},
    "te_ref_nvfp4_2d": {"outlier_1e7_blocks_underflow": 256},
}
# -0.0 beside other values: code 0 there, code 8 in ours (D7).
NEGATIVE_ZEROS = {("te_ref_nvfp4_2d", "some_zero_blocks"): 32}
CASES = range(21)
# One value of this case is NaN: with it theirs loses the whole tensor, ours a block (S43).
NAN_CASE = 18


@pytest.mark.parametrize("index", [index for index in CASES if index != NAN_CASE])
@pytest.mark.parametrize("name", TE)
class TestTransformerEngine:
    @pytest.fixture
    def run(self, codec, suite, name, index):
        arrays = {key: array[index] for key, array in suite(name).items() if key != "meta"}
        form = scheme(TE[name])
        ours = codec.quantize(arrays["x"], form)
        scales = np.repeat(ours.scales, form.extents(2)[0], axis=0)
        return arrays, ours, scales, codec.dequantize(*ours, form)

    def test_scales_agree_to_the_bit(self, run):
        arrays, ours, scales, _ = run
        np.testing.assert_array_equal(scales, arrays["scale"])
        assert ours.tensor_scale == arrays["global_amax"][0] / np.float32(2688)

    def test_codes_agree_but_for_scales_of_zero(self, run, name):
        arrays, ours, scales, _ = run
        case = str(arrays["case"])
        zero = np.repeat(scales == 0, 16, axis=1)
        differs = ours.codes != arrays["codes"]
        assert (differs & zero).sum() == ZERO_SCALE_CODES[name].get(case, 0)
        assert (ours.codes[zero] == 0).all()
        signs = differs & ~zero
        assert signs.sum() == NEGATIVE_ZEROS.get((name, case), 0)
        assert ((arrays["x"][signs] == 0) & np.signbit(arrays["x"][signs])).all()
        assert (ours.codes[signs] == 8).all()

    def test_values_agree_to_the_order_of_the_product(self, run):
        arrays, _, scales, values = run
        # Theirs is (code · scale) · tensor scale, ours code · (scale · tensor scale): the last bit (D20).
        np.testing.assert_array_max_ulp(np.abs(values), np.abs(arrays["deq"]), maxulp=1)


@pytest.mark.parametrize("name", TE)
def test_a_nan_stays_in_its_block(codec, suite, name):
    arrays = suite(name)
    assert arrays["case"].tolist().index("one_nan") == NAN_CASE
    x, form = arrays["x"][NAN_CASE], scheme(TE[name])
    values = codec.dequantize(*codec.quantize(x, form), form)
    blocks = reference.to_blocks(np.isnan(x), form.extents(2)).any(-1)
    assert blocks.sum() == 1
    rows, columns = form.extents(2)
    np.testing.assert_array_equal(np.isnan(values), blocks.repeat(rows, 0).repeat(columns, 1))
    clean = np.where(np.isnan(x), 0, x)
    expected = codec.dequantize(*codec.quantize(clean, form), form)
    np.testing.assert_array_equal(values[~np.isnan(values)], expected[~np.isnan(values)])
    # TransformerEngine's tensor amax is NaN, and everything with it.
    assert np.isnan(arrays["global_amax"][NAN_CASE]).all()


@pytest.mark.parametrize("name", TE)
def test_nibbles_are_packed_low_first(codec, suite, name):
    arrays = suite(name)
    np.testing.assert_array_equal(codec.pack(arrays["codes"], 4).view(np.uint8), arrays["packed"])


@pytest.mark.parametrize("index", CASES)
def test_torchao_two_level_agrees_to_the_bit(codec, suite, index):
    arrays = {key: array[index] for key, array in suite("torchao_nvfp4_two_level").items() if key != "meta"}
    form = scheme("nvfp4").replace(scale_rule="torchao")
    ours = codec.quantize(arrays["x"], form)
    values = codec.dequantize(*ours, form)
    if arrays["case"] == "one_nan":
        # NaN in the tensor amax: everything is NaN there, one block here (S43).
        assert np.isnan(arrays["per_tensor_scale"])
        assert np.isnan(values).sum() == 16
    elif arrays["case"] == "neg_zero":
        # A zero tensor is 0/0 there (D16); ours stores 2**-6 and zero codes.
        assert np.isnan(arrays["deq"]).all()
        assert (ours.scales == 0x08).all()
        np.testing.assert_array_equal(values, 0)
    else:
        np.testing.assert_array_equal(ours.codes, arrays["codes"])
        np.testing.assert_array_equal(ours.scales, arrays["scale"])
        np.testing.assert_array_equal(values, arrays["deq"])
        assert ours.tensor_scale == arrays["per_tensor_scale"]


def test_torchao_single_level_agrees_above_its_smallest_scale(codec, suite):
    arrays, form = suite("torchao_nvfp4_single"), scheme("nvfp4_single")
    x, finite = arrays["x"], np.isfinite(arrays["x"]).all(1)
    ours = codec.quantize(x, form)
    values = codec.dequantize(*ours, form)
    floored = finite & (np.abs(x).max(1) / np.float32(6) < 2.0**-6)
    rows = finite & ~floored
    assert (rows.sum(), floored.sum(), (~finite).sum()) == (323, 107, 4)
    np.testing.assert_array_equal(ours.codes[rows], arrays["codes"][rows])
    np.testing.assert_array_equal(ours.scales[rows], arrays["scale"][rows])
    np.testing.assert_array_equal(values[rows], arrays["deq"][rows])
    # Below 2**-6 torchao clips, ours goes on with subnormal scales and, below their half, zero (D15).
    assert (arrays["scale"][floored] == 0x08).all()
    assert (ours.scales[floored] <= 0x08).all()
    assert np.isnan(values[~finite]).all()
