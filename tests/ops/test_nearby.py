"""The comparison of products on a GPU takes what another order of sums gives, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.storage import QTensor
from tests.ops.nearby import check_encodes_near, scale_of_values

NAMES = ("mxfp8", "mxfp4", "nvfp4", "int8", "int4", "fp8_e4m3")
X = np.random.default_rng(7).standard_normal((6, 64)).astype(np.float32)
BOUND = np.full(X.shape, 1e-6)


def packed(x: Any, name: str) -> QTensor:
    return QTensor.quantize(np.asarray(x, np.float32), aq.scheme(name))


@pytest.mark.parametrize("name", NAMES)
def test_values_within_the_bound_are_taken(name: str) -> None:
    check_encodes_near(packed(X, name), X, BOUND)
    rng = np.random.default_rng(8)
    for _ in range(20):
        check_encodes_near(packed(X + rng.uniform(-1e-6, 1e-6, X.shape) * 0.9, name), X, BOUND)


@pytest.mark.parametrize("name", NAMES)
def test_a_tie_may_go_either_way(name: str) -> None:
    q, tie = packed(X, name), X.copy()
    places = np.asarray(q.scheme.element_format.values, np.float64) * float(scale_of_values(q)[0, 5])
    below, above = np.sort(np.abs(places[np.isfinite(places)]))[[4, 6]]
    tie[0, 5] = (below + above) / 2
    for side in (-0.9, 0.9):
        moved = tie.astype(np.float64)
        moved[0, 5] += side * BOUND[0, 5]
        check_encodes_near(packed(moved, name), tie, BOUND)


@pytest.mark.parametrize("name", NAMES)
def test_another_code_is_refused(name: str) -> None:
    q = packed(X, name)
    words = q.words.copy()
    words[2, 1] ^= 1 << 4  # the lowest bit of a code, or one above
    with pytest.raises(AssertionError):
        check_encodes_near(QTensor.make(words, q.scales, q.tensor_scale, q.scheme, q.shape), X, BOUND)


@pytest.mark.parametrize("name", NAMES)
def test_another_scale_is_refused(name: str) -> None:
    with pytest.raises(AssertionError):
        check_encodes_near(packed(X * 1.2, name), X, BOUND)
    q, scales = packed(X, name), packed(X, name).scales.copy()
    flat = scales.reshape(-1)
    flat[:1] = flat[:1] + 1 if scales.dtype.kind == "u" else flat[:1] * np.float32(1.0001)
    with pytest.raises(AssertionError):
        check_encodes_near(QTensor.make(q.words, scales, q.tensor_scale, q.scheme, q.shape), X, BOUND)
