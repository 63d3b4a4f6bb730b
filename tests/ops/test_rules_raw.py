"""Every op's gradient rules on raw arrays, against central differences of its forward."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import autoq
from autoq.errors import ArgumentError, AutoqError, DTypeError, IndexingError, ShapeError
from autoq.ops.special import erf
from autoq.random import Draw
from autoq.tape.op import REGISTRY
from autoq.testing import check_grads

STEP = 1e-5
F = SimpleNamespace(**{name: op.forward for name, op in REGISTRY.items()})
SAMPLED = sorted(name for name, op in REGISTRY.items() if op.sample and op.kind != "cast")
DIFFERENTIABLE = [name for name in SAMPLED if REGISTRY[name].differentiable]


def run(op, operands, static):
    """The forward on arrays, or on scalars where a NumPy function gave one."""
    return np.asarray(op.forward(operands, **static) if op.variadic else op.forward(*operands, **static))


def unbroadcast(g, shape):
    g = np.asarray(g)
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    g = g.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)
    return np.broadcast_to(g, shape)


def statics_of(op, static):
    """The given static arguments over the forward's defaults."""
    return {**(getattr(op.forward, "__kwdefaults__", None) or {}), **static}


def gradient(op, i, g, operands, static):
    """The rule of operand i, called as the engine calls it."""
    static = statics_of(op, static)
    rule = op.rules[0] if op.variadic else op.rules[i]
    extra = {"i": i, "shapes": tuple(np.shape(x) for x in operands)} if op.variadic else {}
    arguments = arguments_of(rule.reads, op, operands, {**static, **extra})
    with np.errstate(all="ignore"):  # as in the engine
        return unbroadcast(rule.function(F, g, *arguments), np.shape(operands[i]))


def arguments_of(reads, op, operands, static):
    """What a rule reads."""
    arguments = []
    for source, key in reads:
        if source == "value":
            arguments.append(operands[key])
        elif source == "values":
            arguments.append(list(operands))
        elif source == "shape":
            arguments.append(np.shape(operands[key]))
        elif source == "shared":
            arguments.append(op.shared(F, *arguments_of(op.shared_reads, op, operands, static)))
        else:
            arguments.append(static[key])
    return arguments


def central_difference(op, i, g, operands, static):
    """The gradient of sum(g * forward) with respect to operand i, numerically."""
    slope = np.empty(np.shape(operands[i]))
    for position in np.ndindex(slope.shape):
        values = []
        for step in (STEP, -STEP):
            moved = list(operands)
            moved[i] = np.array(operands[i])
            moved[i][position] += step
            values.append(np.sum(g * run(op, tuple(moved), static)))
        slope[position] = (values[0] - values[1]) / (2 * STEP)
    return slope


def cases(name):
    return REGISTRY[name].sample(np.random.default_rng(sum(map(ord, name))))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_rule_is_the_derivative_of_the_forward(name):
    op, rng, checked = REGISTRY[name], np.random.default_rng(5), 0
    for operands, static in cases(name):
        g = rng.standard_normal(run(op, operands, static).shape)
        for i, x in enumerate(operands):
            if not op.variadic and op.rules[i] is None or np.asarray(x).dtype != np.float64:
                continue  # a condition, or an operand left out
            expected = central_difference(op, i, g, operands, static)
            np.testing.assert_allclose(gradient(op, i, g, operands, static), expected, rtol=2e-7, atol=2e-9)
            checked += 1
    assert checked


def in_float32(x):
    return None if x is None else np.asarray(x, np.float32 if np.asarray(x).dtype == np.float64 else None)


@pytest.mark.parametrize("name", SAMPLED)
def test_float32_operands_give_float32_results_and_gradients(name):
    op = REGISTRY[name]
    for operands, static in cases(name):
        operands = tuple(in_float32(x) for x in operands)
        result = run(op, operands, static)
        assert result.dtype.kind in "bi" if op.kind == "index" else result.dtype == np.float32
        for i, x in enumerate(operands if op.differentiable else ()):
            if x is not None and (op.variadic or op.rules[i]):
                assert gradient(op, i, np.ones_like(result), operands, static).dtype == np.float32


