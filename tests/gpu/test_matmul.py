"""Matrix products on the device against float64: every form of call, scheme and layout."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda import blas, blas_fp8, matmul, panels, pieces
from autoq.kernels.cuda.matmul import product
from autoq.ops.on_device.products import operand, turned
from autoq.storage import QTensor

BFLOAT = ml_dtypes.bfloat16
DENSE = [np.float32, np.float16, BFLOAT]
SCHEMES = [
    "mxfp8", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "mxint8", "nvfp4", "nvfp4_single", "nvfp4_2d",
    "mxfp8_2d", "int8", "int4", "int2", "int8_full", "fp8_e4m3", "fp8_e5m2", "fp8_block", "fp8_block_2d",
]  # fmt: skip
# float32 sums of so many terms differ from the exact one by at most this share of the sum of magnitudes.
BOUND = 2.0**-18
# FP8 tensor cores keep fewer bits of a sum.
FP8_BOUND = 2.0**-11


def normal(cupy: Any, *shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    values = np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)
    return cupy.asarray(values).astype(dtype)


def packed(cupy: Any, name: str, *shape: int, seed: int = 0) -> QTensor:
    """Values whose rows and columns differ in size."""
    x = normal(cupy, *shape, seed=seed)
    x *= cupy.exp(normal(cupy, *shape[:-1], 1, seed=seed + 1))
    return QTensor.quantize(x, aq.scheme(name))


def exact(x: Any) -> np.ndarray:
    array = x.dequantize() if isinstance(x, QTensor) else x
    return array.get().astype(np.float64)


def near(found: Any, a: Any, b: Any, bound: float = BOUND) -> bool:
    left, right = exact(a), exact(b)
    error = np.abs(found.get().astype(np.float64) - left @ right)
    return bool((error <= bound * (np.abs(left) @ np.abs(right)) + 1e-35).all())


@pytest.fixture(autouse=True)
def _bindings(cupy: Any) -> None:
    assert blas.available(), "nvmath's bindings of cuBLAS aren't usable here"


@pytest.fixture
def splitting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "SPLIT_FROM", 0)


@pytest.mark.parametrize("dtype", [*DENSE, np.float64])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(64, 96, 80), (1, 33, 7), (5, 1, 3), (257, 129, 1), (31, 1000, 65)]
)
def test_dense_products_in_every_layout(cupy: Any, dtype: Any, m: int, k: int, n: int) -> None:
    out_dtype = "float64" if dtype == np.float64 else "float32"
    a, b = normal(cupy, m, k, dtype=dtype), normal(cupy, k, n, dtype=dtype)
    wide = normal(cupy, 2 * m, 2 * k, dtype=dtype)[1::2, ::2]
    for left in (a, normal(cupy, k, m, dtype=dtype).T, wide, normal(cupy, m, k + 3, dtype=dtype)[:, 3:]):
        for right in (b, normal(cupy, n, k, dtype=dtype).T, normal(cupy, k, 2 * n, dtype=dtype)[:, ::2]):
            assert near(product(left, right, out_dtype), left, right)


@pytest.mark.parametrize("dtype", DENSE)
def test_results_in_sixteen_bits(cupy: Any, dtype: Any) -> None:
    a, b = normal(cupy, 65, 96, dtype=dtype), normal(cupy, 96, 33, dtype=dtype)
    for out_dtype in ("float16", "bfloat16"):
        found = product(a, b, out_dtype)
        assert found.dtype.name == out_dtype
        assert near(found, a, b, 2.0**-7)
    for name in ("mxfp8", "int8"):
        found = product(operand(packed(cupy, name, 65, 96)), b, "bfloat16")
        assert near(found, packed(cupy, name, 65, 96), b, 2.0**-7)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((6, 8, 16), (6, 16, 4)), ((6, 8, 16), (16, 4)), ((8, 16), (6, 16, 4)), ((2, 1, 8, 16), (5, 16, 4)),
        ((2, 3, 1, 8, 16), (2, 1, 5, 16, 4)), ((16,), (16,)), ((16,), (6, 16, 4)), ((6, 8, 16), (16,)),
        ((0, 16), (16, 4)), ((8, 0), (0, 4)), ((0, 8, 16), (16, 4)),
    ],
)  # fmt: skip
def test_leading_axes_and_vectors(cupy: Any, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = normal(cupy, *a), normal(cupy, *b)
    found = product(x, y)
    assert found.shape == np.matmul(np.zeros(a), np.zeros(b)).shape
    assert np.allclose(found.get(), np.matmul(exact(x), exact(y)), atol=1e-4)


def test_batches_in_another_order(cupy: Any) -> None:
    x, y = normal(cupy, 5, 3, 16, 8).transpose(1, 0, 2, 3), normal(cupy, 3, 8, 5, 4).transpose(0, 2, 1, 3)
    assert np.allclose(product(x, y).get(), exact(x) @ exact(y), atol=1e-4)
    heads = normal(cupy, 2, 7, 3, 8).transpose(0, 2, 1, 3)
    assert np.allclose(
        product(heads, heads.swapaxes(-1, -2)).get(), exact(heads) @ exact(heads).swapaxes(-1, -2), atol=1e-4
    )


@pytest.mark.parametrize(
    ("precision", "bound"), [("highest", 2.0**-20), ("tf32", 2.0**-9), ("bf16", 2.0**-6)]
)
def test_precisions_of_float32(cupy: Any, precision: str, bound: float) -> None:
    a, b = normal(cupy, 256, 512), normal(cupy, 512, 384)
    assert near(product(a, b, precision=precision), a, b, bound)


def test_tf32_and_bf16_do_round(cupy: Any) -> None:
    a = cupy.full((128, 128), 1 + 2.0**-12, np.float32)
    b = cupy.eye(128, dtype=np.float32)
    assert (product(a, b) == a).all()
    assert not (product(a, b, precision="tf32") == a).any()
    assert not (product(a, b, precision="bf16") == a).any()


@pytest.mark.parametrize("name", SCHEMES)
def test_each_scheme_by_itself(cupy: Any, name: str, splitting: None) -> None:
    bound = FP8_BOUND if name.startswith("fp8") else BOUND
    for m, k, n in ((64, 256, 48), (33, 288, 65), (1, 64, 5)):
        a, b = packed(cupy, name, m, k), packed(cupy, name, n, k, seed=3)
        assert near(product(operand(a), operand(turned(b))), a, turned(b), bound), (m, k, n)
        # The other axis of b is the one that lies together: decoded, never encoded again.
        c = packed(cupy, name, k, n, seed=4)
        assert near(product(operand(a), operand(c)), a, c, bound), (m, k, n)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("dtype", DENSE)
def test_each_scheme_with_floats(cupy: Any, name: str, dtype: Any, splitting: None) -> None:
    x, q = normal(cupy, 17, 256, dtype=dtype), packed(cupy, name, 40, 256)
    assert near(product(x, operand(turned(q))), x, turned(q))
    y = normal(cupy, 256, 24, dtype=dtype)
    assert near(product(operand(q), y), q, y)


@pytest.mark.parametrize("name", ["mxfp8", "int8", "fp8_e4m3"])
def test_exact_products_are_float64(cupy: Any, name: str) -> None:
    a, b = packed(cupy, name, 33, 128), packed(cupy, name, 128, 20, seed=2)
    found = product(operand(a), operand(b), "float64", "exact")
    assert found.dtype == np.float64
    assert near(found, a, b, 2.0**-45)


def test_two_tensor_scales_and_extreme_ones(cupy: Any) -> None:
    for size in (1e-18, 1e15):
        a, b = (QTensor.quantize(normal(cupy, 32, 64, seed=i) * np.float32(size), aq.nvfp4) for i in range(2))
        assert near(product(operand(a), operand(turned(b))), a, turned(b))
    huge = QTensor.quantize(normal(cupy, 4, 64) * np.float32(1e37), aq.nvfp4)
    zero = QTensor.quantize(cupy.zeros((4, 64), np.float32), aq.nvfp4)
    assert (product(operand(huge), operand(turned(zero))) == 0).all()


def test_nan_and_infinity(cupy: Any, splitting: None) -> None:
    x = normal(cupy, 4, 256)
    x[1, 3], x[2, 200] = np.nan, np.inf
    for name in ("mxfp8", "nvfp4", "int8"):
        q = QTensor.quantize(normal(cupy, 8, 256), aq.scheme(name))
        found = product(x, operand(turned(q))).get()
        assert np.isnan(found[1]).all()
        assert not np.isfinite(found[2]).any()
        assert np.isfinite(found[[0, 3]]).all()
    a, b = cupy.ones((4, 8), np.float32), cupy.full((8, 4), np.inf, np.float32).astype(BFLOAT)
    assert (product(a, b).get() == np.inf).all()


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    "elements", [("fp8_e4m3", "fp8_e4m3"), ("fp8_e4m3", "fp8_e5m2"), ("fp8_e5m2", "fp8_e4m3")]
)
@pytest.mark.parametrize("out_dtype", [np.float32, BFLOAT, np.float16])
def test_fp8_words_are_multiplied_as_they_are(cupy: Any, elements: Any, out_dtype: Any, fast: bool) -> None:
    a, b = packed(cupy, elements[0], 48, 512), packed(cupy, elements[1], 64, 512, seed=1)
    codes = [matmul._fp8_codes(operand(q).packed) for q in (a, b)]
    out = cupy.zeros((48, 64), out_dtype)
    assert blas_fp8.product(*codes, out, fast=fast)
    assert near(out, a, turned(b), 2.0**-7 if out_dtype != np.float32 else FP8_BOUND)


@pytest.mark.parametrize(
    "names",
    [
        ("fp8_block", "fp8_block"),
        ("fp8_block", "fp8_block_2d"),
        ("fp8_block_2d", "fp8_block"),
        ("fp8_block_2d", "fp8_block_2d"),
    ],
)
@pytest.mark.parametrize(("m", "k", "n"), [(256, 512, 128), (132, 640, 272), (4, 128, 16)])
def test_fp8_blocks_are_multiplied_as_they_are(cupy: Any, names: Any, m: int, k: int, n: int) -> None:
    a, b = packed(cupy, names[0], m, k), packed(cupy, names[1], n, k, seed=1)
    codes = [matmul._fp8_codes(operand(q).packed) for q in (a, b)]
    out = cupy.zeros((m, n), np.float32)
    if not blas_fp8.product(*codes, out):
        pytest.skip("cuBLASLt has no algorithm for scales of 128 codes here")
    assert near(out, a, turned(b), FP8_BOUND)


def test_fp8_that_does_not_fit_is_decoded(cupy: Any) -> None:
    for m, k, n in ((16, 24, 16), (16, 32, 15), (3, 32, 16)):
        a, b = packed(cupy, "fp8_e4m3", m, k), packed(cupy, "fp8_e4m3", n, k, seed=1)
        assert near(product(operand(a), operand(turned(b))), a, turned(b), FP8_BOUND)
    a, b = packed(cupy, "fp8_e4m3", 33, 64), packed(cupy, "fp8_e4m3", 32, 64, seed=1)
    assert near(product(operand(a[1:]), operand(turned(b))), a[1:], turned(b), FP8_BOUND)


def test_a_start_is_added_to(cupy: Any) -> None:
    bias, dense = normal(cupy, 32), normal(cupy, 64, 32)
    for rows in (4, 48):
        for a, b in (
            (normal(cupy, rows, 64), dense),
            (normal(cupy, rows, 64), operand(turned(packed(cupy, "nvfp4", 32, 64)))),
            (operand(packed(cupy, "fp8_e4m3", rows, 64)), operand(turned(packed(cupy, "fp8_e4m3", 32, 64)))),
            (operand(packed(cupy, "int8", rows, 64)), operand(turned(packed(cupy, "mxfp8", 32, 64)))),
        ):
            plain = product(a, b).get()
            assert np.allclose(product(a, b, start=bias).get(), plain + bias.get(), atol=1e-4)


def test_pieces_add_up_to_every_float(cupy: Any) -> None:
    x = np.random.default_rng(3).integers(0, 2**32, 1 << 20, dtype=np.uint32).view(np.float32)
    x = x[np.isfinite(x) & (np.abs(x) > 2.0**-109)]
    for start in (0, 1):
        three = np.array([p.get().astype(np.float64) for p in pieces.split(cupy.asarray(x)[start:], 3)])
        assert np.array_equal(three.sum(axis=0), x[start:].astype(np.float64))


def test_products_are_the_same_every_time(cupy: Any, splitting: None) -> None:
    a, b = packed(cupy, "int8", 300, 4096), packed(cupy, "mxfp8", 200, 4096)
    for left, right in ((operand(a), operand(turned(b))), (normal(cupy, 64, 8192), normal(cupy, 8192, 64))):
        first = product(left, right).get()
        for _ in range(3):
            assert (product(left, right).get() == first).all()


def test_a_captured_product_replays(cupy: Any) -> None:
    a, b = normal(cupy, 64, 256), packed(cupy, "mxfp8", 32, 256)
    q = packed(cupy, "fp8_e4m3", 64, 256)
    other = packed(cupy, "fp8_e4m3", 32, 256, seed=1)
    pool, stream = cupy.cuda.MemoryPool(), cupy.cuda.Stream(non_blocking=True)

    def step() -> list[Any]:
        return [
            product(a, operand(turned(b))),
            product(operand(packed_a), operand(turned(b))),
            product(operand(q), operand(turned(other))),
        ]

    packed_a = packed(cupy, "mxfp8", 64, 256)
    expected = [x.get() for x in step()]
    cupy.cuda.get_current_stream().synchronize()
    with stream, cupy.cuda.using_allocator(pool.malloc):
        step()
        stream.synchronize()
        stream.begin_capture()
        found = step()
        graph = stream.end_capture()
    for x in found:
        x.fill(0)
    cupy.cuda.get_current_stream().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert all((x.get() == want).all() for x, want in zip(found, expected, strict=True))


def test_streams_have_workspaces_of_their_own(cupy: Any) -> None:
    a, b = normal(cupy, 512, 2048), normal(cupy, 2048, 512)
    expected = product(a, b).get()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    cupy.cuda.get_current_stream().synchronize()
    found = []
    for _ in range(5):
        for stream in streams:
            with stream:
                found.append(product(a, b))
    for stream in streams:
        stream.synchronize()
    assert all((x.get() == expected).all() for x in found)


@pytest.fixture
def parts(splitting: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of a few hundred rows are made in parts."""
    monkeypatch.setattr(panels, "PANEL", 1 << 16)
    monkeypatch.setattr(panels, "ROWS", 64)


