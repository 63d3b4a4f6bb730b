"""Random calls of everything public: a right result or an error of ours, never anything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.errors import AutoqError
from tests.breakage.arguments import FLOATS, INTEGERS, SCHEMES, Arguments
from tests.examples import scaled

CALLS = 900
SEEDS = range(scaled(12))
pytestmark = pytest.mark.filterwarnings("ignore")

WHOLE = {
    **{"abs": np.abs, "neg": np.negative, "square": np.square, "logical_not": np.logical_not},
    **{n: getattr(np, n) for n in ("floor", "ceil", "trunc", "round", "sign")},
}
FUNCTIONS = {
    **{n: getattr(np, n) for n in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh")},
    **{n: getattr(np, n) for n in ("tan", "sinh", "cosh", "log2", "log10", "exp2", "cbrt", "reciprocal")},
    **{n: getattr(np, f"arc{n[1:]}") for n in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    **{n: getattr(np, n) for n in ("isnan", "isinf", "isfinite", "signbit")},
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
UNARY = {**WHOLE, **{n: lambda x, f=f: f(np.asarray(x, np.float64)) for n, f in FUNCTIONS.items()}}
SMOOTH = {"hypot": np.hypot, "copysign": np.copysign, "logaddexp": np.logaddexp, "atan2": np.arctan2}
BINARY = {
    **{n: getattr(np, n) for n in ("maximum", "minimum", "greater", "greater_equal", "less", "less_equal")},
    **{n: getattr(np, n) for n in ("equal", "not_equal", "logical_and", "logical_or", "logical_xor")},
    **{n: getattr(np, n) for n in ("fmod", "remainder", "floor_divide")},
    **{n: lambda x, y, f=f: f(np.asarray(x, np.float64), y) for n, f in SMOOTH.items()},
    **{"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide},
}
REDUCED = ("sum", "mean", "max", "min", "var", "std", "any", "all", "argmax", "argmin", "count_nonzero")
REDUCTIONS = {n: getattr(np, n) for n in REDUCED}
NORMALIZED = ("logsumexp", "softmax", "log_softmax", "layer_norm", "rms_norm")


def calls(a: Arguments) -> tuple[str, list[Any], Any, Any]:
    """A name, operands, the call, and what NumPy makes of the decoded operands (None: not compared)."""
    return a.one((_unary, _binary, _binary, _reduction, _reduction, _matmul, _getitem, _getitem, _other))(a)


def _unary(a: Arguments) -> Any:
    name, x, options = a.one(tuple(UNARY)), a.operand(), a.out_dtype()
    return name, [x], lambda: getattr(aq, name)(x, **options), None if options else UNARY[name]


def _binary(a: Arguments) -> Any:
    shape = a.one(((), (7,), (32,), (33,), (2, 3), (4, 32), (3, 40), (2, 16, 16), (0, 5)))
    other = shape if a.chance(0.6) else a.one(((), (1,), shape[-1:], (1,) * len(shape), (5,)))
    name, x, y, options = a.one(tuple(BINARY)), a.operand(shape), a.operand(other), a.out_dtype()
    return name, [x, y], lambda: getattr(aq, name)(x, y, **options), None if options else BINARY[name]


def _reduction(a: Arguments) -> Any:
    x, name, options = a.operand(), a.one(REDUCED + NORMALIZED), a.out_dtype()
    static = {"axis": a.axis(np.ndim(getattr(x, "value", 0)))}
    if a.chance(0.5) and name in REDUCED:
        static["keepdims"] = a.one((True, True, False, 1, "a", None, np.True_))
    expected = None
    if name in REDUCTIONS and not options:
        axes = {n: bool(v) if n == "keepdims" else v for n, v in static.items()}
        expected = lambda v: REDUCTIONS[name](v, **axes)  # noqa: E731
    return name, [x], lambda: getattr(aq, name)(x, **static, **options), expected


def _matmul(a: Arguments) -> Any:
    n, lead = a.one((0, 1, 3, 16, 32, 33)), a.one(((), (2,), (1,)))
    x, y = a.operand(a.one(((*lead, 4, n), (n,)))), a.operand(a.one(((n, 3), (*lead, n, 3), (n,))))
    return "matmul", [x, y], lambda: aq.matmul(x, y), _product


def _product(x: Any, y: Any) -> Any:
    whole = x.dtype.kind in "biu"
    return np.matmul(x.astype(np.int64), y.astype(np.int64)) if whole else np.matmul(x, y)


def _getitem(a: Arguments) -> Any:
    x = a.operand()
    x = x if isinstance(x, aq.Tensor) else aq.tensor([1.0, 2.0])
    index = a.index(x.shape)
    return "getitem", [x], lambda: x[index], lambda v: np.asarray(v[index])


def _other(a: Arguments) -> Any:
    x = a.operand()
    shape = x.shape if isinstance(x, aq.Tensor | np.ndarray) else ()
    y, axis, size = a.operand(shape), a.axis(len(shape)), int(np.prod(shape))
    new = a.one(((-1,), (1, size), (2, -1), (-1, 16), (3, 5), (-2,), None, "a", (2.0,), [size], size))
    bytes_, axes = np.zeros((2, 2), np.uint8), tuple(range(len(shape)))[::-1]
    indices = a.one((0, [0, 0], [], [-1], [99], [0.5], "a", None, np.array([True]), bytes_))
    widths = a.one(([(0, 0)] * len(shape), [(1, 2)] * len(shape), [(0, 3)] * len(shape), 1, None, [(-1, 0)]))
    dtype = a.one((*SCHEMES, *FLOATS, *INTEGERS, "foo", None, complex))
    chosen: dict[str, tuple[list[Any], Any]] = {
        "reshape": ([x], lambda: aq.reshape(x, new)),
        "permute_dims": (
            [x],
            lambda: aq.permute_dims(x, a.one((axes, (0, 0), "ab", None))),
        ),
        "expand_dims": ([x], lambda: aq.expand_dims(x, axis)),
        "squeeze": ([x], lambda: aq.squeeze(x, axis)),
        "flip": ([x], lambda: aq.flip(x, axis)),
        "broadcast_to": ([x], lambda: aq.broadcast_to(x, a.one(((2, *shape), (0, *shape), (5,), None, "a")))),
        "take": ([x], lambda: aq.take(x, indices, axis)),
        "take_along_axis": ([x], lambda: aq.take_along_axis(x, np.zeros((1,) * len(shape), int), axis)),
        "concat": ([x, y], lambda: aq.concat(a.one(([x, y], [x, x, x], [], None, 3)), axis)),
        "stack": ([x, y], lambda: aq.stack([x, y], axis)),
        "split": ([x], lambda: aq.concat(aq.split(x, a.one((1, 2, [1], [32], 0, "a", 2.0)), axis), axis)),
        "pad": ([x], lambda: aq.pad(x, widths)),
        "where": ([x, y], lambda: aq.where(a.one((True, aq.isnan(y), np.ones(shape, bool))), x, y)),
        "clip": ([x], lambda: aq.clip(x, a.one((None, -1, "a")), a.one((None, 1, 2.0, [1], 1e39)))),
        "astype": ([x], lambda: aq.astype(x, dtype)),
        "quantize": ([x], lambda: aq.quantize(x, dtype, ste=a.one(("identity", "clip", "x")))),
        "dropout": ([x], lambda: aq.dropout(x, a.one((0.0, 0.5, 1.0, 2.0, "a")), rng=aq.Generator(1))),
        "mse_loss": ([x, y], lambda: aq.mse_loss(x, y)),
        "cross_entropy": ([x], lambda: aq.cross_entropy(x, np.zeros(shape[:-1], int))),
    }
    name = a.one(tuple(chosen))
    return (name, *chosen[name], None)


def decoded(operands: list[Any]) -> list[Any] | None:
    """The operands as NumPy arrays in the precision the op computes in (S15); None past any precision."""
    inputs = [
        x if isinstance(x, aq.Tensor) or type(x) in (int, float, bool) else aq.tensor(x) for x in operands
    ]
    if any(type(x) is int and abs(x) >= 2**63 for x in inputs):
        return None
    floats = [x for x in inputs if isinstance(x, aq.Tensor) and x.tensor_type.is_float]
    wide = np.float64 if any(x.dtype == aq.float64 for x in floats) else np.float32
    whole = [x.numpy().dtype for x in inputs if isinstance(x, aq.Tensor) and x.dtype in INTEGERS[:-1]]
    arrays = [x.numpy() if isinstance(x, aq.Tensor) else _number(x, whole) for x in inputs]
    if floats or any(type(x) is float for x in inputs):
        arrays = [x.astype(wide) for x in arrays]
    largest = max(float(np.abs(np.where(np.isfinite(x), x, 0).astype(float)).max(initial=0)) for x in arrays)
    return arrays if largest < 1e18 else None  # sums of larger ones overflow or not by their order


def _number(x: Any, whole: list[Any]) -> Any:
    """A Python number as an array; an integer in the dtype of the integers beside it, if that holds it.

    What it doesn't hold is refused, but by comparisons, which are right whatever the dtype.
    """
    dtype = np.result_type(*whole) if whole and type(x) is int else None
    if dtype is not None and not np.iinfo(dtype).min <= x <= np.iinfo(dtype).max:
        dtype = None
    return np.asarray(x, dtype)


def assert_three_parts(name: str, error: AutoqError) -> None:
    """What was given, what is allowed, what to do (S45)."""
    assert error.given, name
    assert error.allowed, name
    assert error.remedy, name


def assert_as_numpy(name: str, result: aq.Tensor, expected: Any) -> None:
    """The result is NumPy's: encoded if it is packed, rounded to its dtype if it is dense."""
    expected = np.asarray(expected)
    assert result.shape == expected.shape, name
    if isinstance(result, aq.AutodiffQTensor):
        values = np.ascontiguousarray(expected, np.float32)
        again = aq.QTensor.quantize(values, result.dtype.innermost(values.ndim)).dequantize()
        close = [np.isclose(result.numpy(), x, rtol=1e-5, atol=0, equal_nan=True) for x in (again, values)]
        assert np.mean(close[0] | close[1]) > 0.7 if result.size > 8 else True, name  # others: at a tie
    elif result.tensor_type.is_float:
        limit = float(np.float64(6e4 if result.dtype == aq.float16 else 1e36))
        exact, got = expected.astype(np.float64), result.numpy().astype(np.float64)
        usual = np.isfinite(exact) & (np.abs(exact) < limit)
        largest = np.abs(np.where(usual, exact, 0)).max(initial=0)
        step = {"float64": 1e-9, "float32": 3e-5, "float16": 2e-3, "bfloat16": 2e-2}[result.dtype.name]
        assert (np.abs(got - exact)[usual] <= step * (np.abs(exact[usual]) + largest) + 1e-37).all(), name
        assert (np.isnan(got) == np.isnan(exact)).all(), name
    else:
        np.testing.assert_array_equal(result.numpy(), expected.astype(result.dtype), err_msg=name)


