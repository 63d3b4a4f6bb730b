"""check_grads catches what is wrong, says where, and passes what is right."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, GradientError
from autoq.storage import QTensor
from autoq.tape.apply import apply
from autoq.tape.op import REGISTRY, Op
from autoq.testing import ControlFlowDiverged, GradientMismatch, VacuousCheck, check_grads

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 32))
W = RNG.standard_normal((32, 3)) / 4


def op(forward, rule, **options):
    return Op("mutant", forward, {"x": rule}, **options)


def through(made, x, scheme=aq.mxfp4):
    q = x.quantize(scheme)
    return apply(made, q) ** 2


def right(F, g, x):
    return g * (1 - F.square(F.tanh(x)))


MUTANTS = {
    "sign": lambda F, g, x: -g * (1 - F.square(F.tanh(x))),
    "factor": lambda F, g, x: g * 1.001 * (1 - F.square(F.tanh(x))),
    "missing term": lambda F, g, x: g * F.square(F.tanh(x)),
    "encodes again in backward": lambda F, g, x: (
        F.dequantize(F.quantize(g, scheme=aq.int8)) * (1 - F.square(F.tanh(x)))
    ),
    "reads the encoded output": lambda F, g, x: (
        g * (1 - F.square(F.dequantize(F.quantize(F.tanh(x), scheme=aq.mxfp4))))
    ),
}


def test_the_unchanged_rule_passes():
    made = op(np.tanh, right, operands=("x",))
    check_grads(lambda x: through(made, x), X, through_rounding=True)
    check_grads(lambda x: apply(made, x), X)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_is_caught_through_rounding_and_blamed(mutant):
    made = op(np.tanh, MUTANTS[mutant], operands=("x",))
    with pytest.raises(GradientMismatch, match="Op: mutant -> mxfp4") as caught:
        check_grads(lambda x: through(made, x), X, order=1, through_rounding=True)
    text = str(caught.value)
    assert "Worst element: input 0 at (" in text
    assert "expected" in text
    assert "check_grads(" in text


@pytest.mark.parametrize("mutant", ["sign", "factor", "missing term"])
def test_a_broken_rule_is_caught_in_float64(mutant):
    made = op(np.tanh, MUTANTS[mutant], operands=("x",))
    with pytest.raises(GradientMismatch, match="mutant"):
        check_grads(lambda x: apply(made, x), X, order=1)


def test_a_rule_right_once_and_wrong_twice_is_caught_at_order_two():
    made = op(np.tanh, lambda F, g, x: g * (1 - F.square(F.tanh(x.detach() if hasattr(x, "detach") else x))),
              operands=("x",))  # fmt: skip
    check_grads(lambda x: apply(made, x), X, order=1)
    with pytest.raises(GradientMismatch, match="order 2"):
        check_grads(lambda x: apply(made, x), X, order=2)


def test_modes_that_disagree_are_caught():
    made = op(np.tanh, lambda F, g, x: g * (1 - F.square(F.tanh(x))) * (1 + 1e-9 if isinstance(g, aq.Tensor)
              else 1.0), operands=("x",))  # fmt: skip
    with pytest.raises(GradientMismatch, match="disagree"):
        check_grads(lambda x: apply(made, x), X, order=1)


def test_the_whole_jacobian_of_tiny_inputs_is_compared():
    def rule(F, g, x):  # right on average over many directions is not enough
        return g * (1 - F.square(F.tanh(x))) + F.sum(g) * 0.0 + F.flip(g) * 1e-6

    made = op(np.tanh, rule, operands=("x",))
    with pytest.raises(GradientMismatch):
        check_grads(lambda x: apply(made, x), X[:1, :2], order=1, directions=0)


def test_a_snippet_reproduces_the_failure():
    made = op(np.tanh, MUTANTS["sign"], operands=("x",))
    with pytest.raises(GradientMismatch) as caught:
        check_grads(lambda x: apply(made, x), X[:1, :4], order=1)
    code = str(caught.value).split("To reproduce:\n")[1]
    code = "\n".join(line.strip() for line in code.splitlines())
    with pytest.raises(GradientMismatch):
        exec(code, {"f": lambda x: apply(made, x)})


def test_a_snippet_of_a_registered_op_needs_nothing_else(monkeypatch):
    made = op(np.tanh, MUTANTS["sign"], operands=("x",))
    monkeypatch.setitem(REGISTRY, "mutant", made)
    with pytest.raises(GradientMismatch) as caught:
        check_grads(lambda x: apply(made, x) * x, X[:1, :4], order=1)
    code = str(caught.value).split("To reproduce:\n")[1]
    with pytest.raises(GradientMismatch):
        exec("\n".join(line.strip() for line in code.splitlines()), {})


def test_a_quantizer_checked_without_freezing_names_the_option():
    with pytest.raises(GradientMismatch, match="through_rounding=True"):
        check_grads(lambda x: x.quantize(aq.int4) * x, X, order=1)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (lambda x: aq.tanh(x), "nothing was encoded"),
        (lambda x: aq.tanh((aq.sign(x) + x * 0.0).quantize(aq.mxfp8).dequantize()) * x, "changed no value"),
        (lambda x: x.quantize(aq.mxfp4) * 3.0, "changes the gradient by"),
    ],
)
def test_a_program_without_influence_of_rounding_is_vacuous(program, why):
    with pytest.raises(VacuousCheck, match=why):
        check_grads(program, X, through_rounding=True)
    check_grads(program, X, through_rounding=True, allow_vacuous=True)


def test_control_flow_that_moves_is_an_error_of_its_own():
    count = iter(range(100))

    def f(x):
        return aq.tanh(x.quantize(aq.int4)) if next(count) < 3 else aq.exp(x.quantize(aq.int4))

    with pytest.raises(ControlFlowDiverged, match="control flow diverged at .*f:.* now exp .* recorded tanh"):
        check_grads(f, X, through_rounding=True)


def test_a_skipped_encode_in_a_replay_diverges():
    count = iter(range(100))

    def f(x):
        return aq.tanh(x.quantize(aq.int4) if next(count) < 3 else x)

    with pytest.raises(ControlFlowDiverged, match="recorded quantize -> int4"):
        check_grads(f, X, through_rounding=True)


def test_a_program_that_goes_on_longer_diverges():
    count = iter(range(100))

    def f(x):
        y = aq.tanh(x.quantize(aq.int4))
        return y * y if next(count) < 1 else y

    with pytest.raises(ControlFlowDiverged, match="the end of the program"):
        check_grads(f, X, through_rounding=True)


def test_branches_on_values_freeze():
    def f(x):
        q = x.quantize(aq.int4)
        y = aq.tanh(q) if q.sum().item() > 0 else aq.sin(q)
        mask = aq.greater(y, 0.0)
        return aq.where(mask, y, y * 0.5) * float(q.numpy().max()) * aq.dequantize(q)[:, aq.argmax(q[0])][0]

    check_grads(f, X, through_rounding=True)


def test_kinks_under_exact_ties_freeze():
    def f(x):
        q = x.quantize(aq.mxfp4)
        parts = [aq.relu(q), aq.abs(q), aq.maximum(q, q.flip(axis=-1)), aq.clip(q, -1, 1), aq.sort(q)]
        return [p * p for p in parts] + [aq.max(q, axis=1), aq.var(q, axis=1)]

    check_grads(f, X, through_rounding=True)


def test_draws_freeze_though_the_generator_moves_on():
    rng = aq.Generator(3)

    def f(x):
        q = aq.quantize(x, aq.mxfp4, rounding="stochastic", rng=rng)
        return aq.dropout(aq.tanh(q), 0.3, rng=rng) ** 2

    check_grads(f, X, through_rounding=True)


@pytest.mark.parametrize("scheme", [aq.int4, aq.mxfp4, aq.fp8_e4m3], ids=lambda s: s.name)
def test_the_clip_estimator_passes_where_its_mask_says(scheme):
    scales = {"int4": np.full((2, 1), 0.2, np.float32), "fp8_e4m3": np.full((1, 1), 1e-3, np.float32)}
    given = scales.get(scheme.name)

    def f(x):
        return aq.tanh(aq.quantize(x, scheme, ste="clip", scales=given)) ** 2

    check_grads(f, X, through_rounding=True)


def test_quantized_gradients_are_checked_with_their_residuals():
    def f(x, w):
        h = aq.quantize_grad(aq.tanh(x.quantize(aq.mxfp8)), aq.int4)
        return aq.sin(h @ w)

    check_grads(f, X, W, order=1, through_rounding=True)


def test_a_wrong_rule_behind_a_quantized_gradient_is_caught():
    made = op(np.tanh, MUTANTS["factor"], operands=("x",))

    def f(x, w):
        return aq.sin(aq.quantize_grad(through(made, x), aq.int4) @ w)

    with pytest.raises(GradientMismatch, match="mutant"):
        check_grads(f, X, W, order=1, through_rounding=True)


def test_reencodes_of_cut_blocks_are_events():
    def f(x):
        q = x.quantize(aq.mxfp4)
        return aq.tanh(q[:, 3:9].reshape(12)) ** 2, aq.tanh(q.T.reshape(8, 8))

    check_grads(f, X, through_rounding=True)


def test_changed_entries_of_a_packed_target_are_events():
    def f(x, v):
        return aq.tanh(x.quantize(aq.mxfp4).at[0, 2:6].set(v)) ** 2

    check_grads(f, X, X[0, :4] * 2, through_rounding=True)


def test_a_packed_input_moves_around_what_it_decodes_to():
    q = aq.tensor(X, dtype=aq.mxfp4)
    check_grads(lambda q: aq.tanh(q * q), q, through_rounding=True)


def test_checkpoints_repeat_their_events():
    def f(x):
        return aq.tanh(x.quantize(aq.mxfp4)) ** 2

    check_grads(aq.checkpoint(f), X, order=1, through_rounding=True)


def test_a_checkpoint_that_computes_something_else_again_diverges():
    count = iter(range(100))

    def f(x):
        return aq.tanh(x.quantize(aq.mxfp4 if next(count) < 1 else aq.int4)) ** 2

    with pytest.raises(ControlFlowDiverged, match="computed again"):
        check_grads(aq.checkpoint(f), X, order=1, through_rounding=True)


def test_blocks_that_are_not_finite_are_left_out():
    x = np.array(X)
    x[0, 3], x[1, 20] = np.nan, np.inf
    scheme = aq.int4.replace(block=(8,))
    check_grads(lambda x: aq.tanh(x.quantize(scheme)) * x, x, order=1, through_rounding=True)


def test_gradients_at_infinite_slopes_are_left_out():
    check_grads(lambda x: aq.sqrt(aq.abs(x.quantize(aq.int4))), X, order=1, through_rounding=True)


def test_outputs_may_be_nested():
    check_grads(lambda x: {"a": [aq.tanh(x)], "b": (x * x, 3)}, X)


def test_what_does_not_move_is_passed_on():
    def f(x, labels, none, flag):
        assert none is None
        assert flag is True
        return aq.cross_entropy(x, labels)

    check_grads(f, X, np.array([3, 1]), None, True)


@pytest.mark.parametrize("inputs", [(), (np.arange(3),)])
def test_without_float_inputs_there_is_nothing_to_check(inputs):
    with pytest.raises(ArgumentError, match="float array"):
        check_grads(lambda *x: x, *inputs)


def test_a_result_off_the_tape_is_an_error():
    with pytest.raises(GradientError, match="none of it tracked"):
        check_grads(lambda x: aq.tanh(x).detach(), X)


def test_two_swapped_events_are_caught():
    from autoq.testing.programs import FrozenProgram

    def f(x):
        a, b = x.quantize(aq.mxfp4), (x * x).quantize(aq.mxfp4)
        return aq.tanh(a) * b

    def slope(program):
        d = [np.ones_like(x) for x in program.inputs]
        ahead, behind = (program.at([x + h * v for x, v in zip(program.inputs, d, strict=True)])
                         for h in (1e-5, -1e-5))  # fmt: skip
        expected = float(np.sum(ahead[0] - behind[0])) / 2e-5
        got = float(np.sum(program.gradients([np.ones(X.shape)])[0]))
        return abs(got - expected) / abs(expected)

    program = FrozenProgram(f, [X])
    assert slope(program) < 1e-7
    first, second = program.session.events[:2]
    first.event, second.event = second.event, first.event
    assert slope(program) > 1e-3


def test_the_mode_leaves_nothing_behind():
    before = aq.tanh(aq.tensor(X, dtype=aq.mxfp4))
    check_grads(lambda x: aq.tanh(x.quantize(aq.mxfp4)) ** 2, X, through_rounding=True)
    after = aq.tanh(aq.tensor(X, dtype=aq.mxfp4))
    assert before.qtensor.same_bits(after.qtensor)
    assert type(after.qtensor) is QTensor
    assert type(after) is aq.AutodiffQTensor
