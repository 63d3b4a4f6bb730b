"""autoq under its own checks: every differentiable op through every scheme, and random programs."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import autoq as aq
from autoq.tape.op import REGISTRY
from autoq.testing import VacuousCheck, check_grads, check_production
from autoq.testing import strategies as sts

SCALE = {"nightly": 10.0, "coverage": 0.1}.get(os.environ.get("AUTOQ_TEST_PROFILE", ""), 1.0)
SCHEMES = ("mxfp8", "mxfp6_e2m3", "mxfp4", "nvfp4", "int8", "int4")
CASTS = {
    *("quantize", "dequantize", "astype", "identity", "quantize_grad"),
    *("quantize_learned_step", "quantize_learned_clip"),
}
NAMES = sorted(n for n, op in REGISTRY.items() if op.differentiable and n not in CASTS and op.sample)
# Constant between jumps: rounding has no influence on a gradient of 0.
FLAT = {"ceil", "floor", "round", "trunc", "sign", "floor_divide", "extremum_share"}
# Where a quantized operand may not come to lie: the functions aren't smooth there, and not element-wise.
DOMAIN = {"binary_cross_entropy": (1e-3, 1 - 1e-3)}


def examples(count):
    """Settings for so many examples, more or less by the profile."""
    checks = list(HealthCheck)
    return settings(
        max_examples=max(1, int(count * SCALE)), deadline=None, database=None, suppress_health_check=checks
    )


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")


def through(call, scheme):
    """The op on quantized operands, and the square of what it gives: rounding then moves the gradient."""

    def program(*inputs):
        out = call(*inputs, before=lambda x: x.quantize(scheme) if x.ndim else x)
        return out.dequantize() * out.dequantize() if out.tensor_type.is_quantized else out * out

    return program


def in_domain(call, scheme):
    if call.op.name not in DOMAIN:
        return True
    low, high = DOMAIN[call.op.name]
    decoded = [aq.tensor(x, dtype=scheme).numpy() for x in call.inputs if x.ndim]
    return all(((q > low) & (q < high)).all() for q in decoded)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", NAMES)
def test_every_op_passes_the_frozen_rounding_check(name, scheme):
    moved, alone = [], []

    @examples(10)
    @given(sts.op_calls(name, ranked=True))
    def check(call):
        found = aq.scheme(scheme)
        assume(in_domain(call, found))
        alone.append(all(x.shape[-1:] in ((), (1,)) for x in call.inputs))
        try:
            check_grads(through(call, found), *call.inputs, order=1, directions=1, through_rounding=True)
        except VacuousCheck:
            moved.append(False)
        else:
            moved.append(True)

    check()
    if SCALE >= 1:  # one example alone may be exact
        assert name in FLAT or any(moved) or all(alone), "rounding never had an influence"


@pytest.mark.parametrize("name", NAMES)
def test_every_op_has_two_gradients_in_both_modes(name):
    @examples(3)
    @given(sts.op_calls(name))
    def check(call):
        check_grads(call, *call.inputs, order=2, directions=1)

    check()


def squared(program):
    def both(*inputs):
        return [v.dequantize() * v.dequantize() for v in program(*inputs)]

    both.__name__ = "program"
    return both


def test_random_programs_pass_the_frozen_rounding_check():
    moved = []

    @examples(200)
    @given(sts.programs())
    def check(program):
        try:
            check_grads(squared(program), *program.inputs, order=1, directions=1, through_rounding=True)
        except VacuousCheck:
            moved.append(False)
        else:
            moved.append(True)

    check()
    assert np.mean(moved) > 0.75


@examples(20)
@given(sts.programs(steps=st.integers(1, 4)))
def test_random_programs_pass_it_to_the_second_order(program):
    check_grads(
        squared(program),
        *program.inputs,
        order=2,
        directions=1,
        through_rounding=True,
        tolerance=1e-6,
        allow_vacuous=True,
    )


@examples(200)
@given(sts.programs())
def test_random_programs_in_production_agree_with_float64(program):
    check_production(program, *program.inputs)


@examples(50)
@given(sts.programs())
def test_the_results_of_random_programs_survive_saving(tmp_path_factory, program):
    path = tmp_path_factory.mktemp("programs") / "results.safetensors"
    results = {f"v{i}": x for i, x in enumerate(program(*map(aq.tensor, program.inputs)))}
    aq.io.save(path, results)
    loaded = aq.io.load(path)
    for name, x in results.items():
        y = loaded[name]
        stored = getattr(y, "value", y)
        if isinstance(x, aq.AutodiffQTensor):
            assert stored.same_bits(x.qtensor)
        else:
            np.testing.assert_array_equal(np.asarray(stored), x.numpy())


@examples(20)
@given(sts.programs())
def test_random_programs_are_deterministic(program):
    aq.testing.check_same_on(["cpu"], program, *[aq.tensor(x, dtype=aq.float32) for x in program.inputs])
