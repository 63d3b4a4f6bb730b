"""The docstring of every public op: an example that runs, in the terms of a user."""

from __future__ import annotations

import doctest

import pytest

import autoq as aq
from autoq.tape.function import COMPOSED
from autoq.tape.op import REGISTRY


class OnAnyDevice(doctest.OutputChecker):
    """Takes what is printed without the device that it was computed on."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(want, got.replace(", cuda)", ")"), optionflags)


PUBLIC = sorted(name for name in {**REGISTRY, **COMPOSED} if hasattr(aq, name))
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("name", PUBLIC)
def test_example_of_a_public_op_runs(name):
    text = getattr(aq, name).__doc__
    test = doctest.DocTestParser().get_doctest(text, dict(vars(aq)), name, None, None)
    assert test.examples, f"aq.{name} has no example"
    printed: list[str] = []
    outcome = doctest.DocTestRunner(OnAnyDevice(), optionflags=FLAGS).run(test, out=printed.append)
    assert outcome.failed == 0, "".join(printed)
