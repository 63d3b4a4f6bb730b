"""MX schemes against torchao, gfloat, microxcaling and mlx.

Every row that differs is classed by the reason for the difference; the class is asserted to be what it
is said to be, and the number of rows of each class is written down, so that no difference goes unseen.
"""

from __future__ import annotations

import numpy as np
import pytest

from autoq.schemes import scheme
from autoq.testing import reference

TORCHAO = {
    "mxfp8_e4m3": "mxfp8",
    "mxfp8_e5m2": "mxfp8_e5m2",
    "mxfp6_e3m2": "mxfp6_e3m2",
    "mxfp6_e2m3": "mxfp6_e2m3",
    "mxfp4_e2m1": "mxfp4",
}
RULES = {"FLOOR": "floor", "CEIL": "ceil", "EVEN": "even", "RCEIL": "round_up"}

# Rows of torchao's suites that differ, by reason (and row of tests/data/disagreements.md):
#   nonfinite  (D8, D9)  a NaN or an infinity in the block: ours is NaN throughout
#   zero_code  (D4, D5)  scale code 0: torchao encodes with 2**-126 (RCEIL: 1) and decodes with 2**-127
#   overflow   (D10)     torchao's code times its scale is beyond float32: ours stores the largest finite
#   log2       (D2)      RCEIL by a float32 log2 that rounds to a whole number: one binade too low
DIFFERENT_ROWS = {
    ("mxfp8_e4m3", "FLOOR"): {"nonfinite": 4, "zero_code": 25},
    ("mxfp8_e4m3", "CEIL"): {"nonfinite": 4, "zero_code": 24, "overflow": 2},
    ("mxfp8_e4m3", "EVEN"): {"nonfinite": 4, "zero_code": 25, "overflow": 2},
    ("mxfp8_e4m3", "RCEIL"): {"nonfinite": 4, "zero_code": 25, "overflow": 2, "log2": 21},
    ("mxfp8_e5m2", "FLOOR"): {"nonfinite": 4, "zero_code": 28},
    ("mxfp8_e5m2", "CEIL"): {"nonfinite": 4, "zero_code": 28, "overflow": 3},
    ("mxfp8_e5m2", "EVEN"): {"nonfinite": 4, "zero_code": 28, "overflow": 3},
    ("mxfp8_e5m2", "RCEIL"): {"nonfinite": 4, "zero_code": 28, "overflow": 3, "log2": 24},
    ("mxfp6_e3m2", "FLOOR"): {"nonfinite": 4, "zero_code": 19},
    ("mxfp6_e3m2", "CEIL"): {"nonfinite": 4, "zero_code": 19, "overflow": 3},
    ("mxfp6_e3m2", "EVEN"): {"nonfinite": 4, "zero_code": 19, "overflow": 3},
    ("mxfp6_e3m2", "RCEIL"): {"nonfinite": 4, "zero_code": 19, "overflow": 3, "log2": 17},
    ("mxfp6_e2m3", "FLOOR"): {"nonfinite": 4, "zero_code": 19},
    ("mxfp6_e2m3", "CEIL"): {"nonfinite": 4, "zero_code": 18, "overflow": 2},
    ("mxfp6_e2m3", "EVEN"): {"nonfinite": 4, "zero_code": 19, "overflow": 2},
    ("mxfp6_e2m3", "RCEIL"): {"nonfinite": 4, "zero_code": 19, "overflow": 2, "log2": 5},
    ("mxfp4_e2m1", "FLOOR"): {"nonfinite": 4, "zero_code": 19},
    ("mxfp4_e2m1", "CEIL"): {"nonfinite": 4, "zero_code": 18, "overflow": 8},
    ("mxfp4_e2m1", "EVEN"): {"nonfinite": 4, "zero_code": 19, "overflow": 8},
    ("mxfp4_e2m1", "RCEIL"): {"nonfinite": 4, "zero_code": 19, "overflow": 8, "log2": 5},
}


