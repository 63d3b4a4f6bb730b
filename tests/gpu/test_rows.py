"""Softmax, normalization and dropout on the device: nearly the CPU's values, and the same bits every time."""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda import launch, rows
from autoq.kernels.cuda.operand import Packed
from autoq.kernels.cuda.row_kernels import Shape
from autoq.random import Draw, Generator
from autoq.schemes import scheme
from autoq.storage import QTensor
from autoq.storage.plan import plan_of
from autoq.tape.namespace import RAW
from autoq.tape.op import REGISTRY

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
SMALL = os.environ.get("AUTOQ_TEST_SANITIZER") == "1"
LENGTHS = [1, 7, 64, 130, 1000] if SMALL else [1, 7, 64, 130, 768, 1000, 4096, 8200, 16384, 33000, 70000]
FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16]
EPSILON = {np.float32: 2.0**-23, np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}
SCHEMES = [
    "mxfp8",
    "mxfp8_e5m2",
    "mxfp6_e3m2",
    "mxfp4",
    "nvfp4",
    "nvfp4_2d",
    "mxfp8_2d",
    "int8",
    "int2",
    "fp8_e4m3",
]
RESULTS = ["mxfp8", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp4", "nvfp4_single", "int8", "int2_full", "fp8_block"]


def random(shape: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(
    found: Any, expected: np.ndarray, terms: Any = None, dtype: Any = np.float32, ulps: int = 16
) -> bool:
    """Within some last places of the larger of a value and of its row's largest term."""
    found = found.get().astype(np.float64)
    size = np.abs(expected if terms is None else terms).max(axis=-1, keepdims=True)
    size = np.maximum(np.abs(expected), np.where(np.isfinite(size), size, 0))
    with np.errstate(invalid="ignore"):
        fine = np.abs(found - expected) <= ulps * EPSILON[dtype] * size
    return bool((fine | (np.isnan(found) & np.isnan(expected)) | (found == expected)).all())


def op(name: str, *arguments: Any, **static: Any) -> np.ndarray:
    """The CPU's op in float64."""
    return REGISTRY[name].forward(*[None if a is None else a.astype(np.float64) for a in arguments], **static)


def rule(name: str, operand: str, *arguments: Any) -> np.ndarray:
    wide = [a.astype(np.float64) if isinstance(a, np.ndarray) and a.dtype != bool else a for a in arguments]
    return REGISTRY[name].vjp[operand](RAW, *wide)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_float_rows(cupy, n, dtype):
    count = max(1, min(300, 200_000 // n))
    x, g, weight, bias = (
        a.astype(dtype) for a in (random((count, n)), random((count, n), 1), random(n, 2), random(n, 3))
    )
    on = [cupy.asarray(a) for a in (x, g, weight, bias)]
    out = cupy.empty_like(on[0])
    assert rows.softmax(on[0], out)
    assert near(out, op("softmax", x), dtype=dtype)
    assert rows.softmax(on[0], out, log=True)
    assert near(out, op("log_softmax", x), dtype=dtype)
    assert rows.softmax_gradient(on[0], on[1], out)
    assert near(out, rule("softmax", "x", g, x, -1, None), dtype=dtype)
    assert rows.softmax_gradient(on[0], on[1], out, log=True)
    assert near(out, rule("log_softmax", "x", g, x, -1), g, dtype)
    for centered, name in ((True, "layer_norm"), (False, "rms_norm")):
        assert rows.norm(on[0], on[2], on[3] if centered else None, out, 1e-5, centered)
        affine = (weight, bias) if centered else (weight,)
        assert near(out, op(name, x, *affine, eps=1e-5), dtype=dtype)
        assert rows.norm_gradient(on[0], on[2], on[1], out, 1e-5, centered)
        terms = np.abs(rule(name, "x", g, x, weight, -1, 1e-5)).max() if n > 4 else 400 * np.abs(g).max()
        assert near(out, rule(name, "x", g, x, weight, -1, 1e-5), np.full((count, n), terms), dtype, 64)
        sums = cupy.empty(n, np.float32)
        if rows.norm_weight_gradient(on[0], on[1], sums, 1e-5, centered):
            whole = rule(name, "weight", g, x, (n,), -1, 1e-5)
            assert near(sums, whole.sum(axis=0), np.abs(whole).sum(axis=0).max(keepdims=True), ulps=64)
        else:
            assert n > 8192


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("n", [32, 40, 96, 1000, 8192, 10016])
def test_packed_rows_are_decoded(cupy, name, n):
    if n * scheme(name).element_bits % 8:
        n -= n % 16
    q = QTensor.quantize(random((33, n)), scheme(name))
    x, dense, g = packed(cupy, q), cupy.asarray(q.dequantize()), cupy.asarray(random((33, n), 1))
    weight = cupy.asarray(random(n, 2))
    found, wanted = cupy.empty((33, n), np.float32), cupy.empty((33, n), np.float32)
    calls = [
        (rows.softmax, (), {}, 1),
        (rows.softmax_gradient, (g,), {"log": True}, 2),
    ]
    for function, more, options, held in calls:
        shape = rows.shape_of(n, (rows.kind_of(x), "float32"), held)
        assert function(x, *more, found, **options)
        assert function(dense, *more, wanted, **options, shape=shape)
        assert cupy.array_equal(found, wanted)
    shape = rows.shape_of(n, (rows.kind_of(x), "float32"), 1)
    assert rows.norm(x, weight, None, found, 1e-5, True)
    assert rows.norm(dense, weight, None, wanted, 1e-5, True, shape)
    assert cupy.array_equal(found, wanted)


def packed(cupy: Any, q: QTensor) -> Packed:
    plan = plan_of(q.scheme)
    level = None if q.tensor_scale is None else cupy.asarray(np.array(q.tensor_scale))
    return Packed(cupy.asarray(q.words), cupy.asarray(q.scales), level, plan.codec, plan.extents, q.shape)


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("n", [16, 128, 150, 4096, 8200])
def test_results_are_encoded(cupy, name, n):
    x = random((33, n))
    x[0, :4] = [3e4, -3e4, 0.0, 1e-30]
    x[2, -1], x[3, 0], x[4] = np.nan, np.inf, -np.inf
    q = QTensor.quantize(np.zeros_like(x), scheme(name))
    out, dense = packed(cupy, q), cupy.empty(x.shape, np.float32)
    for log in (False, True):
        assert rows.softmax(cupy.asarray(x), out, log=log)
        shape = rows.shape_of(n, ("float32", rows.result_kind(out)), 1)
        assert rows.softmax(cupy.asarray(x), dense, log=log, shape=shape)
        found = QTensor(out.words.get(), out.scales.get(), None, scheme(name), x.shape)
        assert QTensor.encode(dense.get(), scheme(name)).same_bits(found)


def test_masks_views_and_odd_addresses(cupy):
    x, g = random((2, 3, 40, 70)), random((2, 3, 40, 70), 1)
    for shape in [(70,), (40, 70), (2, 1, 1, 70), (2, 1, 40, 1), (1, 3, 1, 70)]:
        mask = np.random.default_rng(5).random(shape) < 0.7
        out = cupy.empty(x.shape, np.float32)
        assert rows.softmax(cupy.asarray(x), out, cupy.asarray(mask))
        assert near(out, op("softmax", x, mask=mask))
        assert rows.softmax_gradient(cupy.asarray(x), cupy.asarray(g), out, cupy.asarray(mask))
        assert near(out, rule("softmax", "x", g, x, -1, mask), g)
    whole = cupy.asarray(random((64, 8, 257)))
    for view in (whole[::2], whole[:, 1:], whole.transpose(1, 0, 2), whole[..., ::2], whole[..., 1:]):
        out = cupy.empty(view.shape, np.float32)
        assert rows.softmax(view, out)
        assert near(out, op("softmax", view.get()))


@pytest.mark.parametrize("n", [64, 90, 4096, 6000])
def test_long_rows_have_the_bits_of_short_ones(cupy, n):
    chunks = -(-n // 4)
    lanes = 256 if chunks > 256 else 16
    short = Shape(4, lanes, -(-chunks // lanes), False, True)
    long = short._replace(held=0)
    x, g, weight = (cupy.asarray(a) for a in (random((9, n)), random((9, n), 1), random(n, 2)))
    results = []
    for shape in (short, long):
        made = [cupy.zeros((9, n), np.float32) for _ in range(5)]
        assert rows.softmax(x, made[0], shape=shape)
        assert rows.softmax(x, made[1], log=True, shape=shape)
        assert rows.softmax_gradient(x, g, made[2], shape=shape)
        assert rows.norm(x, weight, weight, made[3], 1e-5, True, shape)
        assert rows.norm_gradient(x, weight, g, made[4], 1e-5, True, shape)
        results.append([a.get() for a in made])
    for a, b in zip(*results, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("n", [777, 768])
def test_every_run_has_the_same_bits(cupy, n):
    x, g = cupy.asarray(random((500, n))), cupy.asarray(random((500, n), 1))
    found = set()
    for _ in range(5):
        out, sums = cupy.empty_like(x), cupy.empty(n, np.float32)
        assert rows.softmax_gradient(x, g, out)
        assert rows.norm_weight_gradient(x, g, sums, 1e-5, True)
        found.add(out.get().tobytes() + sums.get().tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("name", [None, "mxfp8", "nvfp4"])
def test_ops_and_their_gradients_take_one_launch_each(name):
    x, weight = random((3, 5, 64)), random(64, 1)
    calls = {
        "softmax": lambda x, w: aq.softmax(x),
        "log_softmax": lambda x, w: aq.log_softmax(x),
        "layer_norm": lambda x, w: aq.layer_norm(x, w, w),
        "rms_norm": lambda x, w: aq.rms_norm(x, w),
    }
    for call in calls.values():
        found = []
        for device in ("cpu", "cuda"):
            a = aq.tensor(x, device=device)
            a = a if name is None else a.quantize(name).dequantize()
            a.requires_grad = True
            w = aq.Parameter(aq.tensor(weight, device=device))
            before = launch.launches
            y = call(a, w)
            assert launch.launches - before == (device == "cuda")
            y.backward(aq.tensor(random(x.shape, 2), device=device))
            found.append([y.numpy(), a.grad.numpy(), None if w.grad is None else w.grad.numpy()])
        for here, there in zip(*found, strict=True):
            assert here is None or np.allclose(here, there, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (64, 4096), (2, 3, 64)])
@pytest.mark.parametrize("name", [None, "mxfp8", "mxfp4", "nvfp4"])
def test_dropout_drops_what_the_cpu_drops(shape, name):
    x = aq.tensor(random(shape), device="cpu")
    x = x if name is None else x.quantize(name)
    here = aq.dropout(x, 0.3, rng=Generator(5))
    there = aq.dropout(x.to("cuda"), 0.3, rng=Generator(5))
    assert here.tensor_type == there.tensor_type
    assert np.array_equal(here.numpy() if name is None else here.dequantize().numpy(),
                          there.numpy() if name is None else there.dequantize().numpy())  # fmt: skip


def test_a_key_on_the_device_draws_anew(cupy):
    from autoq.kernels.cuda.dropout import dropout

    x, key = cupy.ones((4, 100), np.float32), cupy.zeros(4, np.uint32)
    found = []
    for stream in (1, 1, 2):
        key[2] = stream
        out = cupy.empty_like(x)
        assert dropout(x, out, 0.5, key)
        wanted = cupy.empty_like(x)
        assert dropout(x, wanted, 0.5, Draw(0, stream))
        assert cupy.array_equal(out, wanted)
        found.append(out.get().tobytes())
    assert found[0] == found[1] != found[2]
