"""Element-wise functions beside arithmetic: NumPy's values, edges, names, methods and gradients at kinks."""

from __future__ import annotations

import math
import os

import ml_dtypes
import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, ShapeError
from autoq.ops.rounding import divided

NUMPY = {
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "tan", "sinh", "cosh", "cbrt")},
    **{name: getattr(np, name) for name in ("log2", "log10", "exp2", "reciprocal", "round")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
}
PAIRS = {
    **{name: getattr(np, name) for name in ("fmod", "remainder", "floor_divide", "hypot", "logaddexp")},
    "copysign": np.copysign,
    "atan2": np.arctan2,
}
EDGES = np.array([-np.inf, -2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5, np.inf, np.nan], np.float32)
# What rounds correctly on every device.
EXACT = ("floor", "ceil", "trunc", "round", "reciprocal", "fmod", "remainder", "floor_divide", "copysign")
ON_A_GPU = os.environ.get("AUTOQ_TEST_DEVICE") == "cuda"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("name", NUMPY)
def test_function_of_one_operand_equals_numpy_at_the_edges(name):
    assert_equals(name, getattr(aq, name)(EDGES).numpy(), NUMPY[name](EDGES))


def assert_equals(name, found, expected):
    if ON_A_GPU and name not in EXACT:  # four units in the last place
        np.testing.assert_allclose(found, expected, rtol=4 * float(np.finfo(np.float32).eps), atol=0)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_division_by_other_libraries_has_the_results_of_numpy(dtype):
    edges = np.concatenate([EDGES, [5e-324, -1e30, 7.1, -0.1]]).astype(dtype)
    a, b = edges[:, None], edges
    for found, expected in zip(divided(a, b), (np.floor_divide(a, b), np.remainder(a, b)), strict=True):
        np.testing.assert_array_equal(found, expected)
        there = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[there]), np.signbit(expected[there]))


@pytest.mark.parametrize("name", PAIRS)
def test_function_of_two_operands_equals_numpy_at_the_edges(name):
    found = getattr(aq, name)(EDGES[:, None], EDGES).numpy()
    assert_equals(name, found, PAIRS[name](EDGES[:, None], EDGES))


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round"])
@pytest.mark.parametrize("dtype", [aq.int64, aq.uint8])
def test_rounding_integers_leaves_them(name, dtype):
    x = aq.tensor([3, 1, 2], dtype=dtype)
    assert getattr(aq, name)(x).tolist() == [3, 1, 2]
    assert getattr(aq, name)(x).dtype == dtype


def test_integers_divide_with_rest_as_python_does():
    a, b = np.array([7, -7, 7, -7]), np.array([3, 3, -3, -3])
    assert (aq.tensor(a) // aq.tensor(b)).tolist() == [x // y for x, y in zip(a, b, strict=True)]
    assert (aq.tensor(a) % 3).tolist() == [x % 3 for x in a]
    assert (7 % aq.tensor(b)).tolist() == [7 % int(y) for y in b]
    assert aq.fmod(aq.tensor(a), 3).tolist() == [1, -1, 1, -1]
    assert (aq.tensor(a) // 3).dtype == aq.int64
    assert (7.5 // aq.tensor([2.0])).tolist() == [3.0]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype):
    x = np.linspace(0.1, 3, 50).astype(dtype)
    for name in ("log2", "asinh", "mish", "cbrt"):
        wide = getattr(aq, name)(x.astype(np.float32)).numpy()
        np.testing.assert_array_equal(getattr(aq, name)(x).numpy(), wide.astype(dtype))


@pytest.mark.parametrize("name", ["exp", "sinh", "sigmoid", "log10", "mish", "exp2"])
def test_bools_are_zeros_and_ones_in_float32(name):
    function = getattr(aq, name)
    bools = function(aq.tensor([True, False]))
    assert bools.dtype == aq.float32
    np.testing.assert_array_equal(bools.numpy(), function(aq.tensor([1.0, 0.0])).numpy())


def test_round_to_decimals():
    assert aq.tensor([1.25, -0.35, 17.0]).round(1).tolist() == pytest.approx([1.2, -0.4, 17.0], abs=1e-6)
    assert aq.round([1234.0, 1250.0], decimals=-2).tolist() == [1200.0, 1200.0]
    with pytest.raises(ArgumentError, match=r"decimals=1\.5"):
        aq.round([1.0], decimals=1.5)


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("floor", [0.0, 1.5], [0, 0]),
        ("round", [0.5, 1.5], [0, 0]),
        ("elu", [-1.0, 0.0, 1.0], [math.exp(-1), 1, 1]),
        ("hardtanh", [-2.0, -1.0, 0.0, 1.0, 2.0], [0, 1, 1, 1, 0]),
        ("hardswish", [-4.0, -3.0, 0.0, 3.0, 4.0], [0, 0, 0.5, 1, 1]),
    ],
)
def test_gradient_at_a_kink(name, x, expected):
    t = aq.tensor(np.array(x), requires_grad=True)
    getattr(aq, name)(t).sum().backward()
    np.testing.assert_allclose(t.grad.numpy(), expected, rtol=1e-12)


def test_gradients_at_the_edges_of_pairs():
    a, b = (aq.tensor(np.array(v), requires_grad=True) for v in ([0.0, 3.0], [0.0, 4.0]))
    aq.hypot(a, b).sum().backward()
    assert a.grad.tolist() == [0, 0.6]
    assert b.grad.tolist() == [0, 0.8]
    a, b = (aq.tensor(np.array([-np.inf, np.inf, 1e4]), requires_grad=True) for _ in range(2))
    aq.logaddexp(a, b).sum().backward()
    assert a.grad.tolist() == b.grad.tolist() == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["mish", "elu", "selu", "hardswish"])
