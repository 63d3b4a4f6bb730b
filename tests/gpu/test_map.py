"""Element-wise ops on the device: the bits of the CPU, whatever the operands' formats, shapes and strides."""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda import launch
from autoq.kernels.cuda.functions import OPERATIONS
from autoq.kernels.cuda.trace import Expression, traced
from autoq.schemes import CATALOG, QuantScheme
from autoq.storage import QTensor
from autoq.tape.apply import apply
from autoq.tape.op import REGISTRY

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
SMALL = os.environ.get("AUTOQ_TEST_SANITIZER") == "1"
BRAIN = ml_dtypes.bfloat16
FLOATS = {"float32": np.float32, "float16": np.float16, "bfloat16": BRAIN}
FORMATS = [*FLOATS, "mxfp8", "nvfp4", "int4", "mxfp6_e3m2"]


def edge_values(*shape: int, seed: int = 0) -> np.ndarray:
    """float32 values of all sizes, zeros of both signs, and some that aren't finite."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.ldexp(1.0, rng.integers(-60, 60, (*shape[:-1], 1)))
    x = x.astype(np.float32)
    flat = x.reshape(-1)
    flat[::7], flat[3::11] = 0.0, -0.0
    if x.size > 100:
        flat[50], flat[90] = np.nan, np.inf
    return x


def there(x: Any) -> aq.Tensor:
    """A tensor on the device, of an array or a QTensor."""
    if isinstance(x, QTensor):
        return aq.AutodiffQTensor(x.to("cuda"), aq.TensorType(x.scheme))
    return aq.tensor(x, device="cuda")


def here(x: Any) -> aq.Tensor:
    return (
        aq.AutodiffQTensor(x, aq.TensorType(x.scheme))
        if isinstance(x, QTensor)
        else aq.tensor(x, device="cpu")
    )


def same_bits(found: aq.Tensor, expected: aq.Tensor) -> bool:
    """Whether results agree to the bit, NaN with NaN."""
    if isinstance(expected, aq.AutodiffQTensor):
        return isinstance(found, aq.AutodiffQTensor) and found.qtensor.to("cpu").same_bits(expected.qtensor)
    a, b = found.numpy(), expected.numpy()
    nan = np.isnan(b.astype(np.float32))
    kind = f"u{a.dtype.itemsize}"
    return (
        a.dtype == b.dtype
        and np.array_equal(np.isnan(a.astype(np.float32)), nan)
        and np.array_equal(a.view(kind)[~nan], b.view(kind)[~nan])
    )


def check(name: str, *operands: Any, out_dtype: Any = None, launches: int | None = None) -> None:
    """An exact op on both devices."""
    with np.errstate(all="ignore"):
        expected = apply(name, *[here(x) for x in operands], out_dtype=out_dtype)
    arrays = [there(x) for x in operands]
    before = launch.launches
    found = apply(name, *arrays, out_dtype=out_dtype)
    if launches is not None:
        assert launch.launches - before == launches
    assert same_bits(found, expected), (name, operands)


SHAPES = (
    [(1, 32), (5, 64), (3, 40)]
    if SMALL
    else [(1, 32), (5, 64), (3, 40), (257, 513), (4, 3, 96), (1024, 1024)]
)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_scheme_to_itself(cupy: Any, name: str) -> None:
    scheme = aq.scheme(name)
    for seed, shape in enumerate(SHAPES):
        x = QTensor.quantize(edge_values(*shape, seed=seed), scheme)
        y = QTensor.quantize(edge_values(*shape, seed=seed + 10), scheme)
        check("add", x, y)
        check("mul", x, edge_values(*shape, seed=20))


@pytest.mark.parametrize("policy", ["propagate", "saturate"])
@pytest.mark.parametrize("name", ["mxfp8", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp4", "nvfp4", "int8", "fp8_e4m3"])
def test_policies_for_what_is_not_finite(cupy: Any, name: str, policy: str) -> None:
    scheme = aq.scheme(name).replace(nonfinite=policy)
    for shape in SHAPES:
        check("neg", QTensor.quantize(edge_values(*shape), scheme))
        check("sub", edge_values(*shape), edge_values(*shape, seed=1), out_dtype=scheme)


def test_one_launch_an_op(cupy: Any) -> None:
    x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    q = QTensor.quantize(x, aq.mxfp8)
    check("add", q, q, launches=1)
    check("mul", q, x[0], launches=1)
    check("add", x, x, launches=1)
    check("greater", q, x, launches=1)
    two = QTensor.quantize(x, aq.nvfp4)
    check("sub", two, x, launches=1)  # float32 (S7)
    check("sub", two, x, out_dtype=aq.nvfp4, launches=2)  # the largest magnitude first
    check("sub", QTensor.quantize(x, aq.nvfp4_single), x, out_dtype=aq.nvfp4_single, launches=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BRAIN])
def test_floats_at_every_alignment_and_stride(cupy: Any, dtype: Any) -> None:
    x = edge_values(70, 129).astype(dtype)
    on_device = aq.tensor(x, device="cuda")
    for index in (
        np.s_[:], np.s_[:, 1:], np.s_[1:, 2:66], np.s_[:, 3:67], np.s_[::2, :64], np.s_[:, ::3], np.s_[::-1],
        np.s_[:, ::-1], np.s_[5], np.s_[:, 7], np.s_[:0], np.s_[3, 4],
    ):  # fmt: skip
        a, b = here(x[index]), on_device[index]
        assert same_bits(b + b, a + a)
        assert same_bits(b.T * b.T, a.T * a.T)


@pytest.mark.parametrize(
    ("one", "two"),
    [((4, 64), (64,)), ((4, 64), (4, 1)), ((4, 1, 64), (3, 64)), ((2, 3, 4, 32), (3, 1, 32)), ((4, 64), ()),
     ((1, 64), (5, 1)), ((2, 3, 1, 5), (7, 1)), ((3, 33), (33,))],
)  # fmt: skip
@pytest.mark.parametrize("name", [None, "mxfp8", "mxfp4", "mxfp6_e2m3", "nvfp4"])
def test_broadcasting(cupy: Any, one: Any, two: Any, name: str | None) -> None:
    x, y = edge_values(*one), np.asarray(edge_values(*two, seed=1) if two else np.float32(1.5))
    first = x if name is None else QTensor.quantize(x, name)
    check("add", first, y)
    check("div", y, first)
    if name is not None and two:
        check("mul", QTensor.quantize(y, name), x)


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "mxfp6_e3m2", "nvfp4", "nvfp4_2d", "int8", "fp8_block"])
def test_views_of_packed_tensors(cupy: Any, name: str) -> None:
    q = QTensor.quantize(edge_values(8, 96, 256) if not SMALL else edge_values(2, 32, 64), name)
    x = np.random.default_rng(0).standard_normal(q.shape).astype(np.float32)
    a, b, p, r = here(q), there(q), here(x), there(x)
    for view in (
        lambda t: t, lambda t: t[1:], lambda t: t[::2], lambda t: t[:, 32:], lambda t: t[..., 32:],
        lambda t: t.mT, lambda t: t.permute_dims((1, 0, 2)), lambda t: t.permute_dims((2, 1, 0)),
        lambda t: t[1, 5],
    ):  # fmt: skip
        assert same_bits(view(b) + view(r), view(a) + view(p))
        assert same_bits(
            aq.add(view(b), view(r), out_dtype=aq.float32), aq.add(view(a), view(p), out_dtype=aq.float32)
        )


def of_any_format(name: str) -> np.ndarray | QTensor:
    """Edge values as an array of floats or packed."""
    if name in FLOATS:
        return edge_values(6, 64).astype(FLOATS[name])
    return QTensor.quantize(edge_values(6, 64, seed=2), name)


@pytest.mark.parametrize("first", FORMATS)
@pytest.mark.parametrize("second", FORMATS)
def test_formats_in_any_mix(cupy: Any, first: str, second: str) -> None:
    x, y = of_any_format(first), of_any_format(second)
    for out in (aq.float32, aq.float16, aq.bfloat16, aq.mxfp8, aq.mxfp4, aq.nvfp4):
        check("add", x, y, out_dtype=out)
    check("less", x, y)


# All but maximum, minimum and relu: of zeros of both signs NumPy takes one or the other.
EXACT = [
    "add", "sub", "mul", "div", "neg", "square", "abs", "sign", "sqrt", "floor", "ceil", "trunc", "round",
    "fmod", "remainder", "floor_divide", "copysign", "nextafter", "rsqrt", "reciprocal", "hardtanh",
    "hardswish", "leaky_relu", "equal", "not_equal", "greater", "greater_equal", "less_equal", "isnan",
    "isinf", "isfinite", "signbit", "logical_and", "logical_or", "logical_not", "logical_xor",
]  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_exact_ops_have_the_bits_of_numpy(cupy: Any, name: str) -> None:
    edges = np.array(
        [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 3e38, 2.0**-126],
        np.float32,
    )
    a, b = (each.reshape(-1) for each in np.meshgrid(edges, edges))
    more = edge_values(2, 4096)
    a, b = np.concatenate([a, more[0]]), np.concatenate([b, more[1]])
    check(name, *(a, b)[: len(REGISTRY[name].operands)])


@pytest.mark.parametrize(
    "op", [o for o in REGISTRY.values() if o.elementwise and o.name not in EXACT], ids=lambda o: o.name
)
def test_other_ops_are_near_numpy(cupy: Any, op: Any) -> None:
    if op.name.startswith("bitwise"):
        pytest.skip("works on integers, by CuPy")
    for operands, static in op.sample(np.random.default_rng(0)):
        arrays = [
            np.asarray(x) if np.asarray(x).dtype.kind == "b" else np.asarray(x, np.float32) for x in operands
        ]
        found = apply(op.name, *[there(x) for x in arrays], **static).numpy()
        expected = np.asarray(op.forward(*arrays, **{**op.defaults, **static}))
        np.testing.assert_allclose(found, expected, rtol=4e-6, atol=1e-7)


@pytest.mark.parametrize(
    "op", [o for o in REGISTRY.values() if o.elementwise and o.differentiable], ids=lambda o: o.name
)
def test_gradients_are_near_the_cpu(cupy: Any, op: Any) -> None:
    for operands, static in op.sample(np.random.default_rng(0)):
        grads = []
        for device in ("cpu", "cuda"):
            leaves = [
                aq.tensor(np.asarray(x) if np.asarray(x).dtype.kind == "b" else np.asarray(x, np.float32),
                          requires_grad=np.asarray(x).dtype.kind != "b", device=device)
                for x in operands
            ]  # fmt: skip
            apply(op.name, *leaves, **static).sum().backward()
            grads.append([leaf.grad.numpy() for leaf in leaves if leaf.grad is not None])
        for a, b in zip(*grads, strict=True):
            np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-6)


def test_fused_is_unfused(cupy: Any) -> None:
    """Packed operands to a packed result in one launch: the bits of decoding, computing and encoding."""
    q = there(QTensor.quantize(edge_values(64, 256), aq.mxfp8))
    for name in ("gelu", "tanh", "exp", "sigmoid", "silu", "mish", "sin", "erf", "log1p"):
        fused = apply(name, q)
        dense = apply(name, q.dequantize())
        assert same_bits(fused, aq.quantize(dense, aq.mxfp8)), name


def test_every_operation_compiles_and_runs(cupy: Any) -> None:
    from autoq.kernels.cuda.map import mapped

    x, truth = cupy.full(40, 0.5, np.float32), cupy.ones(40, np.bool_)
    for name, operation in OPERATIONS.items():
        steps = [("operand" if kind == "f" else "truth", i) for i, kind in enumerate(operation.takes)]
        expression = Expression((*steps, (name, *range(len(steps)))))
        out = cupy.empty(40, np.float32 if operation.gives == "f" else np.bool_)
        mapped(expression, [x if kind == "f" else truth for kind in operation.takes], (), out)
        found = out.get()
        assert found.tobytes() == found[:1].tobytes() * 40, name  # NaN too: the arccosh of a half


def test_more_values_than_31_bits_count(cupy: Any) -> None:
    if SMALL or cupy.cuda.runtime.memGetInfo()[0] < 12 << 30:
        pytest.skip("needs 12 GB of free memory")
    from autoq.kernels.cuda.map import mapped

    size = (1 << 31) + 64
    x = cupy.zeros((size,), ml_dtypes.bfloat16)
    x.view(np.uint16)[-3] = 0x4000  # 2
    out = cupy.empty(size, ml_dtypes.bfloat16)
    found = traced(lambda x: x + x, "f")
    assert found is not None
    mapped(found.expression, [x], (), out)
    assert out[-4:].get().astype(np.float32).tolist() == [0.0, 4.0, 0.0, 0.0]
    truth = cupy.empty((2, size // 2), np.bool_)
    mapped(traced(lambda x: x > 1.0, "f").expression, [x.reshape(2, -1)], (), truth)  # type: ignore[union-attr]
    assert int(truth.sum()) == 1


def test_schemes_of_no_named_kind(cupy: Any) -> None:
    for scheme in (
        QuantScheme("int8", (24,)), QuantScheme("e4m3", (8,)), QuantScheme("int4", (20,), "f16"),
        QuantScheme("int2", (48,), "bf16"),
        QuantScheme("e2m1", (64,), "ue4m3"), QuantScheme("e3m2", (16,), "f16", tensor_scale=True),
    ):  # fmt: skip
        for shape in ((3, 48), (5, 50)):
            check("add", QTensor.quantize(edge_values(*shape), scheme), edge_values(*shape, seed=1))
