"""Training on a device: no value comes back unasked, and bits, gradients and memory are as on the CPU."""

from __future__ import annotations

import contextlib
import copy
import os
from typing import Any

import numpy as np
import pytest

import autoq as aq
from tests.device import standin_device

STANDIN = os.environ["AUTOQ_TEST_DEVICE"] == "standin"


def no_reads() -> Any:
    """A block in which waiting for a value of the device is an error, as far as CuPy notices it."""
    if STANDIN:
        return standin_device.no_reads()
    import cupyx

    return cupyx.allow_synchronize(False)


SIGNALS = [None, "mxfp8", "mxfp4", "nvfp4", "int8", "fp8_e4m3", "fp8_block"]


def data(device: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = aq.tensor(rng.standard_normal((8, 32)).astype(np.float32), device=device)
    w = aq.tensor(rng.standard_normal((32, 32)).astype(np.float32), device=device, requires_grad=True)
    return x, w


def loss(x: Any, w: Any, signal: str | None) -> Any:
    if signal is not None:
        x = x.quantize(signal)
    h = x @ w
    h = aq.maximum(h * 0.5 + 1.0, 0.0)
    h = h.reshape(4, 2, 32)[:, 1].T.T
    return (h * h).sum()


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_step_reads_nothing_back(signal: str | None) -> None:
    x, w = data("cuda")
    loss(x, w, signal).backward()  # kernels are compiled and loaded once
    with no_reads():
        for _ in range(2):
            loss(x, w, signal).backward()
        with aq.no_grad():
            w -= 0.1 * w.grad
    assert w.grad.device == "cuda"


@pytest.mark.parametrize("signal", SIGNALS)
def test_losses_and_gradients_are_those_of_the_cpu(signal: str | None) -> None:
    found = []
    for device in ("cpu", "cuda"):
        x, w = data(device)
        value = loss(x, w, signal)
        value.backward()
        found.append((value.item(), w.grad.numpy()))
    # A GPU adds up products in another order.
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6 if STANDIN else 1e-5)
    rounding = 0.0 if STANDIN else 1e-6 * np.abs(found[0][1]).max()
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6, atol=rounding)


@pytest.mark.parametrize("name", sorted(aq.CATALOG))
def test_packed_tensors_move_and_change_without_a_read(name: str) -> None:
    scheme = aq.scheme(name).replace(rounding="nearest")
    x = np.random.default_rng(1).standard_normal((4, 3, 256)).astype(np.float32)
    results = []
    for device in ("cpu", "cuda"):
        q = aq.tensor(x, device=device).quantize(scheme).qtensor

        def moves(q: Any) -> list[Any]:
            return [
                q.T,
                q[1:, ::-1],
                q[[3, 0]],
                q.reshape(12, 256),
                aq.storage.move.concat([q, q], 0)[0],
                aq.storage.move.pad(q, ((1, 1), (0, 0), (0, 0)))[0],
                aq.storage.move.flip(q, 0)[0],
                aq.storage.update.updated(q, (0, slice(2)), 0.25),
            ]

        results.append(moves(q))
        if device == "cuda":
            with no_reads():
                moves(q)
    for on_cpu, on_gpu in zip(*results, strict=True):
        assert on_gpu.device == "cuda"
        assert on_gpu.same_bits(on_cpu)


def test_stochastic_casts_draw_what_the_cpu_draws() -> None:
    x = np.random.default_rng(2).standard_normal((4, 96)).astype(np.float32)
    for name in ("mxfp4", "nvfp4", "int4"):
        a, b = (
            aq.tensor(x, device=d).quantize(name, rounding="stochastic", rng=aq.Generator(3)).qtensor
            for d in ("cpu", "cuda")
        )
        assert a.same_bits(b)


def test_labels_and_indices_go_up_and_nothing_comes_back() -> None:
    table = aq.tensor(np.ones((5, 32), np.float32), requires_grad=True, device="cuda")
    places = aq.tensor([1, 2, 3], device="cuda")
    for block in (contextlib.nullcontext(), no_reads()):
        with block:
            y = table[np.array([0, 4, 4])] + table[places]
        assert y.device == "cuda"


