"""autoq under its own checks: every differentiable op through every scheme, and random programs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import autoq as aq
from autoq.tape.apply import apply
from autoq.tape.op import REGISTRY
from autoq.testing import VacuousCheck, check_grads, check_production
from autoq.testing import strategies as sts
from tests.examples import SCALE, scaled

SCHEMES = ("mxfp8", "mxfp6_e2m3", "mxfp4", "nvfp4", "int8", "int4")
SIGNAL, LEARNED = np.random.default_rng(0).standard_normal((2, 32)), np.array([[0.3], [0.4]])
SMALL_BLOCKS = aq.int4.replace(block=(8,))
# Casts have no samples, since most of them are staircases: each is checked in a program of its own.
CASTS = {
    "quantize": (lambda x: aq.tanh(x.quantize(aq.mxfp4, ste="clip")) * x, [SIGNAL]),
    "dequantize": (lambda x: aq.tanh(x.quantize(aq.mxfp4)).dequantize() * x, [SIGNAL]),
    "astype": (lambda x: aq.tanh(x.quantize(aq.mxfp4).dequantize()).astype(aq.bfloat16) * x, [SIGNAL]),
    "identity": (lambda x: apply("identity", aq.tanh(x.quantize(aq.mxfp4))) * x, [SIGNAL]),
    "to_device": (
        lambda x: apply("to_device", aq.tanh(x.quantize(aq.mxfp4)), device=x.device) * x,
        [SIGNAL],
    ),
    "quantize_grad": (lambda x: aq.sin(aq.quantize_grad(x.quantize(aq.mxfp8), aq.int8)) * x, [SIGNAL]),
    "quantize_learned_step": (
        lambda x, step: aq.tanh(x.quantize(SMALL_BLOCKS, ste=aq.learned_step(step))) * x,
        [SIGNAL, LEARNED],
    ),
    "quantize_learned_clip": (
        lambda x, level: aq.tanh(x.quantize(SMALL_BLOCKS, ste=aq.learned_clip(level))) * x,
        [SIGNAL, LEARNED * 4],
    ),
}
DIFFERENTIABLE = sorted(n for n, op in REGISTRY.items() if op.differentiable)
NAMES = [n for n in DIFFERENTIABLE if n not in CASTS and REGISTRY[n].sample]
# Constant between jumps: rounding has no influence on a gradient of 0.
FLAT = {"ceil", "floor", "round", "trunc", "sign", "floor_divide", "extremum_share"}
# Where a quantized operand may not come to lie: the functions aren't smooth there, and not element-wise.
DOMAIN = {"binary_cross_entropy": (1e-3, 1 - 1e-3)}


def examples(count):
    """Settings for so many examples, more or less by the profile."""
    checks = list(HealthCheck)
    return settings(max_examples=scaled(count), deadline=None, database=None, suppress_health_check=checks)


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


@pytest.mark.parametrize("name", CASTS)
def test_every_cast_has_two_gradients_in_both_modes(name):
    program, inputs = CASTS[name]
    check_grads(program, *inputs, order=2, through_rounding=True)
    leaves = [aq.tensor(x, dtype=aq.float32, requires_grad=True) for x in inputs]
    assert name in {entry.op for entry in aq.Tape.of(program(*leaves))}


def test_no_differentiable_op_is_left_out_of_the_checks_of_order_two():
    assert [n for n in DIFFERENTIABLE if n not in NAMES and n not in CASTS] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_samples_of_an_op_move_every_operand_that_has_a_gradient(name):
    op = REGISTRY[name]
    samples = [operands for operands, _ in op.sample(np.random.default_rng(0))]
    for i, rule in enumerate(op.rules):
        floats = [np.asarray(x[i]).dtype.kind == "f" for x in samples if len(x) > i and x[i] is not None]
        assert rule is None or any(floats), op.operands[i]


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
