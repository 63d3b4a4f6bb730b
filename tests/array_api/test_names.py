"""Every name of the standard is offered or in the list of skips, never both; the docs count them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import array_api_strict as strict
import numpy as np
import pytest

import autoq as aq
from tests.array_api import array_cases as array_cases
from tests.array_api import creation_cases as creation_cases
from tests.array_api import elementwise_cases as elementwise_cases
from tests.array_api import test_array_object
from tests.array_api.cases import CASES
from tests.array_api.standard import (
    ALL_FUNCTIONS,
    ALL_METHODS,
    ATTRIBUTES,
    CONSTANTS,
    DTYPES,
    skipped_names,
    skips,
)

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "array_api.md"
ELSEWHERE = {"int8"}  # a quantized format under the standard's name; the dtype is in aq.dtypes
NOT_THERE = {"complex64", "complex128"}
strict.set_array_api_strict_flags(api_version="2024.12")


@pytest.mark.parametrize("name", ALL_FUNCTIONS + CONSTANTS)
def test_name_is_offered_or_skipped(name):
    assert hasattr(aq, name) != (name in skipped_names())


@pytest.mark.parametrize("name", ALL_METHODS + ATTRIBUTES)
def test_method_or_attribute_is_offered_or_skipped(name):
    assert hasattr(aq.ones((1, 1)), name) != (name in skipped_names())


@pytest.mark.parametrize("name", DTYPES)
def test_dtype_is_offered_or_named_in_the_list_of_skips(name):
    offered = isinstance(getattr(aq, name, None), np.dtype)
    assert offered != (name in ELSEWHERE | NOT_THERE)
    if not offered:
        assert name in (Path(__file__).parents[1] / "array_api_skips.txt").read_text()
    if name not in NOT_THERE:
        assert getattr(aq.dtypes, name).name == name


@pytest.mark.parametrize("name", ALL_FUNCTIONS)
def test_offered_function_is_compared_with_the_strict_implementation(name):
    assert (name in CASES) != (name in skipped_names())


@pytest.mark.parametrize("name", ALL_METHODS + ATTRIBUTES)
def test_offered_method_or_attribute_is_tested(name):
    assert re.search(rf"\b{name}\b", Path(test_array_object.__file__).read_text())


def test_lists_are_those_of_the_strict_implementation():
    offered = {n for n in strict.__all__ if n not in strict_only()}
    assert offered == {*ALL_FUNCTIONS, *CONSTANTS, *DTYPES} - {"__array_namespace_info__"}
    members = {n for n in dir(strict._array_object.Array) if n in inspect_members()}
    assert members == {*ALL_METHODS, *ATTRIBUTES}


def strict_only() -> set[str]:
    flags = {n for n in strict.__all__ if "flags" in n.lower() or n.startswith("__")}
    later = {"broadcast_shapes", "isin"}  # of version 2025.12
    return flags | later | {"Device", "fft", "linalg"}


def inspect_members() -> set[str]:
    """Members of the array object that are of the standard: not Python's own, not the class's own."""
    own = {"__array__", "__buffer__", "__hash__", "__iter__", "__len__"}
    members = vars(strict._array_object.Array)
    python = set(dir(object)) - {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
    return {
        n
        for n, value in members.items()
        if (callable(value) or isinstance(value, property))
        and n not in own | python
        and (not n.startswith("_") or n.startswith("__"))
    }


@pytest.mark.parametrize("name", sorted(set(ALL_FUNCTIONS) - {"__array_namespace_info__"}))
def test_signature_takes_what_the_standard_names(name):
    theirs = inspect.signature(getattr(strict, name)).parameters.values()
    ours = inspect.signature(getattr(aq, name)).parameters
    kinds = [p.kind for p in ours.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        positional = [p for p in theirs if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        assert len(positional) <= sum(k is inspect.Parameter.POSITIONAL_OR_KEYWORD for k in kinds)
    for parameter in theirs:
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            assert parameter.name in ours, parameter.name


def test_every_skip_has_a_reason():
    assert skips()
    assert all(len(reason) > 30 for reason in skips().values())


def test_docs_count_what_is_offered_and_skipped():
    text = PAGE.read_text()
    functions = [n for n in ALL_FUNCTIONS if n not in skipped_names()]
    methods = [n for n in ALL_METHODS + ATTRIBUTES if n not in skipped_names()]
    dtypes = [n for n in DTYPES if hasattr(aq.dtypes, n)]
    rows = {
        "Functions": (len(functions), len(ALL_FUNCTIONS)),
        "Methods and attributes of arrays": (len(methods), len(ALL_METHODS + ATTRIBUTES)),
        "Constants": (len(CONSTANTS), len(CONSTANTS)),
        "Dtypes": (len(dtypes), len(DTYPES)),
    }
    for row, (offered, there) in rows.items():
        assert re.search(rf"\| {row} +\| +{offered} +\| +{there} +\|", text), (row, offered, there)
    assert f"{len(skips())} entries" in text
    assert f"{sum(map(len, CASES.values()))} calls" in text