def test_a_refused_value_is_named_with_its_place() -> None:
    x = np.ones((2, 64), np.float32)
    x[1, 40] = np.nan
    strict = aq.mxfp8.replace(nonfinite="raise")
    with pytest.raises(aq.errors.NonFiniteError, match=r"\(1, 40\)"):
        aq.tensor(x, device="cuda").quantize(strict)


@pytest.mark.skipif(not STANDIN, reason="the stand-in's memory can be made small")
def test_out_of_memory_says_how_much_and_training_goes_on() -> None:
    x, w = data("cuda")
    with standin_device.memory_limit(1000), pytest.raises(aq.errors.DeviceMemoryError) as caught:
        loss(x, w, None)
    assert isinstance(caught.value, MemoryError)
    assert "1,024 bytes" in caught.value.given
    assert "free" in caught.value.given
    value = loss(x, w, None)
    with standin_device.memory_limit(1000), pytest.raises(aq.errors.DeviceMemoryError, match="backward"):
        value.backward()
    with pytest.raises(aq.errors.GradientError, match="freed"):
        value.backward()
    w.grad = None
    loss(x, w, None).backward()
    assert w.grad is not None


def test_a_module_moves_and_its_parameters_stay_the_same_objects() -> None:
    model = aq.nn.Linear(32, 4, rng=aq.Generator(0)).to("cpu")
    weight = model.weight
    (model(aq.ones((2, 32), device="cpu")).sum()).backward()
    before = weight.numpy().copy()
    assert model.to("cuda") is model
    assert model.weight is weight
    assert weight.device == weight.grad.device == model.bias.device == "cuda"
    assert weight.numpy().tobytes() == before.tobytes()
    assert model(aq.ones((2, 32), device="cuda")).device == "cuda"
    state = model.state_dict()
    assert all(isinstance(value, np.ndarray) for value in state.values())
    model.load_state_dict(state)
    assert weight.device == "cuda"


NUMBERS = [aq.float32, aq.float16, aq.bfloat16, aq.float64, aq.int64, np.int8, np.uint16]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_entries_named_twice_are_added_to_twice_in_order(dtype: Any) -> None:
    index, values = np.array([3, 0, 3, 3, -1]), np.array([1, 2, 3, 4, 5])
    found = []
    for device in ("cpu", "cuda"):
        x = aq.tensor(np.arange(8).reshape(4, 2), device=device).astype(dtype)
        x = x.at[index, 1].add(aq.tensor(values, device=device).astype(dtype))
        found.append(x.numpy())
    assert found[0].tolist() == found[1].tolist()
    assert found[1][3].tolist() == [6, 20]


@pytest.mark.skipif(not STANDIN, reason="the stand-in's memory can be made small")
def test_what_allocates_outside_of_operations_says_how_much_too() -> None:
    x = aq.ones((64, 64))
    q, leaf = x.quantize(aq.mxfp8), aq.tensor(x.numpy(), requires_grad=True)
    model, norm = aq.nn.Linear(64, 64, rng=aq.Generator(0)), aq.nn.BatchNorm1d(64)
    norm(x)
    optimizers = [aq.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), aq.optim.AdamW(model, lr=0.1)]
    model(x).sum().backward()
    before = [p.numpy() for p in model.parameters()]
    for allocates in (
        lambda: aq.QTensor.quantize(x.value, aq.mxfp8),
        lambda: q.qtensor.dequantize(),
        lambda: q.numpy(),
        lambda: copy.deepcopy(x),
        lambda: copy.deepcopy(q),
        lambda: aq.from_dlpack(x.value, copy=True),
        lambda: aq.asarray(x, copy=True),
        lambda: aq.optim.clip_grad_norm(model.parameters(), 0.001),
        lambda: aq.optim.GradScaler().unscale_(optimizers[0]),
        lambda: norm(x),
        lambda: aq.hessian(lambda a: (a**3).sum())(leaf[0, :24]),
        *[optimizer.step for optimizer in optimizers],
    ):
        with standin_device.memory_limit(200), pytest.raises(aq.errors.DeviceMemoryError) as caught:
            allocates()
        assert "bytes" in caught.value.given
    for optimizer in optimizers:
        assert {slot.steps for slot in optimizer._flat()} == {0}
    assert all((p.numpy() == old).all() for p, old in zip(model.parameters(), before, strict=True))
    optimizers[0].step()