def test_activation_is_finite_far_out(name, dtype):
    t = aq.tensor(np.array([-1e4, 1e4], dtype), requires_grad=True)
    y = getattr(aq, name)(t)
    y.sum().backward()
    assert np.isfinite(y.numpy()).all()
    assert np.isfinite(t.grad.numpy()).all()


def test_gated_activations_are_one_op_of_the_two_halves():
    x = aq.tensor(np.random.default_rng(0).standard_normal((2, 128)), dtype=aq.mxfp8)
    a, b = x.dequantize()[:, :64], x.dequantize()[:, 64:]
    for name, expected in (
        ("glu", a * b.sigmoid()), ("geglu", a.gelu() * b), ("swiglu", a.silu() * b)
    ):  # fmt: skip
        found = getattr(aq, name)(x)
        assert found.qtensor.same_bits(expected.quantize(aq.mxfp8).qtensor)
    with pytest.raises(ShapeError, match="odd length"):
        aq.glu(np.ones((2, 3)))


ALIASES = {
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh")},
    "cumsum": "cumulative_sum",
    "cumprod": "cumulative_prod",
    "gather": "take_along_axis",
    "concatenate": "concat",
}


@pytest.mark.parametrize("alias", ALIASES)
def test_names_of_numpy_and_pytorch_lead_to_the_same_function(alias):
    assert getattr(aq, alias) is getattr(aq, ALIASES[alias])


UNARY_METHODS = [
    *("floor", "ceil", "trunc", "round", "log1p", "log2", "log10", "expm1", "exp2", "rsqrt", "reciprocal"),
    *("sign", "erf", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
    *("prod", "std", "norm", "logsumexp", "any", "all", "count_nonzero", "cumsum", "cumprod", "cummax"),
    *("cummin", "tril", "triu", "diagonal", "sort", "argsort", "unstack"),
]


@pytest.mark.parametrize("name", UNARY_METHODS)
def test_a_method_is_the_function(name):
    x = aq.tensor(np.random.default_rng(1).uniform(0.1, 0.9, (3, 4)))
    found, expected = getattr(x, name)(), getattr(aq, name)(x)
    for a, b in zip(found, expected, strict=True) if name == "unstack" else [(found, expected)]:
        np.testing.assert_array_equal(a.numpy(), b.numpy())


METHODS = [
    ("pow", (2,), {}), ("norm", (1,), {"axis": 0}), ("repeat", (2,), {"axis": 1}),
    ("roll", (1,), {"axis": 0}),
    ("tile", ((2, 1),), {}), ("moveaxis", (0, 1), {}), ("swapaxes", (0, 1), {}), ("gather", ([[0]],), {}),
    ("masked_fill", ([True, False, True, False], 0.0), {}), ("scatter", ([[1]], 2.0), {}),
    ("scatter_add", ([[1]], 2.0), {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "options"), METHODS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_method_with_arguments_is_the_function(name, arguments, options):
    x = aq.tensor(np.random.default_rng(1).uniform(0.1, 0.9, (3, 4)))
    expected = getattr(aq, name)(x, *arguments, **options)
    np.testing.assert_array_equal(getattr(x, name)(*arguments, **options).numpy(), expected.numpy())
