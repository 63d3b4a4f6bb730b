"""What a replay does before and after its graph: arguments that lie alike or otherwise, and results."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.captured_arguments import Arguments
from autoq.captured_memory import STEPS, Uploads
from autoq.errors import ArgumentError, DeviceError

DEVICE = os.environ.get("AUTOQ_TEST_DEVICE", "cpu")
pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU, or AUTOQ_TEST_DEVICE=standin")

if DEVICE == "standin":
    from tests.capture import graphs

    graphs.install()


def on_gpu(*shape: int, seed: int = 0) -> aq.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return aq.tensor(values, device="cuda")


def recorded(step: Callable[..., Any], *args: Any) -> Any:
    """A step after its warm-up and its recording call."""
    captured = aq.capture(step)
    for _ in range(2):
        captured(*args)
    return captured


MADE: dict[str, Callable[[int], aq.Tensor]] = {
    "float32": lambda seed: on_gpu(4, 4, seed=seed),
    "without axes": lambda seed: on_gpu(4, seed=seed).sum(),
    "int64": lambda seed: aq.argmax(on_gpu(4, 8, seed=seed), axis=1),
    "mxfp8": lambda seed: on_gpu(4, 64, seed=seed).quantize("mxfp8"),
    "nvfp4": lambda seed: (on_gpu(4, 64, seed=seed) * 10.0**seed).quantize("nvfp4"),
}


@pytest.mark.parametrize("kind", list(MADE))
def test_arguments_that_lie_alike_are_looked_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = recorded(lambda x, factor: x.dequantize() * 2, MADE[kind](0), 0.5)
    monkeypatch.setattr(Arguments, "_copy", lambda self, name, x, held: pytest.fail(f"{name} again"))
    for seed in (1, 2, 1):
        x = MADE[kind](seed)
        assert step(x, 0.5).numpy().tobytes() == (x.dequantize() * 2).numpy().tobytes()


@pytest.mark.parametrize(
    "otherwise",
    [
        lambda x: x.mT,
        lambda x: on_gpu(8, 8, seed=3)[::2, ::2],
        lambda x: on_gpu(8, 4, seed=3)[4:],
        lambda x: aq.broadcast_to(on_gpu(4, seed=3), (4, 4)),
        lambda x: x.numpy(),
        lambda x: np.asfortranarray(x.numpy()),
    ],
)
@pytest.mark.parametrize("first_as_well", [False, True])
def test_arguments_may_lie_otherwise(otherwise: Callable[[Any], Any], first_as_well: bool) -> None:
    x = on_gpu(4, 4)
    first, second = (otherwise(x), x) if first_as_well else (x, otherwise(x))
    step = aq.capture(lambda x: x + 1.0, device="cuda")
    for given in (first, first, second, first, second):
        expected = (aq.tensor(given).numpy() if isinstance(given, np.ndarray) else given.numpy()) + 1.0
        assert step(given).numpy().tobytes() == expected.tobytes()


def test_an_argument_that_lies_alike_on_another_gpu_is_refused() -> None:
    if "cuda:1" not in aq.__array_namespace_info__().devices():
        return  # one GPU
    for x in (on_gpu(4, 32), on_gpu(4, 32).quantize("mxfp8")):
        step = recorded(lambda x: x.dequantize(), x)
        with pytest.raises(DeviceError, match="on cuda got x on cuda:1"):
            step(x.to("cuda:1"))


def packed_rows(seed: int) -> Any:
    return on_gpu(8, 64, seed=seed).quantize("mxfp8")


def test_packed_arguments_may_be_cut_out_of_others() -> None:
    step = recorded(lambda q: q.dequantize(), packed_rows(0)[:4])
    for q in (packed_rows(1)[4:], packed_rows(2)[::2], packed_rows(3)[:4]):
        assert step(q).numpy().tobytes() == q.numpy().tobytes()


def test_packed_arguments_with_their_axes_in_another_order_are_refused() -> None:
    straight = on_gpu(4, 4, 32).quantize("mxfp8")
    turned = straight.permute_dims(1, 0, 2)
    for first, other in ((straight, turned), (turned, straight)):
        step = recorded(lambda q: q.dequantize(), first)
        with pytest.raises(ArgumentError, match=r"q with its axes in the order \(., ., 2\) in memory"):
            step(other)
        assert step(first).numpy().tobytes() == first.numpy().tobytes()


def test_a_nest_in_the_place_of_a_tensor_is_named() -> None:
    step = recorded(lambda x, labels: x + labels, on_gpu(4), on_gpu(4))
    for nest in ([on_gpu(4)], {}, ()):
        with pytest.raises(ArgumentError, match="what it got in its first call: x, labels"):
            step(on_gpu(4), nest)


def test_results_are_changed_apart() -> None:
    step, x = recorded(lambda x: x * 2, on_gpu(4)), on_gpu(4)
    w = aq.Parameter(on_gpu(4, seed=1))
    first, second = step(x), step(x)
    product = (first * w).sum()
    second += 1.0
    product.backward()  # which reads the first result, not the second
    assert w.grad.numpy().tobytes() == (x * 2).numpy().tobytes()


def test_results_of_all_kinds_are_as_the_step_returned_them() -> None:
    def step(x: Any) -> dict[str, Any]:
        return {"turned": x.mT, "packed": x.quantize("mxfp8"), "sum": x.sum(), "rows": len(x), "none": None}

    captured = recorded(step, on_gpu(4, 32))
    for seed in (1, 2):
        x = on_gpu(4, 32, seed=seed)
        found, expected = captured(x), step(x)
        for name in ("turned", "packed", "sum"):
            assert found[name].dtype == expected[name].dtype
            assert found[name].numpy().tobytes() == expected[name].numpy().tobytes()
        assert (found["rows"], found["none"]) == (4, None)


class Late:
    """A stream whose copies run later: when an event is waited for, or when the device gets to them."""

    ptr = 1

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int]] = []
        self.done, self.read = 0, b""
        runtime = SimpleNamespace(memcpyAsync=lambda to, at, size, *rest: self.waiting.append((at, size)))
        self.cuda = SimpleNamespace(Event=self.event, runtime=runtime, alloc_pinned_memory=bytearray)

    def run(self, count: int) -> None:
        for address, size in self.waiting[self.done : self.done + count]:
            self.read += ctypes.string_at(address, size)
        self.done = min(self.done + count, len(self.waiting))

    def event(self, **options: Any) -> Any:
        mark = [0]
        return SimpleNamespace(
            record=lambda stream: mark.__setitem__(0, len(self.waiting)),
            synchronize=lambda: self.run(max(mark[0] - self.done, 0)),
        )


@pytest.mark.parametrize("ahead", [0, 1, 2, 5])
def test_no_host_value_is_overwritten_before_it_was_copied(ahead: int) -> None:
    late, rng = Late(), np.random.default_rng(0)
    hosts = [np.zeros(8, np.uint8) for _ in range(2)]
    device = SimpleNamespace(data=SimpleNamespace(ptr=0))
    uploads, written = Uploads(late, [(device, host) for host in hosts]), b""
    for _ in range(5 * STEPS):
        for host in hosts:
            host[...] = rng.integers(0, 256, 8)
            written += host.tobytes()
        uploads.start(late)
        late.run(int(rng.integers(0, ahead + 1)))
    late.run(len(late.waiting))
    assert late.read == written