@pytest.mark.parametrize("name", SAMPLED)
def test_forward_of_float32_is_close_to_that_of_float64(name):
    op = REGISTRY[name]
    for operands, static in cases(name):
        single = tuple(in_float32(x) for x in operands)
        double = tuple(x if x is None or x.dtype != np.float32 else x.astype(np.float64) for x in single)
        expected = run(op, double, static)
        np.testing.assert_allclose(run(op, single, static), expected, rtol=2e-6, atol=2e-6)


def test_every_record_has_samples():
    assert not [op.name for op in REGISTRY.values() if op.sample is None and op.kind != "cast"]


@pytest.mark.parametrize("exponent", [2, 2.0, 3, 1, 0, -1, 0.5])
def test_pow_of_a_number_is_the_derivative_and_keeps_float32(exponent):
    op, x = REGISTRY["pow"], np.linspace(0.5, 2, 4)
    cotangent = np.arange(1.0, 5)
    g = gradient(op, 0, cotangent, (x, exponent), {})
    np.testing.assert_allclose(g, cotangent * (exponent * x ** (exponent - 1.0)))
    assert gradient(op, 0, np.ones(4, np.float32), (x.astype(np.float32), exponent), {}).dtype == np.float32


def test_pow_at_base_zero():
    op, zero, g = REGISTRY["pow"], np.zeros(3), np.ones(3)
    exponents = np.array([0.0, 1.0, 2.0])
    np.testing.assert_array_equal(gradient(op, 0, g, (zero, exponents), {}), [0, 1, 0])
    np.testing.assert_array_equal(gradient(op, 1, g, (zero, exponents), {}), [0, 0, 0])
    np.testing.assert_array_equal(gradient(op, 1, g, (0.0, exponents), {}), [0, 0, 0])
    np.testing.assert_array_equal(gradient(op, 0, g, (zero, 0), {}), [0, 0, 0])
    np.testing.assert_allclose(gradient(op, 1, 3 * g, (2.0, exponents), {}), 3 * np.log(2) * 2**exponents)


def test_the_second_gradient_of_pow_holds_where_the_exponent_is_zero():
    check_grads(autoq.pow, np.array([0.5, 1.5, 2.0]), np.array([0.0, 1.0, 0.0]), order=2)


@pytest.mark.parametrize(
    ("name", "operands", "static", "expected"),
    [
        ("relu", ([-1.0, 0.0, 1.0],), {}, [0, 0, 1]),
        ("leaky_relu", ([-1.0, 0.0, 1.0],), {"negative_slope": 0.5}, [0.5, 0.5, 1]),
        ("abs", ([-2.0, 0.0, 2.0],), {}, [-1, 0, 1]),
        ("sign", ([-2.0, 0.0, 2.0],), {}, [0, 0, 0]),
        ("clip", ([-2.0, -1.0, 0.0, 1.0, 2.0],), {"min": -1, "max": 1}, [0, 1, 1, 1, 0]),
        ("maximum", ([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]), {}, [0, 0.5, 1]),
        ("minimum", ([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]), {}, [1, 0.5, 0]),
        ("max", ([1.0, 3.0, 3.0],), {}, [0, 0.5, 0.5]),
        ("min", ([1.0, 1.0, 1.0, 3.0],), {}, [1 / 3, 1 / 3, 1 / 3, 0]),
    ],
)
def test_convention_at_a_kink(name, operands, static, expected):
    op, operands = REGISTRY[name], tuple(np.array(x) for x in operands)
    g = np.ones_like(run(op, operands, static))
    np.testing.assert_allclose(gradient(op, 0, g, operands, static), expected)


def test_ties_of_max_share_within_each_reduced_row():
    x = np.array([[1.0, 1.0, 0.0], [2.0, 5.0, 5.0]])
    g = gradient(REGISTRY["max"], 0, np.array([1.0, 10.0]), (x,), {"axis": 1})
    np.testing.assert_array_equal(g, [[0.5, 0.5, 0], [0, 5, 5]])


