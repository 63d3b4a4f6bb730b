"""Element-wise kernels in the simulator: the bits of decoding, computing and encoding on the CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autoq.kernels.cuda import launch, map
from autoq.kernels.cuda.trace import traced
from autoq.ops.on_device import elementwise
from autoq.storage import QTensor
from autoq.tape.accelerated import forward_on_device, rule_on_device
from autoq.tape.namespace import RAW
from autoq.tape.op import REGISTRY
from autoq.types import bool_, float32, float64

from .mapping import decoded, floats, into, on_device, quantized

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
HALF, BRAIN = np.float16, ml_dtypes.bfloat16


def wanted(out: Any, function: Any, operands: Any) -> Any:
    """The same on the CPU."""
    shape = np.broadcast_shapes(*[x.shape for x in operands])
    with np.errstate(all="ignore"):
        values = np.broadcast_to(function(*[decoded(x) for x in operands]), shape)
        return QTensor.quantize(values, out) if isinstance(out, str) else values.astype(out)


def same(found: Any, expected: Any) -> bool:
    if isinstance(found, QTensor):
        return found.same_bits(expected) and np.array_equal(found.words, expected.words)
    return found.dtype == expected.dtype and np.array_equal(
        found.astype(np.float32), expected.astype(np.float32), equal_nan=True
    )


def lanes() -> int:
    """How many values a lane took in the latest launch; 0 for the walk by items."""
    return list(map._launches.values())[-1].write.task.values


CASES: dict[str, tuple[Any, Any, list[Any], bool]] = {
    "two packed": ("mxfp8", np.add, [quantized("mxfp8", 2, 64), quantized("mxfp8", 2, 64, seed=1)], True),
    "two formats": ("mxfp8_e5m2", np.multiply, [quantized("mxfp8_e5m2", 64), quantized("mxfp4", 64)], True),
    "three of a word": ("mxfp6_e3m2", np.add, [quantized("mxfp6_e3m2", 2, 64), floats(2, 64)], True),
    "two levels": ("nvfp4", np.add, [quantized("nvfp4", 2, 64), floats(2, 64)], True),
    "one scale": ("fp8_e4m3", np.add, [quantized("fp8_e4m3", 2, 64), floats(2, 64)], True),
    "divided": ("int8", np.subtract, [quantized("int8", 2, 64), floats(2, 64)], True),
    "a row": ("mxfp8", np.add, [quantized("mxfp8", 3, 64), floats(64)], True),
    "a column": ("mxfp8", np.multiply, [quantized("mxfp8", 3, 64), floats(3, 1)], True),
    "a number": ("mxfp4", np.multiply, [quantized("mxfp4", 3, 64), floats()], True),
    "a packed row": ("mxfp4", np.add, [floats(2, 1, 64), quantized("mxfp4", 3, 64)], True),
    "halves": (BRAIN, np.add, [floats(3, 64).astype(HALF), floats(64).astype(BRAIN)], True),
    "truths out": (np.bool_, np.greater, [quantized("mxfp4", 3, 64), floats(64)], True),
    "truths in": (HALF, np.where, [floats(3, 64) > 0, floats(3, 64), quantized("mxfp4", 3, 64)], True),
    "a cut": (np.float32, np.add, [quantized("mxfp6_e3m2", 4, 96)[::2, 32:], floats(2, 64)], True),
    "tiles": (np.float32, np.add, [quantized("nvfp4_2d", 32, 32), floats(32, 32)], True),
    "odd lengths": ("mxfp8", np.add, [quantized("mxfp8", 3, 45), floats(45)], True),
    "odd words": ("mxfp6_e3m2", np.add, [quantized("mxfp6_e3m2", 3, 45), floats(45)], True),
    "odd of two levels": ("nvfp4", np.add, [quantized("nvfp4", 3, 45), floats(3, 1)], True),
    "odd of one scale": ("fp8_e4m3", np.add, [quantized("fp8_e4m3", 3, 45), floats(3, 1)], True),
    "a transpose": ("mxfp8", np.add, [quantized("mxfp4", 64, 32).T, quantized("mxfp8", 32, 64)], False),
    "strides": (np.float32, np.add, [floats(64, 6)[:, ::2].T, floats(3, 64)], False),
    "long blocks": (np.float32, np.add, [quantized("fp8_block", 3, 130), floats(3, 130)], False),
    "one value": (np.float32, np.add, [floats(), floats()], False),
    "unaligned": (np.float32, np.add, [floats(65)[1:], floats(64)], True),
    "unaligned halves": (HALF, np.add, [floats(65).astype(HALF)[1:], floats(64).astype(HALF)], True),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_bits_are_those_of_the_cpu(case: str) -> None:
    out, function, operands, by_lanes = CASES[case]
    before = launch.launches
    found = into(out, function, operands)
    assert same(found, wanted(out, function, operands))
    assert bool(lanes()) == by_lanes
    needs_amax = out in ("nvfp4", "fp8_e4m3")
    assert launch.launches - before == (2 if needs_amax else 1)


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "mxfp6_e2m3", "nvfp4", "int8", "int4", "fp8_e4m3"])
@pytest.mark.parametrize("columns", [1, 7, 31, 33, 40, 67, 97])
def test_lines_that_end_anywhere(name: str, columns: int) -> None:
    x, wide = quantized(name, 3, columns), quantized("nvfp4", 6, columns + 32, seed=1)
    others = [
        quantized("mxfp8", 3, columns, seed=2), wide[::2, 32:], quantized("int8_full", 1, columns),
        floats(columns), floats(3, 1), floats(3, columns + 1)[:, 1:].astype(HALF), floats(3, columns) > 0,
    ]  # fmt: skip
    for other in others:
        operands = [x, other]
        assert same(into(name, np.multiply, operands), wanted(name, np.multiply, operands))
        assert lanes() > 0
    bad = floats(3, columns)
    bad[0, -1], bad[1, 0] = np.nan, np.inf
    assert same(into(name, np.add, [x, bad]), wanted(name, np.add, [x, bad]))


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4", "int4", "fp8_e4m3"])
@pytest.mark.parametrize("columns", [64, 40])
def test_values_that_are_not_finite_and_zeros(name: str, columns: int) -> None:
    x = floats(4, columns)
    x[0], x[1, 5], x[2, 3], x[3, ::3] = 0.0, np.nan, -np.inf, -0.0
    for policy in ("propagate", "saturate"):
        scheme = quantized(name, 1, 32).scheme.replace(nonfinite=policy)
        found = forward_on_device(REGISTRY["neg"], [x], {}, scheme, float32)
        expected = QTensor.quantize(-x, scheme)
        assert same(found, expected)


def test_scales_near_the_end_of_float32() -> None:
    x = floats(2, 64) * np.float32(2.0**125)
    x[0, 0] = np.finfo(np.float32).max
    for name in ("mxfp8", "mxfp8_e5m2", "mxfp4", "int8"):
        assert same(into(name, np.positive, [x]), QTensor.quantize(x, name)), name


def test_an_empty_result_launches_nothing() -> None:
    before = launch.launches
    assert (
        forward_on_device(REGISTRY["add"], [floats(0, 3), floats(0, 3)], {}, float32, float32)
        is NotImplemented
    )
    assert launch.launches == before


def test_schemes_that_need_more_come_as_float32() -> None:
    x = floats(2, 64)
    for change in ({"calibration": "abs_mean"}, {"nonfinite": "raise"}, {"block": (2, 16)}):
        scheme = quantized("mxfp8", 1, 32).scheme.replace(**change)
        assert np.array_equal(forward_on_device(REGISTRY["neg"], [x], {}, scheme, float32), -x)


def test_conditions_that_are_numbers_are_left_to_be_refused() -> None:
    x = floats(64)
    assert forward_on_device(REGISTRY["where"], [x, x, x], {}, float32, float32) is NotImplemented
    assert forward_on_device(REGISTRY["where"], [1, x, x], {}, float32, float32) is NotImplemented


SAMPLED = [op for op in REGISTRY.values() if op.elementwise and not op.name.startswith("bitwise")]


@pytest.mark.parametrize("op", SAMPLED, ids=lambda op: op.name)
def test_every_op_and_its_gradient_rules(op: Any) -> None:
    for operands, given in op.sample(np.random.default_rng(0)):
        static = {**op.defaults, **given}
        arrays = [
            np.asarray(x) if np.asarray(x).dtype.kind == "b" else np.asarray(x, np.float32) for x in operands
        ]
        out = bool_ if op.kind == "index" else float32
        found = forward_on_device(op, arrays, static, out, float32)
        expected = np.asarray(op.forward(*arrays, **static))
        assert found.dtype == out
        np.testing.assert_allclose(found, expected, rtol=3e-6, atol=1e-7)
        if op.differentiable:
            check_rules(op, arrays, static, floats(*expected.shape))


def check_rules(op: Any, arrays: list[Any], static: dict[str, Any], g: np.ndarray) -> None:
    for i, rule in enumerate(op.rules):
        if rule is None:
            continue
        read = [arrays[r.key] if r.source == "value" else static[r.key] for r in rule.reads]
        before = launch.launches
        found = rule_on_device(op, i)(g, *read)
        assert launch.launches - before <= 1
        np.testing.assert_allclose(found, rule.function(RAW, g, *read), rtol=1e-5, atol=1e-6)


def test_a_rule_reads_numbers() -> None:
    g, x = floats(2, 64), floats(2, 64, seed=1)
    before = launch.launches
    assert np.array_equal(rule_on_device(REGISTRY["mul"], 0)(g, 2.25), g * np.float32(2.25))
    assert np.array_equal(
        rule_on_device(REGISTRY["pow"], 0)(g, x, 3), REGISTRY["pow"].rules[0].function(RAW, g, x, 3)
    )
    assert launch.launches - before == 2


def test_a_rule_reads_packed_operands() -> None:
    g, x = floats(2, 64), quantized("mxfp4", 2, 64)
    before = launch.launches
    found = rule_on_device(REGISTRY["silu"], 0)(g, x)
    assert launch.launches - before == 1
    np.testing.assert_allclose(
        found, REGISTRY["silu"].rules[0].function(RAW, g, x.dequantize()), rtol=1e-5, atol=1e-6
    )


def test_fused_is_unfused() -> None:
    """One launch of packed operands has the bits of a launch of decoded ones, encoded after it."""
    x, y = quantized("mxfp8", 2, 64), quantized("mxfp4", 2, 64)
    for name in ("gelu", "tanh", "exp"):
        op = REGISTRY[name]
        fused = forward_on_device(op, [x], {}, x.scheme, float32)
        dense = forward_on_device(op, [x.dequantize()], {}, float32, float32)
        assert same(fused, on_device(QTensor.quantize(dense, x.scheme)))
    fused = forward_on_device(REGISTRY["div"], [x, y], {}, x.scheme, float32)
    dense = forward_on_device(REGISTRY["div"], [x.dequantize(), y.dequantize()], {}, float32, float32)
    assert same(fused, QTensor.quantize(dense, x.scheme))


def test_another_number_is_no_other_kernel() -> None:
    x, kernels = floats(64), set()
    for slope in (0.1, 0.3):
        found = forward_on_device(REGISTRY["leaky_relu"], [x], {"negative_slope": slope}, float32, float32)
        assert np.array_equal(found, REGISTRY["leaky_relu"].forward(x, negative_slope=slope))
        kernels.add(list(elementwise._known.values())[-1].launches.write.kernel)
    assert len(kernels) == 1
    for number in (2.5, 7, True):
        found = forward_on_device(REGISTRY["mul"], [x, number], {}, float32, float32)
        assert np.array_equal(found, x * np.float32(number))


def test_a_call_like_an_earlier_one_takes_its_own_operands() -> None:
    for seed in (0, 1):
        x, y = quantized("mxfp8", 2, 64, seed=seed), floats(2, 64, seed=seed + 5)
        found = forward_on_device(REGISTRY["add"], [x, y], {}, x.scheme, float32)
        assert same(found, QTensor.quantize(x.dequantize() + y, x.scheme))
    wider = forward_on_device(REGISTRY["add"], [x, floats(64)], {}, x.scheme, float32)
    assert same(wider, QTensor.quantize(x.dequantize() + floats(64), x.scheme))


def test_an_unaligned_result_is_written_value_by_value() -> None:
    held = np.zeros(65, np.float32)
    x, found = floats(64), traced(np.add, "ff")
    assert found is not None
    map.mapped(found.expression, [x, x], (), held[1:])
    assert np.array_equal(held[1:], x + x)
    assert lanes() == 0


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
@pytest.mark.parametrize("number", [None, 2.5, -0.0])
def test_division_of_float64_has_the_results_of_numpy(name: str, number: float | None) -> None:
    edges = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 1e30, -1e-300])
    op, a, b = REGISTRY[name], edges[:, None], edges if number is None else number
    found = forward_on_device(op, [a, b], {}, float64, float64)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, op.forward(a, b))
    assert forward_on_device(op, [floats(5), 2.0], {}, float32, float32).dtype == np.float32


def test_integers_of_64_bits_do_not_pass_through_floats() -> None:
    x = np.array([2**53 + 1, -(2**53) - 1, 2**62 + 3, -7, 0, 7])
    with np.errstate(all="ignore"):
        for divisor in (3, -3, np.array([2**40 + 1, -3, 5, 2, 3, -2])):
            found = forward_on_device(REGISTRY["fmod"], [x, divisor], {}, x.dtype, x.dtype)
            assert np.array_equal(found, np.fmod(x, divisor))
    for name in ("floor", "ceil", "trunc"):
        found = forward_on_device(REGISTRY[name], [x], {}, x.dtype, x.dtype)
        assert found is not x
        assert np.array_equal(found, x)
    with pytest.raises(TypeError):
        forward_on_device(REGISTRY["sign"], [x > 0], {}, bool_, bool_)


@pytest.mark.parametrize("name", ["greater", "equal", "logical_or", "less"])
def test_floats_beside_integers_are_compared_in_float64(name: str) -> None:
    integers = np.array([2**24 + 1, 0, 1, -1])
    x = np.array([2.0**24, 1e-40, 1.0, -1e-40], np.float32)
    for values in ([x, integers], [integers, x]):
        found = forward_on_device(REGISTRY[name], values, {}, bool_, float32)
        assert np.array_equal(found, getattr(np, name)(*[v.astype(np.float64) for v in values]))
