"""What FP8 products are given: scales as cuBLASLt reads them, and operands that it can take."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autoq.kernels.cuda import blas, blas_fp8, launch, matmul
from autoq.kernels.cuda.blas_fp8 import Codes
from autoq.kernels.cuda.operand import Packed
from autoq.storage import QTensor
from autoq.storage.plan import plan_of

from .test_blas import device


def codes(m: int, k: int, mode: str = "tensor", element: str = "e4m3") -> Codes:
    shape = {"tensor": (1, 1), "rows": (m, -(-k // 128)), "tiles": (-(-m // 128), -(-k // 128))}[mode]
    scales = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return Codes(device(np.zeros((m, k // 4), np.uint32)), element, device(scales), mode)


@pytest.fixture(autouse=True)
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "available", lambda: True)
    monkeypatch.setattr(launch, "current_device", lambda: 0)
    monkeypatch.setattr(launch, "device_capability", lambda device: (9, 0))
    monkeypatch.setitem(
        sys.modules,
        "cupy",
        SimpleNamespace(
            pad=lambda *given: device(np.pad(*given)),
            repeat=np.repeat,
            ascontiguousarray=lambda x: device(np.ascontiguousarray(x)),
        ),
    )


def test_scales_of_rows_lie_row_by_row() -> None:
    x = codes(6, 300, "rows")
    found = blas_fp8.scales_of(x, "rows")
    assert found.flags.c_contiguous
    assert np.array_equal(found, x.scales.T)


def test_scales_of_tiles_lie_in_lines_of_fours() -> None:
    for k, length in ((300, 4), (512, 4), (640, 8)):
        x = codes(200, k, "tiles")
        found = blas_fp8.scales_of(x, "tiles")
        assert found.shape == (2, length)
        assert np.array_equal(found[:, : x.scales.shape[1]], x.scales)


def test_scales_of_tiles_become_scales_of_rows() -> None:
    x = codes(130, 256, "tiles")
    found = blas_fp8.scales_of(x, "rows")
    assert found.shape == (2, 130)
    assert np.array_equal(found[:, 0], x.scales[0])
    assert np.array_equal(found[:, 127], x.scales[0])
    assert np.array_equal(found[:, 129], x.scales[1])


def aligned(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 512, np.uint8)
    start = -memory.ctypes.data % 256
    return device(memory[start : start + size].view(dtype).reshape(shape))


def placed(x: Codes) -> Codes:
    return x._replace(words=aligned(x.words.shape, np.uint32))


@pytest.mark.parametrize(
    ("a", "b", "fit"),
    [
        ((64, 256), (32, 256), True),
        ((3, 256), (32, 256), True),
        ((64, 256, "rows"), (32, 256, "tiles"), True),
        ((64, 256, "tensor", "e5m2"), (32, 256), True),
        ((64, 256), (24, 256), False),
        ((64, 40), (32, 40), False),
        ((0, 256), (32, 256), False),
        ((3, 256, "rows"), (32, 256, "rows"), False),
        ((64, 256, "rows"), (32, 256), False),
        ((64, 256, "tensor", "e5m2"), (32, 256, "tensor", "e5m2"), False),
    ],
)
def test_conditions(a: Any, b: Any, fit: bool) -> None:
    x, y = placed(codes(*a)), placed(codes(*b))
    assert blas_fp8.fits(x, y, aligned((a[0], b[0]))) is fit


def test_other_devices_and_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, out = placed(codes(64, 256)), placed(codes(32, 256)), aligned((64, 32))
    shifted = x._replace(words=aligned((65, 65), np.uint32)[1:, 1:])
    assert not blas_fp8.fits(shifted, y, out)
    monkeypatch.setattr(launch, "device_capability", lambda device: (10, 0))
    assert blas_fp8.fits(x, y, out)
    assert not blas_fp8.fits(placed(codes(64, 256, "rows")), placed(codes(32, 256, "rows")), out)
    monkeypatch.setattr(launch, "device_capability", lambda device: (8, 0))
    assert not blas_fp8.fits(x, y, out)


def test_cublas_knows_where_scales_lie_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    bindings = SimpleNamespace(
        matmul_heuristic_result_dtype=np.dtype([("state", np.int32)]),
        cuBLASLtError=RuntimeError,
        matmul_preference_destroy=lambda made: None,
        matmul_algo_get_heuristic=lambda *given: told.append("asked"),
    )
    monkeypatch.setitem(sys.modules, "nvmath.bindings", SimpleNamespace(cublasLt=bindings))
    for name in ("_description", "_preference", "handle"):
        monkeypatch.setattr(blas_fp8, name, lambda *given: 1)
    monkeypatch.setattr(blas_fp8, "_layouts", lambda key: (1, 2, 3))
    monkeypatch.setattr(blas_fp8, "_destroy", lambda plan: None)
    monkeypatch.setattr(blas_fp8, "_point", lambda plan, scales: told.append(scales))
    x, y = placed(codes(64, 512, "rows")), placed(codes(32, 512, "tiles"))
    y = y._replace(scales=aligned(y.scales.shape))
    assert not blas_fp8.product(x, y, aligned((64, 32)))
    assert told[0][0] == y.scales.data.ptr
    assert told[0][1]
    assert told[1:] == ["asked"]
    assert blas_fp8.refusal() == "no algorithm"


def test_a_plan_is_kept_by_what_the_algorithm_depends_on() -> None:
    x, y, out = placed(codes(64, 256, "tiles")), placed(codes(32, 256, "tiles")), aligned((64, 32))
    key = blas_fp8._key(x, y, out, False)
    assert (key.rows, key.columns, key.k, key.alignment) == (32, 64, 256, 256)
    assert key.modes == ("tiles", "rows")
    assert key.steps == (256, 256)
    moved = y._replace(words=aligned((33, 64), np.uint32)[1:])
    assert blas_fp8._key(x, moved, out, False).alignment == 256
    assert blas_fp8._key(x, y, aligned((65, 33))[1:, 1:], False).alignment == 16


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("fp8_e4m3", "tensor"), ("fp8_e5m2", "tensor"), ("fp8_block", "rows"), ("fp8_block_2d", "tiles"),
        ("mxfp8", None), ("int8", None), ("nvfp4", None),
    ],
)  # fmt: skip
def test_which_packed_tensors_are_codes(name: str, mode: str | None) -> None:
    q = QTensor.quantize(np.ones((4, 256), np.float32), name)
    packed = Packed(q.words, q.scales, q.tensor_scale, plan_of(q.scheme).codec, q.scheme.block or (), q.shape)
    found = matmul._fp8_codes(packed)
    assert (None if found is None else found.mode) == mode
    if found is not None:
        assert found.words.shape == (4, 64)
        assert found.element == ("e5m2" if "e5m2" in name else "e4m3")