def test_erf_equals_the_c_library():
    x = np.concatenate([np.linspace(-7, 7, 20001), np.logspace(-300, 1, 500), -np.logspace(-9, 0.9, 500)])
    expected = np.array([math.erf(v) for v in x])
    assert np.max(np.abs(erf(x) - expected) / np.abs(expected).clip(1e-320)) <= 1e-15
    single = x[np.abs(x) > 1e-30].astype(np.float32)
    expected = np.array([math.erf(v) for v in single.astype(np.float64)])
    ulps = np.abs(erf(single) - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert np.max(ulps[single != 0]) <= 3.5


def test_erf_of_special_values():
    for dtype in (np.float32, np.float64):
        y = erf(np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype))
        np.testing.assert_array_equal(y, np.array([0, 0, 1, -1, np.nan], dtype))
        assert y.dtype == dtype
        assert np.signbit(y[1])
    assert erf(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["sigmoid", "silu", "softplus", "gelu", "tanh"])
def test_activation_is_finite_and_has_its_limits_far_out(name, dtype):
    far = np.array([-1e4, 1e4], dtype)
    with np.errstate(all="ignore"):
        y = REGISTRY[name].forward(far)
        slope = gradient(REGISTRY[name], 0, np.ones(2, dtype), (far,), {})
    limits = {"sigmoid": ([0, 1], [0, 0]), "tanh": ([-1, 1], [0, 0])}.get(name, ([0, 1e4], [0, 1]))
    np.testing.assert_array_equal(y, limits[0])
    np.testing.assert_array_equal(slope, limits[1])


def test_softplus_keeps_small_results():
    assert REGISTRY["softplus"].forward(np.array(-40.0)) == pytest.approx(math.exp(-40), rel=1e-14)


def test_softmax_of_masked_rows():
    x = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], np.float32)
    mask = np.array([[True, False, True], [False, False, False]])
    y = F.softmax(x, axis=-1, mask=mask)
    np.testing.assert_allclose(y, [[1 / (1 + math.e**2), 0, 1 - 1 / (1 + math.e**2)], [0, 0, 0]], rtol=1e-6)
    g = gradient(REGISTRY["softmax"], 0, np.ones_like(x) * [1, 2, 3], (x,), {"mask": mask})
    assert np.all(np.isfinite(g))
    np.testing.assert_array_equal(g[1], 0)
    np.testing.assert_array_equal(F.softmax(np.where(mask, x, -np.inf)), y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithms_of_sums_at_the_edges(dtype):
    inf = np.inf
    x = np.array([[1e5, 1e5, -1e5], [-inf, -inf, -inf], [inf, 0, 0], [-inf, 0, -inf]], dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(F.logsumexp(x, axis=1), [1e5 + math.log(2), -inf, inf, 0], rtol=1e-7)
        y = F.log_softmax(x)
    half = -math.log(2)
    expected = [[half, half, half - 2e5], [-inf, -inf, -inf], [-inf, 0, -inf]]
    np.testing.assert_allclose(y[[0, 1, 3]], expected, rtol=1e-6)
    assert y.dtype == dtype


def test_reductions_of_empty_arrays():
    empty = np.zeros((0, 3), np.float32)
    np.testing.assert_array_equal(F.sum(empty, axis=0), [0, 0, 0])
    assert F.sum(empty) == 0
    assert F.softmax(empty).shape == (0, 3)
    assert F.softmax(empty, axis=0).shape == (0, 3)
    assert F.log_softmax(empty).shape == F.layer_norm(empty).shape == F.rms_norm(empty).shape == (0, 3)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isnan(F.mean(empty, axis=0)).all()
        np.testing.assert_array_equal(F.logsumexp(empty, axis=0), [-np.inf] * 3)
    for name in ("sum", "mean", "logsumexp", "var"):
        assert gradient(REGISTRY[name], 0, np.ones(3, np.float32), (empty,), {"axis": 0}).shape == (0, 3)


def test_var_agrees_with_numpy_and_its_correction():
    x = np.random.default_rng(0).standard_normal((3, 5))
    np.testing.assert_allclose(F.var(x, axis=1, correction=1), np.var(x, axis=1, ddof=1))
    np.testing.assert_allclose(F.var(x + 1e6), np.var(x), rtol=1e-8)


def test_repeated_indices_accumulate():
    x = np.zeros((4, 2))
    g = gradient(REGISTRY["take"], 0, np.ones((3, 2)), (x,), {"indices": np.array([1, 1, -3])})
    np.testing.assert_array_equal(g, [[0, 0], [3, 3], [0, 0], [0, 0]])
    g = gradient(REGISTRY["getitem"], 0, np.ones((2, 2)), (x,), {"index": [2, 2]})
    np.testing.assert_array_equal(g, [[0, 0], [0, 0], [2, 2], [0, 0]])


def test_many_repeated_indices_sum_as_one_hot_products_do():
    rng = np.random.default_rng(3)
    indices, g = rng.integers(-7, 7, (40, 5)), rng.standard_normal((40, 5, 3))
    one_hot = np.equal(indices.reshape(-1, 1) % 7, np.arange(7))
    scattered = F.scatter_add(g, indices=indices, axis=0, shape=(7, 3))
    np.testing.assert_allclose(scattered, one_hot.T @ g.reshape(-1, 3), rtol=1e-12)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0)])