def assert_gradients_fit(name: str, operands: list[Any], result: aq.Tensor) -> None:
    """Backward fills gradients of the leaves' shapes and float dtypes, and changes no operand."""
    tensors = [x for x in operands if isinstance(x, aq.Tensor)]
    before = [x.numpy().copy() for x in tensors]
    result.backward(np.ones(result.shape, np.float32))
    for x, values in zip(tensors, before, strict=True):
        assert x.numpy().tobytes() == values.tobytes(), name
        if x.grad is not None:
            assert x.grad.shape == x.shape, name
            assert x.grad.dtype == (aq.float32 if isinstance(x, aq.AutodiffQTensor) else x.dtype), name


@pytest.mark.parametrize("seed", SEEDS)
def test_every_call_ends_in_a_right_result_or_an_error_of_ours(seed):
    arguments, refused = Arguments(seed), 0
    for _ in range(CALLS):
        name, operands, call, expected = calls(arguments)
        try:
            result = call()
        except AutoqError as error:
            assert_three_parts(name, error)
            refused += 1
            continue
        assert isinstance(result, aq.Tensor), name
        assert repr(result), name
        arrays = None if expected is None else decoded(operands)
        if arrays is not None:
            assert_as_numpy(name, result, expected(*arrays))
        if result.requires_grad:
            assert len(aq.Tape.of(result)) >= 1
            assert_gradients_fit(name, operands, result)
    assert CALLS * 0.05 < refused < CALLS * 0.6
