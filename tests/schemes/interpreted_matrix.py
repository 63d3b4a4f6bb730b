"""Every element x scale x rule against the oracle, with the kernels interpreted; run by test_production.py.

Compiling a kernel for each of these takes minutes; the same functions run as plain Python in milliseconds.
"""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

from autoq.schemes import ELEMENTS, SCALES, ElementFormat, QuantScheme, register_element
from autoq.schemes.scale import NVFP4_RULES
from autoq.testing.codecs import Oracle, Storage

# Formats without a faster codec are tables: one without -0 whose ends differ; one with both zeros, a NaN, and
# two codes of one value.
SQUARES = (0.0, 1.0, 4.0, 9.0, 16.0, -1.0, -4.0, -9.0)
STEPS = (0.0, 0.25, 1.0, 3.0, 4.0, 6.5, 7.0, 0.0, -0.0, -0.25, -1.0, -3.0, -4.0, -6.5, -7.0, -7.0)
# Registered for good, so only in a process of its own, and not where doctests are collected.
if os.environ.get("AUTOQ_MATRIX") == "1":
    register_element(ElementFormat("squares", 3, "table", 16.0, -9.0, table=SQUARES))
    register_element(ElementFormat("steps", 4, "table", 7.0, -7.0, table=STEPS, nan_codes=(7,)))

BLOCKS = ((4,), (2, 4), None)
CHOICES = list(
    itertools.product(
        ("nearest", "stochastic", "stochastic8"), ("propagate", "saturate"), ("abs_max", "abs_mean"), BLOCKS
    )
)
# Choices tried of each combination: another part of them for each.
TRIED = 2


def combinations():
    """(element, scale, two levels, rule): all that a QuantScheme takes."""
    for element, scale, two_level in itertools.product(ELEMENTS, SCALES.values(), (False, True)):
        for rule in scale.two_level_rules if two_level else scale.rules:
            if element == "e2m1" or rule not in NVFP4_RULES:
                yield element, scale.name, two_level, rule


def schemes():
    tried = 0
    for element, scale, two_level, rule in combinations():
        for _ in range(TRIED):
            # 7 and 36 have no common divisor: all choices come round.
            rounding, nonfinite, calibration, block = CHOICES[tried * 7 % len(CHOICES)]
            tried += 1
            if two_level:
                calibration, block = "abs_max", block or (4,)
            yield QuantScheme(element, block, scale, two_level, rule, rounding, nonfinite, calibration)


SCHEMES = list(schemes())


# Lines that random edges seldom are: at the end of float32, and at its beginning.
FLOAT_MAX = np.finfo(np.float32).max
ENDS = np.array([[[FLOAT_MAX, -FLOAT_MAX, -0.0]], [[1e-44, 0.0, -3e-44]]], np.float32)
STORED_CODES = {"ue8m0": 256, "ue4m3": 128}
MANTISSA = {"ue4m3": 3, "f16": 10, "bf16": 7}


@pytest.mark.parametrize("index", range(len(SCHEMES)), ids=lambda index: SCHEMES[index].name)
def test_storage_writes_the_bytes_of_the_oracle(index, edges, assert_same):
    scheme, rng = SCHEMES[index], np.random.default_rng(index)
    x = edges(rng, (4, 10))
    draw = None if scheme.rounding == "nearest" else (index, 7 * index)
    for lines in (x, *ENDS):
        assert_same(scheme, lines, draw)
    if index % 3 == 0 or scheme.scale_rule in NVFP4_RULES:
        assert_same(scheme, x, draw, given_scales(rng, x, scheme, draw))


def given_scales(rng, x, scheme, draw):
    """Scales near those that would be chosen, some zeros, ties between two stored, the largest float."""
    values = scheme.scale_format.decode(Oracle.quantize(x, scheme, draw=draw).scales)
    factors = rng.choice(np.array([0, 0.9, 1, 1, 1.1], np.float32), values.shape)
    given = np.where(np.isfinite(values), values, 1) * factors
    half_step = np.ldexp(0.5, np.frexp(given)[1] - 1 - MANTISSA.get(scheme.scale, 23))
    given = np.where(rng.random(given.shape) < 0.3, given + half_step, given).astype(np.float32)
    given[rng.random(given.shape) < 0.05] = FLOAT_MAX
    return (given, np.abs(x[np.isfinite(x)]).max()) if scheme.tensor_scale else given


@pytest.mark.parametrize("index", range(0, len(SCHEMES), 5), ids=lambda index: SCHEMES[index].name)
def test_storage_reads_any_bytes_as_the_oracle(index, edges):
    scheme, rng = SCHEMES[index], np.random.default_rng(index)
    known = Oracle.quantize(edges(rng, (4, 10)), scheme, draw=(1, 2))
    codes = rng.integers(0, 1 << scheme.element_bits, (4, 10)).astype(np.uint8)
    scales = known.scales.copy()
    if scheme.scale in STORED_CODES:
        scales = rng.integers(0, STORED_CODES[scheme.scale], scales.shape).astype(np.uint8)
        scales.flat[0] = STORED_CODES[scheme.scale] - 1  # NaN
    else:
        scales.flat[0] = np.nan
    found = Storage.dequantize(codes, scales, known.tensor_scale, scheme)
    np.testing.assert_array_equal(found, Oracle.dequantize(codes, scales, known.tensor_scale, scheme))


@pytest.mark.parametrize("name", ELEMENTS)
def test_a_value_between_two_codes_takes_the_even_one(name):
    values = np.unique(ELEMENTS[name].values.astype(np.float64))
    values = values[(values >= ELEMENTS[name].minimum) & (values <= ELEMENTS[name].maximum)]
    middles = ((values[1:] + values[:-1]) / 2).astype(np.float32)
    np.testing.assert_array_equal(Storage.encode(middles, name), Oracle.encode(middles, name))


@pytest.mark.parametrize("scale", MANTISSA)
def test_a_given_scale_between_two_stored_ones_takes_the_even_one(scale, assert_same):
    steps = np.arange(12, dtype=np.float32)[:, None]
    given = np.float32(1) + (steps + np.float32(0.5)) * np.float32(2.0 ** -MANTISSA[scale])
    scheme = QuantScheme("int4", (4,), scale, scale_rule="nearest")
    assert_same(scheme, np.ones((12, 4), np.float32), None, given)