def test_matmul_of_batches_equals_linear(shape):
    rng = np.random.default_rng(1)
    x, w, b = rng.standard_normal((*shape, 4)), rng.standard_normal((5, 4)), rng.standard_normal(5)
    y = F.linear(x, w, b)
    np.testing.assert_allclose(y, F.matmul(x, w.T) + b)
    g = rng.standard_normal(y.shape)
    by_linear = gradient(REGISTRY["linear"], 1, g, (x, w, b), {})
    np.testing.assert_allclose(by_linear, gradient(REGISTRY["matmul"], 1, g, (x, w.T), {}).T)


def test_cross_entropy_of_large_logits_and_labels():
    logits = np.array([[1000.0, 0.0], [0.0, 1000.0]], np.float32)
    losses = F.cross_entropy(logits, labels=[0, 0], reduction="none")
    np.testing.assert_array_equal(losses, [0, 1000])
    g = gradient(REGISTRY["cross_entropy"], 0, np.float32(1), (logits,), {"labels": np.array([0, 0])})
    np.testing.assert_array_equal(g, [[0, 0], [-0.5, 0.5]])
    assert F.cross_entropy(np.zeros((0, 3)), labels=np.zeros(0, int), reduction="sum") == 0


def test_smoothed_cross_entropy_is_that_against_the_smoothed_distribution():
    rng = np.random.default_rng(2)
    logits, labels = rng.standard_normal((5, 4)), rng.integers(0, 4, 5)
    target = 0.8 * np.eye(4)[labels] + 0.2 / 4
    expected = -np.mean(np.sum(target * F.log_softmax(logits), axis=1))
    assert F.cross_entropy(logits, labels=labels, label_smoothing=0.2) == pytest.approx(expected)


def test_dropout_repeats_its_draw_and_keeps_the_mean():
    x = np.ones((200, 500), np.float32)
    y = F.dropout(x, rate=0.25, draw=Draw(1, 2))
    np.testing.assert_array_equal(y, F.dropout(x, rate=0.25, draw=Draw(1, 2)))
    assert np.any(y != F.dropout(x, rate=0.25, draw=Draw(1, 3)))
    assert np.mean(y == 0) == pytest.approx(0.25, abs=0.005)
    np.testing.assert_allclose(np.unique(y), [0, 4 / 3])
    g = gradient(REGISTRY["dropout"], 0, x, (x,), {"rate": 0.25, "draw": Draw(1, 2)})
    np.testing.assert_array_equal(g, y)


