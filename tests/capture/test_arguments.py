"""Arguments and results of captured steps: the same on every device, and held to those of the first call."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.captured_arguments import named
from autoq.errors import ArgumentError, CaptureError, DeviceError, DTypeError, ShapeError

DEVICE = os.environ.get("AUTOQ_TEST_DEVICE", "cpu")
gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU, or AUTOQ_TEST_DEVICE=standin")
every = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])

if DEVICE == "standin":
    from tests.capture import graphs

    graphs.install()


@pytest.fixture(autouse=True)
def _on_the_cpu_by_default() -> Iterator[None]:
    with aq.default_device("cpu"):
        yield


def array(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def on_gpu(*shape: int) -> aq.Tensor:
    return aq.tensor(array(*shape), device="cuda")


# On every device


@every
def test_arrays_are_tensors_of_the_device_in_every_call(device: str) -> None:
    got: list[Any] = []

    def step(x: Any, nest: Any, packed: Any) -> Any:
        got.extend((x, nest["y"][0], packed))
        return x.quantize(aq.mxfp8).dequantize() + nest["y"][0] + packed

    x, y = array(4, 32), array(4, 32, dtype=np.float64)
    packed = aq.QTensor.quantize(x, aq.mxfp4)
    captured = aq.capture(step, device=device)
    expected = (aq.tensor(x).quantize(aq.mxfp8).dequantize() + aq.tensor(y) + aq.tensor(packed)).numpy()
    for _ in range(3):
        result = captured(x, {"y": [y]}, packed)
        assert result.device == device
        assert result.numpy().tobytes() == expected.tobytes()
    assert all(isinstance(t, aq.Tensor) and t.device == device for t in got)
    assert [str(t.dtype.name) for t in got[:3]] == ["float32", "float64", "mxfp4"]


@every
def test_a_step_changes_no_array_and_no_tensor_that_it_was_given(device: str) -> None:
    def step(x: Any, y: Any) -> Any:
        x += 1.0
        y += 1.0
        return x + y

    captured, a, t = aq.capture(step), array(3), aq.tensor(array(3), device=device)
    for _ in range(3):
        assert captured(a, t).tolist() == (2 * array(3) + 2).tolist()
        assert a.tolist() == t.tolist() == array(3).tolist()


@every
def test_results_are_copies_without_a_tape(device: str) -> None:
    w = aq.Parameter(array(4), device=device)

    def step(x: Any) -> Any:
        with aq.no_grad():
            w.assign(w + x)
        return w, {"doubled": (w * 2.0,)}, 3

    captured = aq.capture(step)
    results = [captured(aq.ones(4, device=device)) for _ in range(3)]
    for number, (same, nest, plain) in enumerate(results):
        (doubled,) = nest["doubled"]
        assert plain == 3
        assert not same.requires_grad
        assert not doubled.requires_grad
        np.testing.assert_allclose(same.numpy(), array(4) + number + 1, rtol=1e-6)
        np.testing.assert_allclose(doubled.numpy(), 2 * same.numpy())


@every
def test_a_result_that_is_changed_is_no_change_of_what_was_returned(device: str) -> None:
    w = aq.Parameter(array(4), device=device)
    captured = aq.capture(lambda x: w)
    loss = (w * w).sum()
    result = captured(aq.ones(4, device=device))
    result += 1.0
    loss.backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * array(4), rtol=1e-6)


@every
def test_tracked_arguments_are_refused(device: str) -> None:
    w = aq.Parameter(array(4), device=device)
    with pytest.raises(ArgumentError, match="computed by mul"):
        aq.capture(lambda x: x)(w * 2.0)


@gpu
def test_a_tensor_of_a_gpu_is_refused_on_the_cpu_that_was_asked_for() -> None:
    with pytest.raises(DeviceError, match="on cpu got x on cuda"):
        aq.capture(lambda x: x, device="cpu")(on_gpu(4))


# Steps that work on a GPU although nothing says so


def training() -> tuple[aq.Parameter, Callable[..., Any]]:
    """A parameter on the GPU, and a step on data of a closure."""
    w, x = aq.Parameter(on_gpu(32, 4)), on_gpu(8, 32)
    optimizer = aq.optim.SGD([w], lr=0.1)

    def step(*ignored: Any) -> Any:
        loss = ((x @ w) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return w, step


@gpu
@pytest.mark.parametrize("arguments", [(), (np.zeros(3),), (0.5,), ("name", [1, 2])])
def test_work_on_a_gpu_that_nothing_announces_is_refused_before_it_is_done(arguments: Any) -> None:
    w, step = training()
    before, captured = w.numpy(), aq.capture(step)
    for _ in range(2):
        with pytest.raises(CaptureError, match=r"works on cuda \(matmul\)") as caught:
            captured(*arguments)
        assert 'device="cuda"' in caught.value.remedy
    assert w.numpy().tobytes() == before.tobytes()
    assert w.grad is None


@gpu
@pytest.mark.parametrize("how", ["device", "default", "argument"])
def test_each_remedy_that_it_names_records(how: str) -> None:
    _, step = training()
    _, eager = training()
    captured = aq.capture(step, device="cuda" if how == "device" else None)
    arguments = [on_gpu(1)] if how == "argument" else []
    with aq.default_device("cuda" if how == "default" else "cpu"):
        losses = [captured(*arguments).item() for _ in range(4)]
        assert losses == [eager().item() for _ in range(4)]
    assert captured.replays == 3


@gpu
@pytest.mark.parametrize(
    "work",
    [
        lambda w: aq.ones(3, device="cuda") * 2.0,
        lambda w: aq.ones(3).to("cuda"),
        lambda w: w.quantize(aq.mxfp8),
        lambda w: w.__iadd__(1.0),
        lambda w: w.assign(aq.zeros((2, 32), device="cuda")),
        lambda w: w[0],
        lambda w: aq.concat([w, w]),
        lambda w: aq.where(w > 0, 1.0, 0.0),
    ],
)
def test_every_kind_of_operation_there_is_noticed(work: Any) -> None:
    w = on_gpu(2, 32)
    with pytest.raises(CaptureError, match="works on cuda"):
        aq.capture(lambda: work(w))()


@gpu
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_an_update_there_is_noticed_without_an_operation(kind: str) -> None:
    w = aq.Parameter(on_gpu(4))
    w.grad = on_gpu(4)
    optimizer = getattr(aq.optim, kind)([w], lr=0.1)
    with pytest.raises(CaptureError, match="works on cuda"):
        aq.capture(optimizer.step)()
    assert w.numpy().tobytes() == on_gpu(4).numpy().tobytes()


@gpu
def test_a_model_that_moves_to_a_gpu_later_is_noticed() -> None:
    model = aq.nn.Linear(4, 2, rng=aq.Generator(0))
    captured = aq.capture(lambda: model(aq.ones((1, 4), device=model.weight.device)))
    assert captured().device == "cpu"
    model.to("cuda")
    with pytest.raises(CaptureError, match="works on cuda"):
        captured()


@gpu
def test_steps_on_the_cpu_go_on_where_a_gpu_is_in_use() -> None:
    on_gpu(2)
    captured, w = aq.capture(lambda x: (w * x).sum()), aq.tensor(array(4))
    assert [captured(array(4)).tolist() for _ in range(3)] == [(w * w).sum().tolist()] * 3
    assert captured.replays == 0


@gpu
def test_an_update_by_other_gradients_than_the_recorded_ones_is_refused() -> None:
    w = aq.Parameter(on_gpu(4))
    optimizer = aq.optim.SGD([w], lr=0.1)
    captured = aq.capture(optimizer.step, device="cuda")
    for _ in range(2):
        w.grad = on_gpu(4)
        captured()
    w.grad = on_gpu(4) * 2.0
    with pytest.raises(CaptureError, match="gradient of"):
        captured()


# From the second call on


def called(step: Any, *args: Any, warmup: int = 3, **kwargs: Any) -> Any:
    """A captured step after one call."""
    captured = aq.capture(step, warmup=warmup, device="cuda")
    captured(*args, **kwargs)
    return captured


def update(x: Any, lr: Any = 0.1) -> Any:
    return x.quantize(aq.mxfp8).dequantize() * lr


OTHERS = [
    (lambda: (on_gpu(2, 32), 0.2), ArgumentError, r"lr=0\.2"),
    (lambda: (on_gpu(2, 32), 1), ArgumentError, r"lr=1"),
    (lambda: (on_gpu(2, 32), on_gpu(1)), ArgumentError, r"lr=a tensor"),
    (lambda: (on_gpu(1, 32), 0.1), ShapeError, r"x of shape \(1, 32\)"),
    (lambda: (array(2, 32, dtype=np.float64), 0.1), DTypeError, r"x of type float64"),
    (lambda: (on_gpu(2, 32).quantize(aq.mxfp8), 0.1), DTypeError, r"x of type mxfp8"),
    (lambda: (aq.tensor(array(2, 32)), 0.1), DeviceError, r"got x on cpu"),
    (lambda: ("x", 0.1), DTypeError, r"x='x'"),
    (lambda: (on_gpu(2, 32),), ArgumentError, r"got x\."),
]


@gpu
@pytest.mark.parametrize("warmup", [1, 3])
@pytest.mark.parametrize(("others", "kind", "told"), OTHERS)
def test_an_argument_that_differs_is_named_in_the_second_call(
    others: Any, kind: Any, told: str, warmup: int
) -> None:
    captured = called(update, on_gpu(2, 32), 0.1, warmup=warmup)
    with pytest.raises(kind, match=told) as caught:
        captured(*others())
    assert "operation" not in str(caught.value)
    for _ in range(4):
        result = captured(array(2, 32), 0.1)
    assert captured.replays == 5 - warmup
    assert result.tolist() == update(on_gpu(2, 32)).tolist()


@gpu
def test_after_a_reset_arguments_may_differ() -> None:
    captured = called(update, on_gpu(2, 32), 0.1)
    captured.reset()
    assert captured(on_gpu(1, 32), 0.5).shape == (1, 32)


@gpu
def test_a_step_may_ask_for_gradients_of_its_arguments() -> None:
    def step(x: Any) -> Any:
        x.requires_grad = True
        (x * x).sum().backward()
        return x.grad

    captured = aq.capture(step)
    for number in range(4):
        x = on_gpu(4) + number
        np.testing.assert_allclose(captured(x).numpy(), 2 * x.numpy())


# Names


def test_arguments_are_named_after_their_parameters_and_others_by_number() -> None:
    def step(x: Any, y: Any) -> None: ...

    def several(x: Any, *others: Any, flag: bool = False) -> None: ...

    for function, names in (
        (step, ["x", "y", "argument 2", "argument 3"]),
        (several, ["x", "argument 1", "argument 2", "argument 3"]),
        (print, ["argument 0", "argument 1", "argument 2", "argument 3"]),
    ):
        found = named(inspect.signature(function), (1, 2, 3, 4), {})
        assert [name for name, _ in found] == names


@gpu
def test_of_many_names_those_about_the_difference_are_told() -> None:
    captured = called(lambda x, y: x, on_gpu(2), np.arange(64))
    with pytest.raises(ArgumentError) as caught:
        captured(on_gpu(2), list(range(64)))
    assert "got x, y[0], y[1], y[2], ... (65 in all)." in caught.value.given
    assert caught.value.allowed.endswith("first call: x, y")
    assert "numbers as one array" in caught.value.remedy
    many = {f"k{number}": number for number in range(9)}
    captured = called(lambda **options: None, **many)
    with pytest.raises(ArgumentError, match=r"got \.\.\., k6, k7, k8, last \(10 in all\)"):
        captured(**many, last=1)
    with pytest.raises(ArgumentError, match=r"got \.\.\., k4, k5, k6, k7 \(8 in all\)"):
        captured(**{key: value for key, value in many.items() if key != "k8"})


@gpu
def test_dicts_and_keywords_may_come_in_another_order() -> None:
    captured = aq.capture(lambda batch, *, scale, shift: batch["a"] - batch["b"] * scale + shift)
    a, b = on_gpu(4), on_gpu(4) * 3.0
    expected = (a - b * 2.0 + 1.0).tolist()
    for _ in range(3):
        assert captured({"a": a, "b": b}, scale=2.0, shift=1.0).tolist() == expected
        assert captured({"b": b, "a": a}, shift=1.0, scale=2.0).tolist() == expected
    with pytest.raises(ArgumentError, match=r"got batch\['a'\], batch\['c'\], scale, shift"):
        captured({"a": a, "c": b}, scale=2.0, shift=1.0)


@gpu
def test_arrays_of_the_other_byte_order_are_taken_in_every_call() -> None:
    captured = aq.capture(lambda x: x * 2.0, device="cuda")
    for number in range(4):
        x = (array(3) + number).astype(">f4")
        assert captured(x).tolist() == (x * 2.0).tolist()


@gpu
def test_minus_zero_is_another_number() -> None:
    captured = called(lambda x, zero: 1.0 / (x * zero), aq.ones(1, device="cuda"), 0.0)
    with pytest.raises(ArgumentError, match=r"zero=-0\.0"):
        captured(aq.ones(1, device="cuda"), -0.0)


@gpu
def test_memory_that_may_be_pinned_is_not_copied_from_later(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = aq.capture(lambda x: x * 2.0, device="cuda")
    pinned = np.frombuffer(bytearray(16), np.float32)
    for number in range(4):
        pinned[...] = number
        assert captured(pinned).tolist() == [2.0 * number] * 4
        assert captured(pinned[::-1]).tolist() == [2.0 * number] * 4
    if DEVICE != "standin":
        return
    given: list[Any] = []
    array_class = type(on_gpu(1).value)
    monkeypatch.setattr(array_class, "set", lambda self, host, stream=None: given.append(host))
    captured(pinned)
    captured(array(4))
    assert not np.shares_memory(given[0], pinned)
    assert len(given) == 2


class Batch:
    """A result that isn't walked through."""

    def __init__(self, loss: Any) -> None:
        self.loss = loss


@every
@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (lambda x: Batch(x.sum()), "Batch"),
        (lambda x: [frozenset([x.sum()])], "frozenset"),
        (lambda x: (x + number for number in range(2)), "generator"),
        (lambda x: {"all": map(abs, [x])}, "map"),
    ],
)
def test_results_that_hide_tensors_are_refused(step: Any, kind: str, device: str) -> None:
    captured = aq.capture(step, device=device)
    for _ in range(2):
        with pytest.raises(CaptureError, match=f"returned a {kind} with tensors in it") as caught:
            captured(array(3))
        assert "tuple or a dict" in caught.value.remedy


@every
def test_results_of_other_kinds_are_returned_as_they_are(device: str) -> None:
    others = [None, 3, "name", aq.mxfp8, {1, 2}, Batch(0.5)]
    captured = aq.capture(lambda x: [x.sum(), *others], device=device)
    for _ in range(3):
        assert captured(array(3))[1:] == others
