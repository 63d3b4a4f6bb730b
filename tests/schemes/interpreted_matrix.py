"""Every element x scale x rule against the oracle, with the kernels interpreted; run by test_production.py.

Compiling a kernel for each of these takes minutes; the same functions run as plain Python in milliseconds.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autoq.schemes import ELEMENTS, SCALES, QuantScheme
from autoq.schemes.scale import NVFP4_RULES
from autoq.testing.codecs import Oracle

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


@pytest.mark.parametrize("index", range(len(SCHEMES)), ids=lambda index: SCHEMES[index].name)
def test_storage_writes_the_bytes_of_the_oracle(index, edges, assert_same):
    scheme, rng = SCHEMES[index], np.random.default_rng(index)
    x = edges(rng, (4, 10))
    draw = None if scheme.rounding == "nearest" else (index, 7 * index)
    assert_same(scheme, x, draw)
    if index % 3 == 0:
        assert_same(scheme, x, draw, given_scales(rng, x, scheme, draw))


def given_scales(rng, x, scheme, draw):
    """Scales near those that would be chosen, and some zeros."""
    values = scheme.scale_format.decode(Oracle.quantize(x, scheme, draw=draw).scales)
    factors = rng.choice(np.array([0, 0.9, 1, 1, 1.1], np.float32), values.shape)
    given = np.where(np.isfinite(values), values, 1) * factors
    return (given, np.abs(x[np.isfinite(x)]).max()) if scheme.tensor_scale else given
