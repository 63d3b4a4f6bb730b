"""Element codecs: every code of every format, and formats that have no codec of their own."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.kernels.codec import ElementCodec
from autoq.kernels.scalar.bits import U, bits_of
from autoq.kernels.scalar.element import element_functions
from autoq.schemes import ELEMENTS, ElementFormat, QuantScheme
from autoq.storage.plan import codec_of


def codec(name: str) -> ElementCodec:
    return codec_of(QuantScheme(name, (32,), "f32")).element


def as_table(element: ElementFormat) -> ElementCodec:
    """The format as a list of values, which is all that a new format needs."""
    return codec(element.name)._replace(kind="table", values=tuple(element.values.tolist()))


def values_of(element: ElementCodec) -> np.ndarray:
    decode = element_functions(element).decode
    return np.array([decode(U(code)) for code in range(1 << element.bits)], np.float32)


@pytest.mark.parametrize("name", ELEMENTS)
def test_decode_equals_the_record(name: str) -> None:
    expected = ELEMENTS[name].values
    for element in (codec(name), as_table(ELEMENTS[name])):
        decoded = values_of(element)
        np.testing.assert_array_equal(decoded, expected)
        kept = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(decoded[kept]), np.signbit(expected[kept]))


@pytest.mark.parametrize("rounding", ["nearest", "stochastic", "stochastic8"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_encoding_a_decoded_code_gives_it_back(name: str, rounding: str) -> None:
    element, record = codec(name), ELEMENTS[name]
    functions = element_functions(element, rounding)
    for code, value in enumerate(record.values):
        if record.minimum <= value <= record.maximum:
            assert functions.encode(value, functions.top, U(0xFFFF)) == code


@pytest.mark.parametrize("name", ELEMENTS)
def test_table_codec_rounds_as_the_fast_one(name: str) -> None:
    record = ELEMENTS[name]
    fast, table = (element_functions(e, "nearest", "saturate") for e in (codec(name), as_table(record)))
    finite = np.unique(record.values[np.isfinite(record.values)].astype(np.float64))
    middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    beside = [np.nextafter(middles, np.float32(bound)) for bound in (-np.inf, np.inf)]
    for x in np.concatenate([middles, *beside, np.array([-0.0, np.inf, -np.inf, np.nan], np.float32)]):
        assert fast.encode(x, fast.top, U(0)) == table.encode(x, table.top, U(0)), x


def test_a_limit_saturates_and_no_limit_gives_zero() -> None:
    functions = element_functions(codec("e4m3"))
    assert functions.encode(np.float32(-448), bits_of(240.0), U(0)) == 0x80 | 0x77
    assert functions.encode(np.float32(-448), U(0), U(0)) == 0


@pytest.mark.parametrize(("draw", "code"), [(0x7FFF, 2), (0x8000, 3)])
def test_stochastic_rounding_goes_away_from_zero_from_the_threshold_on(draw: int, code: int) -> None:
    encode = element_functions(codec("e2m1"), "stochastic").encode
    assert encode(np.float32(1.25), bits_of(6.0), U(draw)) == code
    assert encode(np.float32(-1.25), bits_of(6.0), U(draw)) == code | 8


def test_powers_of_two_tie_to_the_even_code() -> None:
    e3m0 = ElementCodec("e3m0", "minifloat", 4, 0, 3, 16.0, -16.0, 1.0, 7, False, -1)
    functions = element_functions(e3m0)
    assert values_of(e3m0)[:8].tolist() == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    codes = [functions.encode(np.float32(x), functions.top, U(0)) for x in (0.75, 1.5, -1.5, 3.0, 6.0, 100.0)]
    assert codes == [2, 4, 12, 4, 6, 7]
