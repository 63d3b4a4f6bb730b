"""What quantization promises of any input: error bounds, second passes, zeros, NaN, draws and tails."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from autoq.random import Draw
from autoq.schemes import CATALOG, ELEMENTS, SCALES, QuantScheme, scheme
from autoq.testing import reference
from autoq.testing.reference_scales import rounded

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
LINES = arrays(np.float32, (2, 40), elements=FINITE)
# Away from the ends of float32, where scales are clipped and steps underflow.
MODERATE = arrays(np.float32, (2, 40), elements=st.floats(-(2.0**60), 2.0**60, width=32)).filter(
    lambda x: np.abs(x).max() > 2.0**-60
)
MX = ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8"]
EVERY = sorted({form.name for form in CATALOG.values()})
FLOAT_MAX = float(np.finfo(np.float32).max)


def passed(x, form, draw=None):
    """``x`` encoded and decoded."""
    return reference.dequantize(*reference.quantize(x, form, draw=draw), form)


def steps(x, form):
    """Distance of the values around each ``x``: the element's spacing there times the block's scale."""
    q = reference.quantize(x, form)
    factor = form.scale_format.decode(q.scales) * (1 if q.tensor_scale is None else q.tensor_scale)
    factor = np.repeat(factor, form.block[-1], axis=-1)[..., : x.shape[-1]].astype(np.float64)
    element = form.element_format
    if element.kind == "integer":
        return factor * element.step
    exponent = np.frexp(x.astype(np.float64) / factor)[1] - 1
    return factor * np.ldexp(1.0, np.maximum(exponent, 1 - element.bias) - element.mantissa_bits)


@pytest.mark.parametrize("name", [*MX[:-1], "int8", "int4", "int2", "int8_full", "int4_full", "int2_full"])
@given(x=MODERATE)
def test_rounding_up_errs_by_half_a_step_at_most(name, x):
    form = scheme(name)
    error = np.abs(passed(x, form).astype(np.float64) - x)
    # The quotient and the product, of up to 128 steps, round once each.
    assert (error <= steps(x, form) * (0.5 + 128 * 2.0**-23)).all()


@pytest.mark.parametrize("rule", ["floor", "even"])
@pytest.mark.parametrize("name", MX[:-1])
@given(x=MODERATE)
def test_other_rules_clip_at_the_largest_code_and_nowhere_else(name, rule, x):
    form = scheme(name).replace(scale_rule=rule)
    q = reference.quantize(x, form)
    limit = np.repeat(form.scale_format.decode(q.scales), 32, axis=-1)[:, :40] * form.element_format.maximum
    clipped = np.abs(x) > limit
    values = passed(x, form)
    np.testing.assert_array_equal(np.abs(values[clipped]), limit[clipped])
    error = np.abs(values.astype(np.float64) - x)
    assert (error[~clipped] <= steps(x, form)[~clipped] * 0.5).all()
    # Clipping loses less than half of a value: the scale is never two binades short.
    assert (np.abs(x) < 2 * limit + (limit == 0)).all()


@pytest.mark.parametrize("rule", ["round_up", "floor", "ceil", "even"])
@pytest.mark.parametrize("name", MX)
@given(x=LINES)
def test_a_second_pass_changes_no_value_of_mx_schemes(name, rule, x):
    assume(rule != "even" or np.abs(x).max() < 2.0**127)
    form = scheme(name).replace(scale_rule=rule)
    once = passed(x, form)
    np.testing.assert_array_equal(passed(once, form), once)


def test_a_second_pass_may_take_a_smaller_scale(edges):
    x = np.random.default_rng(0).normal(size=(2000, 32)).astype(np.float32)
    first = reference.quantize(x, scheme("mxfp8"))
    second = reference.quantize(reference.dequantize(*first, scheme("mxfp8")), scheme("mxfp8"))
    smaller = (second.scales < first.scales).mean()
    assert 0.02 < smaller < 0.1
    assert (second.scales <= first.scales).all()


@pytest.mark.parametrize("name", EVERY)
@given(x=LINES)
def test_finite_values_decode_to_finite_values(name, x):
    assert np.isfinite(passed(x, scheme(name))).all()


@pytest.mark.parametrize("largest", [FLOAT_MAX, -FLOAT_MAX, 2.0**127, 1e-45])
@pytest.mark.parametrize("name", EVERY)
def test_the_ends_of_float32_decode_to_finite_values_of_their_sign(name, largest):
    x = np.full((2, 40), largest, np.float32)
    x[1, 1:] = 0
    form = scheme(name)
    values = passed(x, form)
    assert np.isfinite(values).all()
    assert (np.sign(values) * np.sign(x) >= 0).all()
    # A narrow scale alone, such as ue4m3, reaches no further than its largest times the largest element.
    limit = np.inf if form.tensor_scale else form.scale_format.maximum * form.element_format.maximum
    reach = min(abs(largest), limit)
    if abs(largest) > 1:
        assert (np.abs(values[x != 0]) > reach / 2).all()


@pytest.mark.parametrize("name", EVERY)
def test_a_block_of_zeros_decodes_to_zeros_of_their_sign(name):
    form = scheme(name)
    x = np.zeros((2, 64), np.float32)
    x[0, ::3] = -0.0
    q = reference.quantize(x, form)
    values = reference.dequantize(*q, form)
    assert (values == 0).all()
    signed = form.element_format.kind == "minifloat" and form.scale_format.smallest > 0
    np.testing.assert_array_equal(np.signbit(values), np.signbit(x) & signed)
    assert (form.scale_format.decode(q.scales) == form.scale_format.smallest).all()
    assert form.tensor_scale == (q.tensor_scale is not None)


@pytest.mark.parametrize("lost", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", EVERY)
def test_what_is_not_finite_makes_its_block_nan_and_no_other(name, lost):
    form = scheme(name)
    x = np.random.default_rng(1).normal(size=(64, 256)).astype(np.float32)
    extents = [e or n for e, n in zip(form.extents(2), x.shape, strict=True)]
    clean = passed(x, form)
    x[3, 40] = lost
    values = passed(x, form)
    block = np.zeros(x.shape, bool)
    rows, columns = (slice(i // e * e, i // e * e + e) for i, e in zip((3, 40), extents, strict=True))
    block[rows, columns] = True
    np.testing.assert_array_equal(np.isnan(values), block)
    np.testing.assert_array_equal(values[~block], clean[~block])


@pytest.mark.parametrize("name", EVERY)
def test_saturation_keeps_finite_neighbours_and_the_sign_of_infinity(name):
    form = scheme(name).replace(nonfinite="saturate")
    x = np.random.default_rng(2).normal(size=(2, 40)).astype(np.float32)
    without = np.array(x)
    x[0, 3], x[1, 5], x[1, 7] = np.inf, -np.inf, np.nan
    without[0, 3] = without[1, 5] = without[1, 7] = 0
    codes, scales, level = reference.quantize(x, form)
    expected = reference.quantize(without, form)
    finite = np.isfinite(x)
    np.testing.assert_array_equal(scales, expected.scales)
    np.testing.assert_array_equal(codes[finite], expected.codes[finite])
    element = form.element_format
    values = reference.decode(codes, form.element)
    assert (values[0, 3], values[1, 5]) == (element.maximum, element.minimum)
    assert codes[1, 7] == (element.nan_code or 0)


@pytest.mark.parametrize("element", ELEMENTS)
def test_a_block_of_nothing_finite_saturates_under_a_scale_of_one(element):
    form = QuantScheme(element, (4,), "ue8m0", nonfinite="saturate")
    x = np.array([[np.inf, -np.inf, 0, np.nan]], np.float32)
    q = reference.quantize(x, form)
    assert form.scale_format.decode(q.scales).tolist() == [[1.0]]
    limits = form.element_format
    assert reference.decode(q.codes, element)[0, :3].tolist() == [limits.maximum, limits.minimum, 0]


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4", "nvfp4_2d", "int4", "mxfp8_2d"])
@given(n=st.integers(1, 70), seed=st.integers(0, 50))
def test_padding_never_shows(name, n, seed):
    form = scheme(name)
    x = np.random.default_rng(seed).normal(size=(20, 70)).astype(np.float32)
    # The largest value stays, so that a tensor scale does too.
    x[0, 0] = 9
    whole, part = reference.quantize(x, form), reference.quantize(x[:, :n], form)
    full = n // form.block[-1]
    np.testing.assert_array_equal(part.scales[:, :full], whole.scales[:, :full])
    np.testing.assert_array_equal(
        part.codes[:, : full * form.block[-1]], whole.codes[:, : full * form.block[-1]]
    )
    padded = np.zeros((20, 96), np.float32)
    padded[:, :n] = x[:, :n]
    expected = reference.quantize(padded, form)
    np.testing.assert_array_equal(part.scales, expected.scales[:, : part.scales.shape[1]])
    np.testing.assert_array_equal(part.codes, expected.codes[:, :n])


@pytest.mark.parametrize("rounding", ["stochastic", "stochastic8"])
@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4", "int4", "mxint8"])
def test_stochastic_rounding_is_right_on_average_and_repeats(name, rounding):
    form = scheme(name).replace(rounding=rounding)
    x = np.random.default_rng(3).uniform(-1, 1, (1, 32)).astype(np.float32)
    results = np.stack([passed(x, form, Draw(seed, 1)) for seed in range(400)]).astype(np.float64)
    np.testing.assert_array_equal(results[7], passed(x, form, Draw(7, 1)))
    spread = results.std(0)
    # Five standard errors, and a 2**-8 of a step for draws of eight bits.
    allowed = 5 * spread / 20 + 2.0**-8 * (results.max(0) - results.min(0)) + 1e-7
    limit = np.abs(results).max()
    inside = np.abs(x) < limit
    assert (np.abs(results.mean(0) - x)[inside] <= allowed[inside]).all()
    # Only the two neighbours are ever drawn.
    assert max(len(np.unique(results[:, 0, i])) for i in range(32)) == 2


@given(x=LINES)
def test_representable_values_are_not_moved_by_draws(x):
    form = scheme("mxfp8")
    once = passed(x, form)
    assume(np.array_equal(passed(once, form), once))
    np.testing.assert_array_equal(passed(once, form.replace(rounding="stochastic"), Draw(1, 2)), once)


@pytest.mark.parametrize("name", ["f16", "bf16", "ue4m3", "f32"])
@given(raw=arrays(np.float32, 20, elements=st.floats(0, FLOAT_MAX, width=32)))
def test_scales_round_up_to_the_next_stored_one(name, raw):
    form = QuantScheme("int8", None, name)
    values = rounded(raw, form)
    scale = SCALES[name]
    reachable = (raw <= scale.maximum) & (raw >= scale.smallest)
    assert (values[reachable] >= raw[reachable]).all()
    assert (values <= scale.maximum).all()
    assert (values >= scale.smallest).all()
    below = before(values, name)
    assert (below[reachable] < raw[reachable]).all()


def before(values, name):
    """The stored scale below each; -1 below the smallest."""
    if name == "ue4m3":
        codes = np.searchsorted(SCALES[name].values[:127], values)
        return np.where(codes > 0, SCALES[name].values[np.maximum(codes - 1, 0)], -1)
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}[name]
    return np.nextafter(values.astype(dtype), dtype(-1)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [("ue4m3", 0.3, 0.3125), ("bf16", 0.3, 0.30078125), ("f16", 1.0012, 1.001953125), ("ue4m3", 500, 448)],
)
def test_written_examples_of_rounding_up(name, raw, expected):
    assert rounded(np.array([raw], np.float32), QuantScheme("int8", None, name)) == expected


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("element", "target"),
    [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2), ("e3m2", ml_dtypes.float6_e3m2fn),
     ("e2m3", ml_dtypes.float6_e2m3fn), ("e2m1", ml_dtypes.float4_e2m1fn)],
)  # fmt: skip
@pytest.mark.exhaustive
def test_every_short_float_casts_as_in_ml_dtypes_after_clamping(element, target, dtype):
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    x = x[~np.isnan(x.astype(np.float32))].astype(np.float32)
    form = ELEMENTS[element]
    expected = np.clip(x, form.minimum, form.maximum).astype(target).view(np.uint8)
    np.testing.assert_array_equal(reference.encode(x, element), expected)


@pytest.mark.exhaustive
@pytest.mark.parametrize("element", ["int8", "int4", "int2", "int8_full", "int4_full", "int2_full", "mxint8"])
def test_every_short_float_rounds_to_integers_half_to_even(element):
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = x[~np.isnan(x)].astype(np.float64)
    form = ELEMENTS[element]
    expected = np.rint(np.clip(x, form.minimum, form.maximum) / form.step) * form.step
    np.testing.assert_array_equal(reference.decode(reference.encode(x, element), element), expected)


@given(x=LINES)
def test_four_over_six_never_errs_more_than_six(x):
    assume(2.0**-100 < np.abs(x).max() < 2.0**100)
    six, either = (scheme("nvfp4").replace(scale_rule=rule) for rule in ("te", "four_over_six"))
    blocks = [((passed(x, form).astype(np.float64) - x) ** 2)[:, :32].reshape(2, 2, 16).sum(-1)
              for form in (six, either)]  # fmt: skip
    assert (blocks[1] <= blocks[0] * (1 + 1e-5)).all()


@given(seed=st.integers(0, 200))
def test_a_weight_and_its_transpose_quantize_alike_in_tiles(seed):
    w = np.random.default_rng(seed).normal(size=(40, 70)).astype(np.float32)
    for name in ("nvfp4_2d", "mxfp8_2d"):
        np.testing.assert_array_equal(passed(w.T, scheme(name)), passed(w, scheme(name)).T)


@given(x=LINES)
def test_given_scales_repeat_what_they_were_taken_from(x):
    for name in EVERY:
        form = scheme(name)
        q = reference.quantize(x, form)
        given_scales = form.scale_format.decode(q.scales)
        if form.tensor_scale:
            given_scales = (given_scales, np.abs(x).max())
        again = reference.quantize(x, form, scales=given_scales)
        np.testing.assert_array_equal(again.codes, q.codes)
        np.testing.assert_array_equal(again.scales, q.scales)
        assert again.tensor_scale == q.tensor_scale