@pytest.mark.parametrize("scheme", ["mxfp8", "nvfp4", "fp8_e4m3", "int8"])
def test_large_products_in_parts(cupy: Any, scheme: str, parts: None) -> None:
    g, x = normal(cupy, 300, 256), packed(cupy, scheme, 300, 512)
    weight, start = normal(cupy, 256, 512), normal(cupy, 256)
    calls = {
        "the gradient of a weight": (g.T, x, None),
        "the second operand along the sum": (turned(x), g, None),
        "some columns at a time": (x, weight.T, start),
        "some rows at a time": (weight, turned(x), None),
    }
    for name, (a, b, add) in calls.items():
        found = product(operand(a), operand(b), start=add)
        assert near(found if add is None else found - add, a, b), name


@pytest.mark.parametrize("scheme", ["mxfp8", "nvfp4", None])
def test_a_product_written_over_its_first_operand(cupy: Any, scheme: str | None, parts: None) -> None:
    g = normal(cupy, 300, 512)
    weight = normal(cupy, 512, 512) if scheme is None else packed(cupy, scheme, 512, 512)
    before = g.copy()
    found = product(g, operand(weight), over=True)
    assert found.data.ptr == g.data.ptr
    assert near(found, before, weight)


@pytest.mark.slow
def test_memory_of_a_training_step(cupy: Any) -> None:
    """In matrices of the signal's size: three weights, as many gradients, the input, and two more."""

    class Peak(cupy.cuda.MemoryHook):
        name, live, most = "peak", 0, 0

        def malloc_postprocess(self, **event: int) -> None:
            self.live += event["mem_size"]
            self.most = max(self.most, self.live)

        def free_postprocess(self, **event: int) -> None:
            self.live -= event["mem_size"]

    n = 4096
    with Peak() as peak:
        x = aq.tensor(normal(cupy, n, n))
        layers = [m for _ in range(3) for m in (aq.nn.Linear(n, n, rng=aq.Generator(0)), aq.nn.ReLU())]
        model = aq.nn.Sequential(*layers).to("cuda")
        for _ in range(2):
            model(x.quantize("mxfp8")).sum().backward()
            for p in model.parameters():
                p.grad = None
    assert 8 < peak.most / x.nbytes < 9


