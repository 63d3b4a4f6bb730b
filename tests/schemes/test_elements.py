"""Element and scale formats: the records, and every code of every one of them."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from autoq.errors import SchemeError
from autoq.schemes import ELEMENTS, SCALES, ElementFormat, ScaleFormat, element, register_element, scale
from autoq.testing import reference

ML_DTYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "int8": np.int8,
    "int4": ml_dtypes.int4,
    "int2": ml_dtypes.int2,
}
# Format, bits, maximum, minimum, smallest positive value.
RANGES = [
    ("e4m3", 8, 448, -448, 2**-9),
    ("e5m2", 8, 57344, -57344, 2**-16),
    ("e3m2", 6, 28, -28, 2**-4),
    ("e2m3", 6, 7.5, -7.5, 2**-3),
    ("e2m1", 4, 6, -6, 0.5),
    ("mxint8", 8, 127 / 64, -127 / 64, 1 / 64),
    ("int8", 8, 127, -127, 1),
    ("int4", 4, 7, -7, 1),
    ("int2", 2, 1, -1, 1),
    ("int8_full", 8, 127, -128, 1),
    ("int4_full", 4, 7, -8, 1),
    ("int2_full", 2, 1, -2, 1),
]


@pytest.fixture
def scratch_registry():
    """Registrations of a test are undone."""
    before = dict(ELEMENTS)
    yield
    ELEMENTS.clear()
    ELEMENTS.update(before)


@pytest.mark.parametrize("name", ML_DTYPES)
def test_values_are_those_of_ml_dtypes(name):
    codes = np.arange(1 << element(name).bits, dtype=np.uint8)
    expected = codes.view(ML_DTYPES[name]).astype(np.float32)
    values = element(name).values
    np.testing.assert_array_equal(values, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(values[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize(("name", "bits", "maximum", "minimum", "smallest"), RANGES)
def test_ranges_are_those_of_the_standards(name, bits, maximum, minimum, smallest):
    form = element(name)
    stored = form.values[(form.values >= minimum) & (form.values <= maximum)]
    assert form.bits == bits
    assert (form.maximum, form.minimum) == (maximum, minimum)
    assert (stored.max(), stored.min(), stored[stored > 0].min()) == (maximum, minimum, smallest)
    assert form.half_range == (maximum - minimum) / 2
    assert 2.0**form.maximum_exponent <= maximum < 2.0 ** (form.maximum_exponent + 1)


def test_no_format_is_missing_from_the_table_of_ranges():
    assert {name for name, *_ in RANGES} == set(ELEMENTS)


@pytest.mark.parametrize("name", ELEMENTS)
def test_encoding_a_decoded_code_gives_it_again(name):
    form = element(name)
    codes = np.arange(1 << form.bits, dtype=np.uint8)
    values = reference.decode(codes, name)
    encoded = reference.encode(values, name)
    stored = (values >= form.minimum) & (values <= form.maximum)
    np.testing.assert_array_equal(encoded[stored], codes[stored])
    # Codes that are never stored: NaN by class, infinity and the lowest integer saturate.
    assert (encoded[np.isnan(values)] == (form.nan_code or 0)).all()
    beyond = ~stored & ~np.isnan(values)
    np.testing.assert_array_equal(
        reference.decode(encoded[beyond], name), np.clip(values[beyond], form.minimum, form.maximum)
    )


def test_values_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        element("e4m3").values[0] = 1


@pytest.mark.parametrize(
    ("name", "dtype", "maximum", "smallest"),
    [
        ("ue8m0", "uint8", 2.0**127, 2.0**-127),
        ("ue4m3", "uint8", 448, 0.0),
        ("f16", "float16", 65504, 2.0**-24),
        ("bf16", "bfloat16", 3.3895313892515355e38, 2.0**-126),
        ("f32", "float32", 3.4028234663852886e38, 2.0**-126),
    ],
)
def test_scale_formats(name, dtype, maximum, smallest):
    form = scale(name)
    assert form.stored_dtype.name == dtype
    assert (form.maximum, form.smallest, form.bits) == (maximum, smallest, 8 * form.stored_dtype.itemsize)
    if form.coded:
        assert np.nanmax(form.values) == maximum
        assert form.values[0] == smallest
        assert np.isnan(form.values[form.nan_code :]).all()


def test_scale_codes_are_those_of_ml_dtypes():
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(
        scale("ue8m0").values, codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    )
    positive = codes[:128]
    np.testing.assert_array_equal(
        scale("ue4m3").values[:128], positive.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    )


@pytest.mark.parametrize(
    ("lookup", "wrong", "near"),
    [(element, "e4m4", "e4m3"), (element, "E5M2", "e5m2"), (scale, "ue8m1", "ue8m0"), (scale, "fp32", "f32")],
)
def test_an_unknown_name_suggests_the_nearest(lookup, wrong, near):
    with pytest.raises(SchemeError) as error:
        lookup(wrong)
    assert wrong in error.value.given
    assert near in error.value.allowed
    assert near in error.value.remedy


def test_a_toy_format_encodes_by_its_table(scratch_registry):
    toy = register_element(
        ElementFormat("squares", 3, "table", 16.0, -9.0, table=(0.0, 1.0, 4.0, 9.0, 16.0, -1.0, -4.0, -9.0))
    )
    assert element("squares") is toy
    np.testing.assert_array_equal(
        reference.encode(np.array([2.4, 2.6, 100.0, -3.0, -50.0]), toy), [1, 2, 4, 6, 7]
    )
    # Halfway: to the even code.
    np.testing.assert_array_equal(reference.encode(np.array([0.5, 2.5, 6.5, 12.5]), toy), [0, 2, 2, 4])


def test_a_name_is_taken_once(scratch_registry):
    with pytest.raises(SchemeError, match="already exists"):
        register_element(ElementFormat("e4m3", 8, "minifloat", 240.0, -240.0, 4, 3, 8))


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"kind": "posit"}, "kind"),
        ({"bits": 9}, "9 bits"),
        ({"mantissa_bits": 2}, "sign, exponent and mantissa"),
        ({"maximum": 5.0}, "range"),
        ({"maximum": -6.0}, "range"),
        ({"kind": "table"}, "every code"),
    ],
)
def test_records_that_describe_no_format_are_refused(fields, complaint):
    good = {
        "name": "toy",
        "bits": 4,
        "kind": "minifloat",
        "maximum": 6.0,
        "minimum": -6.0,
        "exponent_bits": 2,
        "mantissa_bits": 1,
        "bias": 1,
    }
    ElementFormat(**good)
    with pytest.raises(SchemeError, match=complaint):
        ElementFormat(**{**good, **fields})


def test_records_pickle_and_compare():
    for record in (*ELEMENTS.values(), *SCALES.values()):
        assert pickle.loads(pickle.dumps(record)) == record
    assert ScaleFormat("f32", "float32", 1.0, 1.0, 23, -126) != SCALES["f32"]
