"""Captured steps on a GPU, real or stood in for: the results of eager steps, and clear errors."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, CaptureError, DeviceError, DTypeError, GradientError, ShapeError
from autoq.recording import recording

DEVICE = os.environ.get("AUTOQ_TEST_DEVICE", "cpu")
pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU, or AUTOQ_TEST_DEVICE=standin")

if DEVICE == "standin":
    from tests.capture import graphs

    graphs.install()

Step = Callable[..., Any]


def on_gpu(values: Any, dtype: Any = np.float32) -> aq.Tensor:
    return aq.tensor(np.asarray(values, dtype), device="cuda")


def batches(count: int, shape: tuple[int, ...] = (4, 32)) -> list[aq.Tensor]:
    rng = np.random.default_rng(0)
    return [on_gpu(rng.standard_normal(shape)) for _ in range(count)]


class Descent:
    """A weight and a step of plain descent on it, in place."""

    def __init__(self, width: int = 32) -> None:
        self.w = aq.Parameter(on_gpu(np.random.default_rng(1).standard_normal((width, width)) * 0.1))

    def step(self, x: aq.Tensor) -> aq.Tensor:
        loss = ((x @ self.w).tanh() ** 2).mean()
        loss.backward()
        self.update()
        self.w.grad = None
        return loss

    def update(self, rate: Any = 0.5) -> None:
        with aq.no_grad():
            self.w -= self.w.grad * rate


def losses(step: Step, inputs: list[Any]) -> list[float]:
    return [step(x).item() for x in inputs]


def test_captured_losses_and_weights_are_the_eager_ones() -> None:
    eager, captured = Descent(), Descent()
    step = aq.capture(captured.step)
    assert losses(eager.step, batches(6)) == losses(step, batches(6))
    assert np.array_equal(eager.w.numpy(), captured.w.numpy())
    assert step.replays == 5


def test_captured_with_packed_signal_is_the_eager_one() -> None:
    eager, captured = Descent(), Descent()
    inputs = [x.quantize(aq.mxfp8) for x in batches(5)]
    assert losses(eager.step, inputs) == losses(aq.capture(captured.step), inputs)


def test_quantizing_within_the_step() -> None:
    eager, captured = Descent(), Descent()

    def quantized(run: Descent) -> Step:
        return lambda x: run.step(x.quantize(aq.nvfp4))

    assert losses(quantized(eager), batches(5)) == losses(aq.capture(quantized(captured)), batches(5))


def test_numpy_batches_are_copied_to_the_device() -> None:
    eager, captured = Descent(), Descent()
    step = aq.capture(captured.step, device="cuda")
    arrays = [x.numpy() for x in batches(5)]
    assert losses(eager.step, batches(5)) == losses(step, arrays)


def test_packed_batches_of_the_cpu_are_copied_to_the_device() -> None:
    step = aq.capture(lambda q: q.dequantize() * 2, device="cuda")
    for x in batches(4):
        packed = aq.QTensor.quantize(x.numpy(), aq.nvfp4)
        assert np.array_equal(step(packed).numpy(), packed.dequantize() * 2)


def test_nests_of_arguments() -> None:
    eager, captured = Descent(), Descent()

    def nested(run: Descent) -> Step:
        return lambda batch, scale=1.0: run.step(batch["x"][0] * scale)

    step = aq.capture(nested(captured))
    found = [step({"x": [x]}, scale=0.5).item() for x in batches(4)]
    assert found == [nested(eager)({"x": [x]}, scale=0.5).item() for x in batches(4)]


def test_returned_tensors_are_copies() -> None:
    step = aq.capture(lambda x: {"twice": x * 2, "note": "as it was"})
    results = [step(x) for x in batches(4)]
    for x, result in zip(batches(4), results, strict=True):
        assert np.array_equal(result["twice"].numpy(), x.numpy() * 2)
    assert results[3]["note"] == "as it was"


def test_returned_tensors_have_no_tape() -> None:
    run = Descent()
    step = aq.capture(lambda x: (x @ run.w).sum())
    for x in batches(3):
        assert not step(x).requires_grad


def test_several_warm_up_calls() -> None:
    eager, captured = Descent(), Descent()
    step = aq.capture(captured.step, warmup=3)
    assert losses(eager.step, batches(6)) == losses(step, batches(6))
    assert step.replays == 3


def test_reset_records_anew() -> None:
    run = Descent()
    step = aq.capture(run.step)
    losses(step, batches(3))
    step.reset()
    assert step.replays == 0
    step(on_gpu(np.ones((2, 32))))
    step(on_gpu(np.ones((2, 32))))
    assert step.replays == 1


def test_reset_frees_the_graph_at_once() -> None:
    rng = aq.Generator(0)
    step = aq.capture(lambda x: x.quantize(aq.mxfp4, rounding="stochastic", rng=rng).dequantize())
    for x in batches(3):
        step(x)
    graph, alone = step._graph.graph, object()
    gc.disable()
    try:
        step.reset()
        assert sys.getrefcount(graph) == sys.getrefcount(alone)  # nothing but this function holds it
    finally:
        gc.enable()


# What the host computes anew for each step


def test_followed_numbers_go_on() -> None:
    eager, captured = Descent(), Descent()

    def decaying(run: Descent) -> Step:
        count = [0]

        def rate() -> np.ndarray:
            count[0] += 1
            return np.asarray(0.5 / count[0], np.float32)

        def step(x: aq.Tensor) -> aq.Tensor:
            made = recording()
            value = on_gpu(rate()) if made is None else aq.Tensor.__new__(aq.AutodiffTensor)
            if made is not None:
                aq.Tensor.__init__(value, made.follow(rate), aq.TensorType(aq.float32))
            loss = ((x @ run.w).tanh() ** 2).mean()
            loss.backward()
            run.update(value)
            run.w.grad = None
            return loss

        return step

    assert losses(decaying(eager), batches(7)) == losses(aq.capture(decaying(captured)), batches(7))


def test_functions_are_called_each_time() -> None:
    calls: list[int] = []

    def step(x: aq.Tensor) -> aq.Tensor:
        made = recording()
        if made is not None:
            made.each_time(lambda: calls.append(1))
        return x + 1

    captured = aq.capture(step)
    for x in batches(5):
        captured(x)
    assert len(calls) == 4  # all but the warm-up


@pytest.mark.parametrize("array", [np.arange(32, dtype=np.float32), np.asarray(3.0, np.float32)])
def test_constants_from_the_host(array: np.ndarray) -> None:
    def step(x: aq.Tensor) -> aq.Tensor:
        made = recording()
        return x + (on_gpu(array) if made is None else aq.tensor(made.constant(array)))

    captured = aq.capture(step)
    for x in batches(4):
        assert np.array_equal(captured(x).numpy(), x.numpy() + array)


def test_a_draw_is_refused_as_a_number_on_the_host() -> None:
    rng = aq.Generator(0)
    captured = aq.capture(lambda x: x * float(rng.uniform(())))
    captured(on_gpu([1.0]))
    before = rng.state_dict()
    with pytest.raises(CaptureError, match="random numbers made on the host"):
        captured(on_gpu([1.0]))
    assert rng.state_dict() == before


def test_stochastic_rounding_draws_as_it_would() -> None:
    def rounding(rng: aq.Generator) -> Step:
        return lambda x: x.quantize(aq.mxfp4, rounding="stochastic", rng=rng).dequantize()

    eager, captured = aq.Generator(3), aq.Generator(3)
    one, other = rounding(eager), aq.capture(rounding(captured))
    (x,) = batches(1)
    found = [other(x).numpy() for _ in range(5)]
    assert all(np.array_equal(one(x).numpy(), y) for y in found)
    assert not np.array_equal(found[3], found[4])
    assert eager.state_dict() == captured.state_dict()


# Gradients


def test_accumulating_gradients_accumulate() -> None:
    def step(w: aq.Tensor) -> Step:
        def run(x: aq.Tensor) -> aq.Tensor:
            loss = (x * w).sum()
            loss.backward()
            return loss

        return run

    eager, captured = (aq.Parameter(on_gpu(np.ones((4, 32)))) for _ in range(2))
    one, other = step(eager), aq.capture(step(captured))
    for x in batches(5):
        one(x)
        other(x)
    assert np.array_equal(eager.grad.numpy(), captured.grad.numpy())


def test_update_outside_of_the_step() -> None:
    eager, captured = Descent(), Descent()

    def gradient(run: Descent) -> Step:
        def step(x: aq.Tensor) -> aq.Tensor:
            loss = ((x @ run.w).tanh() ** 2).mean()
            loss.backward()
            return loss

        return step

    one, other = gradient(eager), aq.capture(gradient(captured))
    found = []
    for run, step in ((eager, one), (captured, other)):
        mine = []
        for x in batches(5):
            mine.append(step(x).item())
            run.update()
            run.w.grad = None
        found.append(mine)
    assert found[0] == found[1]


def test_gradients_that_are_left_over_are_refused() -> None:
    run = Descent()
    step = aq.capture(run.step)
    losses(step, batches(3))
    (run.w * 2).sum().backward()
    with pytest.raises(CaptureError, match="gradient of the parameter .32, 32. float32"):
        step(batches(1)[0])
    run.w.grad = None
    step(batches(1)[0])


def test_backward_through_what_a_replay_changed_is_refused() -> None:
    run = Descent()
    step = aq.capture(run.step)
    losses(step, batches(3))
    loss = (batches(1)[0] @ run.w).sum() * (run.w**2).sum()
    step(batches(1)[0])
    with pytest.raises(GradientError, match="changed in place"):
        loss.backward()


# Errors


def recorded(step: Step, *args: Any, **kwargs: Any) -> Step:
    """A step after its warm-up and its recording call."""
    captured = aq.capture(step)
    captured(*args, **kwargs)
    captured(*args, **kwargs)
    return captured


def test_another_shape_is_named() -> None:
    step = recorded(lambda images, labels: images.sum() + labels, on_gpu(np.ones((4, 8))), on_gpu(1.0))
    with pytest.raises(ShapeError, match=r"images of shape \(3, 8\)") as error:
        step(on_gpu(np.ones((3, 8))), on_gpu(1.0))
    assert "(4, 8)" in error.value.allowed
    assert "drop_last" in error.value.remedy


@pytest.mark.parametrize("other", [np.float16, np.int32])
def test_another_dtype_is_named(other: Any) -> None:
    step = recorded(lambda x: x * 2, on_gpu([1.0]))
    with pytest.raises(DTypeError, match=f"x of type {np.dtype(other).name}"):
        step(on_gpu([1], other))


def test_packed_in_the_place_of_dense_is_named() -> None:
    x = on_gpu(np.ones((2, 32)))
    step = recorded(lambda x: x * 2, x)
    with pytest.raises(DTypeError, match="x of type mxfp8"):
        step(x.quantize(aq.mxfp8))


def test_another_device_is_named() -> None:
    step = recorded(lambda x: x * 2, on_gpu([1.0]))
    with pytest.raises(DeviceError, match="on cuda got x on cpu"):
        step(aq.tensor([1.0], device="cpu"))


def test_another_python_value_is_named() -> None:
    step = recorded(lambda x, scale: x * scale, on_gpu([1.0]), 2.0)
    with pytest.raises(ArgumentError, match=r"scale=3\.0"):
        step(on_gpu([1.0]), 3.0)


def test_another_structure_is_named() -> None:
    step = recorded(lambda pair: pair[0], [on_gpu([1.0]), on_gpu([2.0])])
    with pytest.raises(ArgumentError, match=r"pair\[0\]"):
        step([on_gpu([1.0])])


def test_tracked_arguments_are_refused() -> None:
    x = on_gpu([1.0])
    x.requires_grad = True
    with pytest.raises(ArgumentError, match="computed by mul"):
        aq.capture(lambda x: x + 1)(x * 2)


@pytest.mark.parametrize(
    "read",
    [lambda x: x.sum().item(), lambda x: float(x.sum()), lambda x: x.numpy(), lambda x: bool((x > 0).all())],
)
def test_reading_a_value_is_refused_and_leaves_everything_as_it_was(read: Any) -> None:
    run = Descent()

    def step(x: aq.Tensor) -> aq.Tensor:
        loss = run.step(x)
        if recording() is not None:
            read(x)
        return loss

    captured, x = aq.capture(step), batches(1)[0]
    captured(x)
    before, version = run.w.numpy(), run.w.value
    with pytest.raises(CaptureError) as error:
        captured(x)
    assert "return" in error.value.remedy.lower()
    assert np.array_equal(run.w.numpy(), before)
    assert run.w.value is version
    assert run.w.grad is None
    run.step(x)  # still usable


def test_a_step_that_depends_on_what_python_counts_is_refused() -> None:
    calls: list[int] = []

    def step(x: aq.Tensor) -> aq.Tensor:
        calls.append(1)
        return x + 1 if len(calls) == 1 else x * 2

    captured = aq.capture(step)
    captured(on_gpu([1.0]))
    with pytest.raises(CaptureError, match=r"operation 0 was add\(.*\) and then mul"):
        captured(on_gpu([1.0]))


def test_a_number_that_changes_is_refused() -> None:
    rate = [0.5]
    captured = aq.capture(lambda x: x * rate[0])
    captured(on_gpu([1.0]))
    rate[0] = 0.25
    with pytest.raises(
        CaptureError, match=r"mul\(\(1,\) float32, 0.5\) and then mul\(\(1,\) float32, 0.25\)"
    ):
        captured(on_gpu([1.0]))


def test_indices_that_change_are_refused() -> None:
    places = [np.asarray([0, 2])]
    captured = aq.capture(lambda x: aq.take(x, places[0], axis=0))
    captured(on_gpu([1.0, 2.0, 3.0]))
    places[0] = np.asarray([1, 2])
    with pytest.raises(CaptureError, match="differs from its warm-up: its operation 0 was take"):
        captured(on_gpu([1.0, 2.0, 3.0]))


def test_replaced_parameters_are_refused_until_reset() -> None:
    run = Descent()
    step = aq.capture(run.step)
    losses(step, batches(3))
    with aq.no_grad():
        run.w.assign(on_gpu(np.zeros((32, 32))))
    with pytest.raises(CaptureError, match="the parameter .32, 32. float32, b of matmul, was") as error:
        step(batches(1)[0])
    assert "reset()" in error.value.remedy
    step.reset()
    assert losses(step, batches(3)) == [0.0, 0.0, 0.0]


def test_errors_of_the_step_itself_come_through() -> None:
    def step(x: aq.Tensor) -> aq.Tensor:
        if recording() is not None:
            raise ZeroDivisionError("of the step")
        return x + 1

    captured = aq.capture(step)
    captured(on_gpu([1.0]))
    with pytest.raises(ZeroDivisionError, match="of the step"):
        captured(on_gpu([1.0]))
    assert recording() is None


@pytest.mark.skipif(DEVICE != "standin", reason="looks at what the stand-in notes")
def test_arguments_are_written_when_the_replay_before_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    step, x = aq.capture(lambda x: x * 2), on_gpu([1.0])
    step(x)
    step(x)
    noted: list[str] = []
    wait, copied = graphs.Stream.wait_event, type(step._graph.arguments).take
    monkeypatch.setattr(
        graphs.Stream, "wait_event", lambda self, event: (noted.append("wait"), wait(self, event))
    )
    monkeypatch.setattr(
        type(step._graph.arguments), "take", lambda self, *rest: (noted.append("take"), copied(self, *rest))
    )
    with graphs.Stream(non_blocking=True):
        assert step(on_gpu([3.0])).numpy().tolist() == [6.0]
    assert noted == ["wait", "take"]


@pytest.mark.skipif(DEVICE != "standin", reason="looks at what the stand-in notes")
def test_what_the_host_writes_before_a_replay_is_not_memory_of_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Descent()
    optimizer = aq.optim.SGD([model.w], lr=0.5)
    monkeypatch.setattr(model, "update", lambda: optimizer.step())
    step = aq.capture(model.step)
    losses(step, batches(3))
    chunks = [graphs._address(chunk.device._array) for chunk in step._graph.recording.chunks]
    own = {graphs._address(array) for array in step._graph.graph.own}
    assert chunks
    assert not own & set(chunks)


def test_values_of_the_host_are_as_they_were_in_each_replay() -> None:
    def step(x: aq.Tensor) -> aq.Tensor:
        total = on_gpu([1.0, 2.0])
        total += x
        return total

    captured, x = aq.capture(step), on_gpu([1.0, 1.0])
    assert [captured(x).numpy().tolist() for _ in range(4)] == [[2.0, 3.0]] * 4