WRONG = [
    ("matmul", (np.ones((16, 48)), np.ones((64, 8))), {}, ShapeError, "inner axes differ: a is (16, 48)"),
    ("matmul", (np.ones((2, 3, 4)), np.ones((5, 4, 3))), {}, ShapeError, "leading axes"),
    ("matmul", (np.ones((2, 3)), np.array(1.0)), {}, ShapeError, "b is ()"),
    ("linear", (np.ones((2, 3)), np.ones((3, 4))), {}, ShapeError, "weight is (3, 4)"),
    ("linear", (np.ones((2, 3)), np.ones((4, 3)), np.ones(3)), {}, ShapeError, "bias is (3,)"),
    ("sum", (np.ones((2, 3)),), {"axis": 2}, ShapeError, "axis=2"),
    ("mean", (np.ones((2, 3)),), {"axis": (0, -2)}, ShapeError, "axis=(0, -2)"),
    ("var", (np.array(1.0),), {"axis": 0}, ShapeError, "var: axis=0"),
    ("max", (np.ones((2, 0)),), {}, ShapeError, "no values"),
    ("argmax", (np.ones((0, 2)),), {"axis": 0}, ShapeError, "no values"),
    ("softmax", (np.ones(3),), {"axis": 1}, ShapeError, "axis=1"),
    ("softmax", (np.ones((2, 3)),), {"mask": np.ones(2, bool)}, ShapeError, "mask is (2,)"),
    ("layer_norm", (np.ones(3),), {"axis": 1}, ShapeError, "axis=1"),
    ("reshape", (np.ones((2, 3)),), {"shape": (4, -1)}, ShapeError, "6 values"),
    ("permute_dims", (np.ones((2, 3)),), {"axes": (0, 0)}, ShapeError, "axes=(0, 0)"),
    ("transpose", (np.ones((2, 3)),), {"axes": (0,)}, ShapeError, "axes=(0,)"),
    ("matrix_transpose", (np.ones(3),), {}, ShapeError, "(3,)"),
    ("expand_dims", (np.ones(3),), {"axis": 3}, ShapeError, "axis=3"),
    ("squeeze", (np.ones((1, 3)),), {"axis": 1}, ShapeError, "length 1"),
    ("broadcast_to", (np.ones(3),), {"shape": (3, 2)}, ShapeError, "shape=(3, 2)"),
    ("flip", (np.ones(3),), {"axis": 1}, ShapeError, "axis=1"),
    ("pad", (np.ones(3),), {"widths": ((1, -1),)}, ShapeError, "widths"),
    ("concat", ((np.ones((2, 3)), np.ones((2, 4))),), {}, ShapeError, "(2, 3), (2, 4)"),
    ("concat", ((),), {}, ShapeError, "no arrays"),
    ("stack", ((np.ones(2), np.ones(3)),), {}, ShapeError, "(2,), (3,)"),
    ("getitem", (np.ones((2, 3)),), {"index": (2, 0)}, IndexingError, "(2, 3)"),
    ("take", (np.ones((2, 3)),), {"indices": np.array([5])}, IndexingError, "from 5 to 5"),
    ("take", (np.ones((2, 3)),), {"indices": np.array([0.5])}, IndexingError, "float64"),
    ("scatter_add", (np.ones(1),), {"indices": [3], "axis": 0, "shape": (3,)}, IndexingError, "from 3 to 3"),
    ("scatter_add", (np.ones(2),), {"indices": [2], "axis": 0, "shape": (3,)}, ShapeError, "x is (2,)"),
    ("scatter_slice", (np.ones(2),), {"index": slice(None), "shape": (3,)}, ShapeError, "x is (2,)"),
    ("take_along_axis", (np.ones((2, 3)),), {"indices": np.array([[3], [0]])}, IndexingError, "from 0 to 3"),
    ("take_along_axis", (np.ones((2, 3)),), {"indices": np.array([1])}, ShapeError, "(1,)"),
    ("cross_entropy", (np.ones((2, 3)),), {"labels": np.array([0, 3])}, IndexingError, "from 0 to 3"),
    ("cross_entropy", (np.ones((2, 3)),), {"labels": np.array([0, -1])}, IndexingError, "from -1 to 0"),
    ("cross_entropy", (np.ones((2, 3)),), {"labels": np.array([0.0, 1.0])}, DTypeError, "float64"),
    ("cross_entropy", (np.ones((2, 3)),), {"labels": np.array([0])}, ShapeError, "labels are (1,)"),
    ("mse_loss", (np.ones(2), np.ones((2, 1))), {}, ShapeError, "target is (2, 1)"),
    ("mse_loss", (np.ones(2), np.ones(2)), {"reduction": "max"}, ArgumentError, "'max'"),
    ("dropout", (np.ones(2),), {"rate": 1.5, "draw": Draw(0, 0)}, ArgumentError, "1.5"),
]


@pytest.mark.parametrize(("name", "operands", "static", "error", "text"), WRONG)
def test_error_says_what_was_given_allowed_and_what_to_do(name, operands, static, error, text):
    with pytest.raises(error) as caught:
        REGISTRY[name].forward(*operands, **static)
    assert isinstance(caught.value, AutoqError)
    message = str(caught.value)
    assert text in message
    assert name in message or name == "getitem"
    assert caught.value.allowed
    assert caught.value.remedy
