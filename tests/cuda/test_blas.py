"""What cuBLAS is called with: a stand-in of its bindings reads the operands where the calls say they lie."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autoq.kernels.cuda import blas, blas_fp8

# Names of the arguments, in the bindings' order.
GEMM = re.findall(
    r"\w+", "handle transa transb m n k alpha a atype lda b btype ldb beta c ctype ldc compute_type algo"
)
BATCHED = re.findall(
    r"\w+",
    "handle transa transb m n k alpha a atype lda stride_a b btype ldb stride_b beta c ctype ldc stride_c "
    "batch_count compute_type algo",
)


class DeviceArray(np.ndarray):
    """An array that says where it lies as CuPy's do."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


def device(array: np.ndarray) -> Any:
    return array.view(DeviceArray)


def columns(pointer: int, rows: int, count: int, step: int, dtype: Any) -> np.ndarray:
    """A matrix of columns at an address."""
    size = np.dtype(dtype).itemsize * (step * (count - 1) + rows)
    memory = np.frombuffer((ctypes.c_char * size).from_address(pointer), dtype)
    return np.lib.stride_tricks.as_strided(memory, (rows, count), (memory.itemsize, memory.itemsize * step))


class Bindings(ModuleType):
    """cuBLAS as its reference defines it, on the host's memory."""

    GemmAlgo = SimpleNamespace(DFALT=-1)
    PointerMode = SimpleNamespace(HOST=0, DEVICE=1)
    Math = SimpleNamespace(DISALLOW_REDUCED_PRECISION_REDUCTION=16)
    ComputeType = {
        "COMPUTE_32F": 68,
        "COMPUTE_32F_FAST_TF32": 77,
        "COMPUTE_32F_FAST_16BF": 75,
        "COMPUTE_64F": 70,
    }
    dtypes = {0: np.float32, 1: np.float64, 2: np.float16}

    def __init__(self) -> None:
        super().__init__("nvmath.bindings.cublas")
        self.calls: list[dict[str, Any]] = []
        self.mode = self.stream = self.workspace = None

    def create(self) -> int:
        return 7

    def set_math_mode(self, handle: int, mode: int) -> None:
        assert (handle, mode) == (7, 16)

    def set_pointer_mode(self, handle: int, mode: int) -> None:
        self.mode = mode

    def set_stream(self, handle: int, stream: int) -> None:
        self.stream, self.workspace = stream, None

    def set_workspace(self, handle: int, pointer: int, size: int) -> None:
        self.workspace = pointer

    def gemm_ex(self, *given: Any) -> None:
        self._gemm(dict(zip(GEMM, given, strict=True)))

    def gemm_strided_batched_ex(self, *given: Any) -> None:
        call = dict(zip(BATCHED, given, strict=True))
        for i in range(call["batch_count"]):
            moved = {
                x: call[x] + i * call[f"stride_{x}"] * np.dtype(self.dtypes[call[f"{x}type"]]).itemsize
                for x in "abc"
            }
            self._gemm({**call, **moved})

    def _gemm(self, call: dict[str, Any]) -> None:
        assert self.stream == 5
        assert self.workspace
        self.calls.append(call)
        kind, result = self.dtypes[call["atype"]], self.dtypes[call["ctype"]]
        m, n, k = call["m"], call["n"], call["k"]
        sides = []
        for x, rows, count in (("a", m, k), ("b", k, n)):
            shape = (count, rows) if call[f"trans{x}"] else (rows, count)
            assert call[f"ld{x}"] >= shape[0]
            found = columns(call[x], *shape, call[f"ld{x}"], kind)
            sides.append(found.T if call[f"trans{x}"] else found)
        number = np.float64 if call["compute_type"] == 70 else np.float32
        alpha, beta = (columns(call[x], 1, 1, 1, number)[0, 0] for x in ("alpha", "beta"))
        c = columns(call["c"], m, n, call["ldc"], result)
        found = alpha * (sides[0].astype(np.float64) @ sides[1].astype(np.float64))
        c[...] = found + (beta * c if beta else 0)


@pytest.fixture
def cublas(monkeypatch):
    found = Bindings()
    names = {"CUDA_R_32F": 0, "CUDA_R_64F": 1, "CUDA_R_16F": 2, "CUDA_R_16BF": 14}
    stream = SimpleNamespace(ptr=5, synchronize=lambda: None)
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(get_current_stream=lambda: stream, runtime=SimpleNamespace(getDevice=lambda: 0)),
        empty=lambda *a: device(np.empty(*a)),
        ascontiguousarray=lambda x: device(np.ascontiguousarray(x)),
    )
    for name, module in (
        ("cupy", cupy),
        ("nvmath", SimpleNamespace(CudaDataType=names)),
        ("nvmath.bindings", SimpleNamespace(cublas=found)),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(blas, "available", lambda: True)
    monkeypatch.setattr(blas, "library", lambda: cupy)
    monkeypatch.setattr(blas, "_constants", lambda: device(np.arange(2, dtype=np.float32)))
    monkeypatch.setattr(blas, "_local", SimpleNamespace())
    blas.data_type.cache_clear()
    blas._compute.cache_clear()
    yield found
    blas.data_type.cache_clear()
    blas._compute.cache_clear()


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return device(np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype))


def turned(x: Any) -> Any:
    return device(np.ascontiguousarray(x.swapaxes(-1, -2))).swapaxes(-1, -2)