@pytest.mark.parametrize("mode", RULES)
@pytest.mark.parametrize("name", TORCHAO)
class TestTorchao:
    @pytest.fixture
    def run(self, codec, suite, name, mode):
        return Run(codec, suite(f"torchao_{name}"), TORCHAO[name], mode)

    def test_only_the_rows_of_the_table_differ(self, run, name, mode):
        classes = np.sum(list(run.reasons.values()), axis=0)
        np.testing.assert_array_equal(classes[run.differs], 1)
        counts = {reason: int((rows & run.differs).sum()) for reason, rows in run.reasons.items()}
        assert {reason: n for reason, n in counts.items() if n} == DIFFERENT_ROWS[name, mode]

    def test_nonfinite_blocks_are_nan_throughout(self, run):
        rows = run.reasons["nonfinite"]
        assert (run.ours.scales[rows] == 0xFF).all()
        assert (run.ours.codes[rows] == 0).all()
        assert np.isnan(run.values[rows]).all()

    def test_under_scale_code_0_torchao_encodes_by_another_scale_than_it_decodes(self, run, mode):
        rows = run.reasons["zero_code"]
        assert (run.ours.scales[rows] == 0).all()
        used = 1.0 if mode == "RCEIL" else 2.0**126
        np.testing.assert_array_equal(run.codes[rows], run.encode(run.x[rows] * used))
        np.testing.assert_array_equal(run.ours.codes[rows], run.encode(run.x[rows] * 2.0**127))

    def test_the_largest_finite_code_replaces_those_that_overflow(self, run):
        rows = run.reasons["overflow"]
        np.testing.assert_array_equal(run.ours.scales[rows], run.scales[rows])
        assert np.isfinite(run.values[rows]).all()
        factor = run.scheme.scale_format.decode(run.scales[rows])
        with np.errstate(over="ignore"):
            over = np.isinf(reference.decode(run.codes[rows], run.scheme.element) * factor)
            one_more = reference.decode(run.ours.codes[rows] + 1, run.scheme.element) * factor
        np.testing.assert_array_equal(run.ours.codes[rows] != run.codes[rows], over)
        assert np.isinf(one_more[over]).all()

    def test_a_float_log2_misses_the_binade_just_above_a_power_of_two(self, run):
        rows = run.reasons["log2"]
        theirs = 2.0 ** (run.scales[rows].astype(np.float64) - 127)
        ratio = np.abs(run.x[rows]).max(1, keepdims=True) / run.scheme.element_format.maximum / theirs
        assert ((ratio > 1) & (ratio < 1 + 2.0**-16)).all()
        np.testing.assert_array_equal(run.codes[rows], run.encode(run.x[rows] / theirs))


class Run:
    """One suite of torchao under one rule, our result, and the reason for each row that differs."""

    def __init__(self, codec, arrays, name, mode):
        self.scheme = scheme(name).replace(scale_rule=RULES[mode])
        self.x, self.codes, self.scales = arrays["x"], arrays[f"codes_{mode}"], arrays[f"scale_{mode}"]
        decoded = arrays[f"deq_{mode}"]
        self.ours = codec.quantize(self.x, self.scheme)
        self.values = codec.dequantize(*self.ours, self.scheme)
        same = (self.ours.codes == self.codes) & (self.ours.scales == self.scales) & (self.values == decoded)
        self.differs = ~same.all(1)
        finite, nonzero = np.isfinite(self.x).all(1), (self.scales != 0)[:, 0]
        one_more = (self.ours.scales == self.scales.astype(int) + 1)[:, 0]
        self.reasons = {
            "nonfinite": ~finite,
            "zero_code": finite & ~nonzero,
            "overflow": finite & nonzero & np.isinf(decoded).any(1),
            "log2": finite & nonzero & one_more,
        }

    def encode(self, values):
        return reference.encode(values, self.scheme.element)


GFLOAT = {**TORCHAO, "mxint8": "mxint8"}


@pytest.mark.parametrize("name", GFLOAT)
def test_gfloat_agrees_in_every_row(codec, suite, name):
    arrays = suite("gfloat_mx32")
    form = scheme(GFLOAT[name]).replace(scale_rule="floor")
    values = codec.dequantize(*codec.quantize(arrays["x"], form), form)
    np.testing.assert_array_equal(values, arrays[f"deq_{name}"])


MICROXCALING = {
    "fp8_e4m3": "mxfp8",
    "fp8_e5m2": "mxfp8_e5m2",
    "fp6_e3m2": "mxfp6_e3m2",
    "fp6_e2m3": "mxfp6_e2m3",
    "fp4_e2m1": "mxfp4",
    "int8": "mxint8",
}
# amax just below a power of two: its float32 log2 rounds up, and the scale doubles (D3).
LOG2_ROWS = [
    "bnd_512-ulp",
    "bnd_256-ulp",
    "bnd_65536-ulp",
    "bnd_32-ulp",
    "bnd_16-ulp",
    "f32max_all",
    "f32max_one",
    "pow2trap_1*2^-20-ulp",
    "pow2trap_1*2^60-ulp",
    "pow2trap_1*2^127-ulp",
]
# A value just below half of the smallest one: floor(|x| + 0.5) rounds it up (D26).
HALF_ROWS = {
    "fp6_e3m2": ["ties_e3m2_a28_s2^0", "ties_e3m2_a28_s2^-20", "ties_e3m2_a28_s2^40", "ties_e3m2_a16_s2^0"],
    "fp6_e2m3": [
        "ties_e2m3_a7.5_s2^0",
        "ties_e2m3_a7.5_s2^-20",
        "ties_e2m3_a7.5_s2^40",
        "ties_e2m3_a4_s2^0",
        "ties_e2m3_a4_s2^-20",
        "bnd_0.25-ulp",
        "bnd_1-ulp",
    ],
    "fp4_e2m1": [
        "ties_e2m1_a6_s2^0",
        "ties_e2m1_a6_s2^-20",
        "ties_e2m1_a6_s2^40",
        "ties_e2m1_a4_s2^0",
        "ties_e2m1_a4_s2^-20",
        "ties_e2m1_a4_s2^40",
        "bnd_1-ulp",
    ],
}


