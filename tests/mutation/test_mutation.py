"""The mutation check itself, on a few mutants of each kind; ``python -m tests.mutation`` runs all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from autoq.tape.op import REGISTRY
from tests.mutation import programs, rules, signals, source
from tests.mutation.mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]


def mutation(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.mutation", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_some_mutants_of_each_kind_are_caught():
    run = mutation("results", "signals", "--only", "tanh")
    assert run.returncode == 0, run.stdout + run.stderr
    for kind in (
        "rule's result",
        "encodes in backward",
        "reads the encoded output",
        "encode skipped",
    ):
        assert f"| {kind} |" in run.stdout
    run = mutation("codecs", "--only", "ue8m0_rule")
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_mutant_that_no_check_notices_survives():
    ignored = Mutant("rule's result", "exp", "sign flipped", [("nothing", lambda: None)])
    assert ignored.caught_by() == ""


def test_a_changed_source_is_taken_back():
    rule = REGISTRY["tanh"].rules[0].function
    x = np.array([0.5])
    from autoq.tape.namespace import RAW

    before = rule(RAW, np.full(1, 3.0), x)
    changes = source.edits(rule)
    assert changes
    for what, code in changes:
        with source.with_code(rule, code):
            assert not np.allclose(rule(RAW, np.full(1, 3.0), x), before), what
        np.testing.assert_array_equal(rule(RAW, np.full(1, 3.0), x), before)


def test_two_rules_of_one_program_are_told_from_two_others():
    add, mul = REGISTRY["add"].vjp, REGISTRY["mul"].vjp
    assert rules._same_program(add["a"], add["b"])
    assert not rules._same_program(mul["a"], REGISTRY["div"].vjp["a"])


def test_the_checks_pass_on_what_is_not_broken():
    for name in programs.CASTS:
        for _, check in programs.casts(name):
            check()
    programs.frozen(programs.layers, programs.arrays(2))
    programs.production(programs.layers, programs.arrays(2))
    for _, check in signals.quantized_checks(REGISTRY["relu"]):
        check()
