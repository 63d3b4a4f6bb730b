"""The docstring of every public op: an example that runs, in the terms of a user."""

from __future__ import annotations

import doctest

import pytest

import autoq as aq
from autoq.tape.function import COMPOSED
from autoq.tape.op import REGISTRY

PUBLIC = sorted(name for name in {**REGISTRY, **COMPOSED} if hasattr(aq, name))
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("name", PUBLIC)
def test_example_of_a_public_op_runs(name):
    text = getattr(aq, name).__doc__
    test = doctest.DocTestParser().get_doctest(text, dict(vars(aq)), name, None, None)
    assert test.examples, f"aq.{name} has no example"
    printed: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=printed.append)
    assert outcome.failed == 0, "".join(printed)