def test_nothing_decoded_survives(cupy: Any) -> None:
    a, b = normal(cupy, 16, 4096, dtype=BFLOAT), packed(cupy, "mxfp8", 4096, 4096)
    pool = cupy.get_default_memory_pool()
    product(a, operand(turned(b)))
    before = pool.used_bytes()
    out = product(a, operand(turned(b)))
    assert pool.used_bytes() - before <= out.nbytes + 512


def test_a_training_step_of_a_packed_layer(cupy: Any) -> None:
    x = aq.tensor(normal(cupy, 64, 96), requires_grad=True)
    weight = aq.tensor(normal(cupy, 32, 96), requires_grad=True)
    packed_x, packed_weight = aq.quantize(x, "mxfp8"), aq.quantize(weight, "mxfp8")
    y = aq.linear(packed_x, packed_weight, out_dtype=aq.float32)
    g = normal(cupy, 64, 32)
    y.backward(g)
    values = [exact(t.qtensor) for t in (packed_x, packed_weight)]
    assert np.allclose(y.numpy(), values[0] @ values[1].T, atol=1e-3)
    assert np.allclose(x.grad.numpy(), exact(g) @ values[1], atol=1e-3)
    assert np.allclose(weight.grad.numpy(), exact(g).T @ values[0], atol=1e-3)
