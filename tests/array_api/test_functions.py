"""Every function of the standard gives what array-api-strict gives: dtypes, shapes, values, special cases."""

from __future__ import annotations

import os

import array_api_strict as strict
import pytest

import autoq as aq
from tests.array_api import array_cases as array_cases
from tests.array_api import creation_cases as creation_cases
from tests.array_api import elementwise_cases as elementwise_cases
from tests.array_api.cases import CASES, compare, run

ON_A_GPU = os.environ.get("AUTOQ_TEST_DEVICE") == "cuda"
EITHER_ZERO = ("maximum", "minimum")  # of 0.0 and -0.0 a GPU may give the other one
strict.set_array_api_strict_flags(api_version="2024.12")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", sorted(CASES))
def test_function_agrees_with_the_strict_implementation(name):
    for case in CASES[name]:
        compare(run(case, aq), run(case, strict), signs=not ON_A_GPU or name not in EITHER_ZERO)
