"""Sums and scatters on the device: near float64, the same bits every time, NumPy's order of repeats."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda import launch
from autoq.kernels.cuda.scatter import add_at, add_rows
from autoq.storage import QTensor
from autoq.tape.apply import apply

pytestmark = pytest.mark.gpu
SMALL = os.environ.get("AUTOQ_TEST_SANITIZER") == "1"
SHAPES = [(3, 40), (70, 5), (2, 70, 3), (1, 2100), (17, 1)]
SHAPES += [] if SMALL else [(1000, 1000), (3, 100_000), (100_000, 3), (40, 30, 50), (1 << 22,)]


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(found: np.ndarray, expected: np.ndarray, length: int) -> bool:
    return found.shape == expected.shape and bool(
        (np.abs(found - expected) <= 2e-6 * max(length, 4) ** 0.5).all()
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_and_means_over_any_axes(cupy: Any, shape: tuple[int, ...]) -> None:
    x = floats(*shape)
    t = aq.tensor(x, device="cuda")
    rank = len(shape)
    for axis in [None, *range(-rank, rank), tuple(range(rank)), *([(0, rank - 1)] if rank > 1 else [])]:
        length = x.size if axis is None else int(np.prod([shape[a] for a in np.atleast_1d(axis)]))
        for keepdims in (False, True):
            expected = x.astype(np.float64).sum(axis=axis, keepdims=keepdims)
            found = t.sum(axis=axis, keepdims=keepdims)
            assert near(found.numpy(), expected, length), (shape, axis)
            again = t.sum(axis=axis, keepdims=keepdims).numpy()
            assert found.numpy().tobytes() == again.tobytes()
            mean = t.mean(axis=axis, keepdims=keepdims).numpy()
            assert near(mean, expected / length, 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("factor", [1.0, 1e-40])
def test_extrema_and_their_places_are_those_of_the_cpu(
    cupy: Any, shape: tuple[int, ...], factor: float
) -> None:
    x = floats(*shape) * np.float32(factor)  # subnormal numbers too
    if x.size > 100:
        x.reshape(-1)[x.size // 2] = np.nan
    t = aq.tensor(x, device="cuda")
    for axis in [None, *range(-len(shape), len(shape))]:
        for name in ("max", "min", "argmax", "argmin"):
            for keepdims in (False, True):
                found = getattr(aq, name)(t, axis=axis, keepdims=keepdims).numpy()
                expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
                np.testing.assert_array_equal(found, expected, err_msg=f"{name} {axis}")


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4", "int8", "fp8_e4m3"])
def test_extrema_of_packed_tensors_are_one_launch(cupy: Any, name: str) -> None:
    q = QTensor.quantize(floats(50, 130), name)
    t = aq.AutodiffQTensor(q.to("cuda"), aq.TensorType(q.scheme))
    for view, values in ((t, q.dequantize()), (t.T, q.dequantize().T)):
        for axis in (0, 1, None):
            before = launch.launches
            found = aq.max(view, axis=axis, out_dtype=aq.float32)
            assert launch.launches - before == 1
            np.testing.assert_array_equal(found.numpy(), values.max(axis=axis))
            np.testing.assert_array_equal(aq.argmin(view, axis=axis).numpy(), values.argmin(axis=axis))


@pytest.mark.parametrize(
    "name", ["mxfp8", "mxfp4", "mxfp6_e3m2", "nvfp4", "nvfp4_2d", "int8", "fp8_e4m3", "fp8_block"]
)
def test_sums_of_packed_tensors_decode_as_they_add(cupy: Any, name: str) -> None:
    q = QTensor.quantize(floats(50, 130), name)
    t = aq.AutodiffQTensor(q.to("cuda"), aq.TensorType(q.scheme))
    values = q.dequantize().astype(np.float64)
    for axis in (0, 1, None):
        before = launch.launches
        found = aq.sum(t, axis=axis, out_dtype=aq.float32)
        assert launch.launches - before == 1
        assert near(found.numpy(), values.sum(axis=axis), values.size)
        assert near(
            aq.sum(t.T, axis=axis, out_dtype=aq.float32).numpy(), values.T.sum(axis=axis), values.size
        )


def test_sums_of_views(cupy: Any) -> None:
    x = floats(64, 96)
    t = aq.tensor(x, device="cuda")
    for index in (np.s_[::2], np.s_[:, ::3], np.s_[::-1, 1:], np.s_[5], np.s_[:, 7]):
        for axis in range(x[index].ndim):
            assert near(t[index].sum(axis=axis).numpy(), x[index].astype(np.float64).sum(axis=axis), 96)


@pytest.mark.parametrize("name", ["var", "std", "norm"])
def test_spreads_and_norms(cupy: Any, name: str) -> None:
    x = floats(30, 200)
    for axis in (0, 1, None):
        found = apply(name, aq.tensor(x, device="cuda"), axis=axis).numpy()
        expected = apply(name, aq.tensor(x.astype(np.float64), device="cpu"), axis=axis).numpy()
        np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_a_broadcast_operand_gets_its_gradient_summed_in_a_fixed_order(cupy: Any) -> None:
    x, bias = (
        aq.tensor(floats(300, 64), device="cuda"),
        aq.tensor(floats(64), device="cuda", requires_grad=True),
    )
    grads = []
    for _ in range(3):
        bias.grad = None
        (aq.tanh(x + bias)).sum().backward()
        grads.append(bias.grad.numpy().tobytes())  # type: ignore[union-attr]
    assert len(set(grads)) == 1


@pytest.mark.parametrize("repeats", ["few", "many", "all"])
def test_rows_are_added_in_the_order_of_numpy(cupy: Any, repeats: str) -> None:
    rng = np.random.default_rng(0)
    count, extent, width = (200, 20, 8) if SMALL else (5000, 300, 33)
    rows = rng.integers(-extent, extent, count)
    rows[: {"few": 0, "many": count // 2, "all": count}[repeats]] = 7
    out, values = floats(2, extent, width), floats(2, count, width, seed=1)
    expected = out.copy()
    for part, added in zip(expected, values, strict=True):
        np.add.at(part, rows, added)
    target = cupy.asarray(out)
    add_rows(target, cupy.asarray(rows), cupy.asarray(values))
    assert target.get().tobytes() == expected.tobytes()


def test_entries_are_added_in_the_order_of_numpy(cupy: Any) -> None:
    out, values = floats(70), floats(2000, seed=1)
    places = np.random.default_rng(0).integers(0, 70, 2000)
    expected = out.copy()
    np.add.at(expected, places, values)
    target = cupy.asarray(out)
    add_at(target, cupy.asarray(places), cupy.asarray(values))
    assert target.get().tobytes() == expected.tobytes()


def test_the_gradient_of_an_embedding_is_the_same_every_time_and_the_cpus(cupy: Any) -> None:
    indices = np.random.default_rng(0).integers(0, 50, (40, 30))
    grads = []
    for device in ("cpu", "cuda", "cuda"):
        weight = aq.tensor(floats(50, 16), device=device, requires_grad=True)
        g = aq.tensor(floats(40, 30, 16, seed=1), device=device)
        (aq.embedding(weight, indices) * g).sum().backward()
        grads.append(weight.grad.numpy().tobytes())  # type: ignore[union-attr]
    assert len(set(grads)) == 1