@pytest.mark.parametrize("name", MICROXCALING)
class TestMicroxcaling:
    @pytest.fixture
    def run(self, codec, suite, name):
        arrays = suite("microxcaling_mx32")
        form = scheme(MICROXCALING[name]).replace(scale_rule="floor")
        ours = codec.quantize(arrays["x"], form)
        return (
            arrays["x"],
            arrays["case"].astype(str),
            arrays[f"deq_{name}_even"],
            form,
            codec.dequantize(*ours, form),
            form.scale_format.decode(ours.scales),
        )

    def test_only_the_rows_of_the_tables_differ(self, run, name):
        _, case, theirs, _, values, _ = run
        # A block with a non-finite value is NaN throughout in both. The sign of zero isn't compared.
        differs = ~((values == theirs) | (np.isnan(values) & np.isnan(theirs))).all(1)
        assert sorted(case[differs]) == sorted(LOG2_ROWS + HALF_ROWS.get(name, []))

    def test_half_up_lifts_the_value_below_the_first_midpoint(self, run, name):
        x, case, theirs, form, values, factor = run
        wrong = np.isin(case, HALF_ROWS.get(name, []))[:, None] & (values != theirs)
        smallest = reference.decode(np.uint8(1), form.element) * factor + np.zeros_like(x)
        np.testing.assert_array_equal(np.abs(x)[wrong], np.nextafter(smallest / 2, np.float32(0))[wrong])
        np.testing.assert_array_equal(np.abs(theirs)[wrong], smallest[wrong])
        np.testing.assert_array_equal(values[wrong], 0)

    def test_a_float_log2_doubles_the_scale_just_below_a_power_of_two(self, run, name):
        x, case, theirs, form, values, factor = run
        rows = np.isin(case, LOG2_ROWS) & (values != theirs).any(1)
        fraction, _ = np.frexp(np.abs(x[rows]).max(1))
        assert (fraction == 1 - 2.0**-24).all()
        doubled = factor[rows].astype(np.float64) * 2
        expected = reference.decode(reference.encode(x[rows] / doubled, form.element), form.element) * doubled
        # The other difference meets this one where the doubled scale makes a value the first midpoint.
        midpoint = (reference.decode(np.uint8(1), form.element) * doubled / 2).astype(np.float32)
        compared = np.isfinite(theirs[rows]) & (np.abs(x[rows]) != np.nextafter(midpoint, np.float32(0)))
        assert compared.sum() > 0.7 * compared.size
        np.testing.assert_array_equal(expected[compared], theirs[rows][compared])


def test_mlx_bytes_decode_as_ours_but_for_the_code_of_nan(codec, suite):
    arrays = suite("mlx_mxfp8")
    values = codec.dequantize(arrays["codes"], arrays["scale"], None, scheme("mxfp8"))
    nan_scale = (arrays["scale"] == 0xFF)[:, 0]
    np.testing.assert_array_equal(values[~nan_scale], arrays["deq"][~nan_scale])
    # mlx wraps a scale below 2**-127 to code 255 and decodes that as infinity; OCP says NaN (D11, D12).
    assert arrays["case"][nan_scale].tolist() == ["tiny_amax_7.52e-37", "tiny_amax_1.32e-36"]
    assert np.isnan(values[nan_scale]).all()
    elements = reference.decode(arrays["codes"][nan_scale], "e4m3")
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(arrays["deq"][nan_scale], elements * np.float32(np.inf))


@pytest.mark.parametrize("name", ["mxfp4_e2m1"])
@pytest.mark.parametrize("mode", RULES)
def test_torchao_packs_four_bits_as_we_do(codec, suite, name, mode):
    arrays = suite(f"torchao_{name}")
    words = codec.pack(arrays[f"codes_{mode}"], 4)
    np.testing.assert_array_equal(words.view(np.uint8), arrays[f"packed_{mode}"])