def sliced(x: Any) -> Any:
    """The same values among others."""
    whole = device(np.full([2 * n + 1 for n in x.shape], np.nan, x.dtype))
    part = whole[tuple(slice(1, n + 1) for n in x.shape)]
    part[...] = x
    return part


LAYOUTS = [lambda x: x, turned, sliced, lambda x: turned(sliced(x)), lambda x: sliced(turned(x))]


def check(a: Any, b: Any, out: Any, **how: Any) -> None:
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64)) * float(how.get("alpha", 1.0))
    if how.get("accumulate"):
        expected = expected + out
    blas.gemm(a, b, out, **how)
    assert np.allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("m", "k", "n"), [(3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1), (1, 7, 1)])
def test_every_layout_of_two_matrices(cublas, m, k, n):
    for left, right in itertools.product(LAYOUTS, LAYOUTS):
        check(left(normal(m, k)), right(normal(k, n)), device(np.full((m, n), np.nan, np.float32)))


def test_transposes_are_not_copied(cublas):
    a, b = turned(normal(3, 4)), turned(normal(4, 5))
    check(a, b, device(np.zeros((3, 5), np.float32)))
    assert (cublas.calls[0]["a"], cublas.calls[0]["b"]) == (b.data.ptr, a.data.ptr)


@pytest.mark.parametrize(
    ("a", "b", "calls"),
    [
        ((6, 3, 4), (6, 4, 2), 6),
        ((6, 3, 4), (1, 4, 2), 1),
        ((1, 3, 4), (6, 4, 2), 6),
        ((2, 3, 5, 4), (2, 3, 4, 2), 6),
        ((2, 1, 3, 4), (1, 5, 4, 2), 10),
        ((2, 3, 1, 3, 4), (2, 1, 5, 4, 2), 30),
    ],
)
def test_leading_axes(cublas, a, b, calls):
    x, y = normal(*a), normal(*b)
    leading = np.broadcast_shapes(a[:-2], b[:-2])
    wide = [device(np.broadcast_to(z, (*leading, *z.shape[-2:]))) for z in (x, y)]
    check(*wide, device(np.full((*leading, a[-2], b[-1]), np.nan, np.float32)))
    assert len(cublas.calls) == calls
    cublas.calls.clear()
    moved = device(np.swapaxes(np.ascontiguousarray(np.swapaxes(wide[0], 0, -3)), 0, -3))
    check(moved, wide[1], device(np.zeros((*leading, a[-2], b[-1]), np.float32)))


def test_factors_on_the_host_and_on_the_device(cublas):
    a, b = normal(3, 4), normal(4, 5)
    for accumulate, alpha in itertools.product((False, True), (1.0, -2.5, device(np.array(3.0, np.float32)))):
        check(a, b, normal(3, 5), alpha=alpha, accumulate=accumulate)
        assert cublas.mode == (0 if isinstance(alpha, float) else 1)


def test_dtypes_and_precisions(cublas):
    for dtype, out, precision, compute in (
        (np.float32, np.float32, "highest", 68),
        (np.float32, np.float32, "tf32", 77),
        (np.float32, np.float32, "bf16", 75),
        (np.float16, np.float32, "tf32", 68),
        (np.float16, np.float16, "highest", 68),
        (np.float64, np.float64, "highest", 70),
    ):
        a, b = normal(3, 4, dtype=dtype), normal(4, 5, dtype=dtype)
        found = device(np.zeros((3, 5), out))
        blas.gemm(a, b, found, precision=precision)
        assert np.allclose(found, a.astype(np.float64) @ b.astype(np.float64), atol=1e-2)
        assert cublas.calls[-1]["compute_type"] == compute


def test_nothing_is_called_for_nothing(cublas):
    out = normal(3, 5)
    blas.gemm(normal(3, 0), normal(0, 5), out, accumulate=True)
    assert out.any()
    blas.gemm(normal(3, 0), normal(0, 5), out)
    assert not out.any()
    blas.gemm(normal(0, 4), normal(4, 5), normal(0, 5))
    assert cublas.calls == []


@pytest.mark.skipif(importlib.util.find_spec("nvmath") is None, reason="nvmath isn't installed")
def test_calls_have_the_arguments_of_the_bindings():
    from nvmath.bindings import cublas, cublasLt

    for name, expected in (("gemm_ex", GEMM), ("gemm_strided_batched_ex", BATCHED)):
        for wide in ("", "_64"):
            text = getattr(cublas, name + wide).__doc__.partition("\n")[0]
            assert re.findall(r"(\w+)[,)]", text) == expected
    for name, value in blas.COMPUTE.items():
        assert value in cublas.ComputeType.__members__, name
    for mode in blas_fp8.SCALES.values():
        assert mode in cublasLt.MatmulMatrixScale.__members__
    assert (int(cublas.Operation.N), int(cublas.Operation.T)) == (0, 1)
    modes = int(cublas.PointerMode.HOST), int(cublas.PointerMode.DEVICE)
    assert (*modes, int(cublas.GemmAlgo.DFALT)) == (
        blas.HOST_POINTERS,
        blas.DEVICE_POINTERS,
        blas.DEFAULT_ALGORITHM,
    )
    assert cublasLt.matmul_heuristic_result_dtype.names[:3] == ("algo", "workspace_size", "state")
