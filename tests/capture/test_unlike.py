"""What differs from call to call of a captured step: it is followed, or an error tells."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.errors import ArgumentError, CaptureError

DEVICE = os.environ.get("AUTOQ_TEST_DEVICE", "cpu")
pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU, or AUTOQ_TEST_DEVICE=standin")

if DEVICE == "standin":
    from tests.capture import graphs

    graphs.install()


@pytest.fixture(autouse=True)
def on_the_gpu() -> Any:
    with aq.default_device("cuda"):
        yield


def line() -> aq.Tensor:
    return aq.tensor(np.arange(8, dtype=np.float32))


def written(index: Any, value: Any) -> aq.Tensor:
    y = aq.zeros((5,))
    y[index] = value
    return y


def backwards(x: aq.Tensor, number: int) -> aq.Tensor:
    w = aq.Parameter(np.ones(2, np.float32))
    (w * x[:2]).backward([float(number)] * 2)
    return w.grad


def clipped(x: aq.Tensor, number: int) -> aq.Tensor:
    w = aq.Parameter(np.ones(8, np.float32))
    (w * x).sum().backward()
    return aq.optim.clip_grad_norm([w], 1.0 + number)


CHANGES: dict[str, Callable[[aq.Tensor, int], Any]] = {
    "a slice": lambda x, n: x[n : n + 2],
    "a slice of one of several axes": lambda x, n: x.reshape(2, 4)[:, n : n + 1],
    "a step": lambda x, n: x[:: -1 if n else 1],
    "a slice that is added to": lambda x, n: x.at[n : n + 2].add(1.0),
    "a NumPy index": lambda x, n: x[np.int64(n)],
    "many indices": lambda x, n: x[np.full(200_000, n)][:4],
    "a NumPy axis": lambda x, n: x.reshape(2, 4).sum(axis=np.int64(n)),
    "a NumPy limit": lambda x, n: aq.clip(x, 0, np.float32(n)),
    "a written index": lambda x, n: written(n, 1.0) + x[:5],
    "a written number": lambda x, n: written(0, float(n)) + x[:5],
    "a written slice": lambda x, n: written(slice(n, n + 2), 1.0) + x[:5],
    "written numbers of the host": lambda x, n: written(slice(2), [1.0, n]) + x[:5],
    "a dtype of a result": lambda x, n: aq.add(x, x, out_dtype=(aq.float32, aq.float16)[n]),
    "a scheme": lambda x, n: x.quantize((aq.mxfp8, aq.mxfp4)[n]),
    "a gradient of the host": backwards,
    "a limit of a norm": clipped,
    "a result of NumPy": lambda x, n: (x * 1, np.array([n])),
    "a long result of NumPy": lambda x, n: (x * 1, np.full(5000, n)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_numbers_that_change_are_told(what: str) -> None:
    calls = iter(range(10))
    step = aq.capture(lambda x: CHANGES[what](x, next(calls)))
    step(line())
    with pytest.raises(CaptureError, match=r"and then|returned"):
        step(line())


@pytest.mark.parametrize("what", CHANGES)
def test_numbers_that_stay_are_no_matter(what: str) -> None:
    step = aq.capture(lambda x: CHANGES[what](x, 1))
    for _ in range(4):
        step(line())
    assert step.replays == 3


@pytest.mark.parametrize(
    "how", ["detach", "stop_gradient", "a copy", "written", "assigned", "a gradient", "returned"]
)
def test_a_parameter_that_is_replaced_is_told_however_the_step_takes_it(how: str) -> None:
    teacher, kept = aq.Parameter([1.0, 2.0]), aq.zeros((2,))

    def step(x: aq.Tensor) -> Any:
        if how == "detach":
            return x * teacher.detach()
        if how == "stop_gradient":
            return x * aq.stop_gradient(teacher)
        if how == "a copy":
            return x * aq.tensor(teacher)
        if how == "written":
            kept[...] = teacher.detach()
        elif how == "assigned":
            kept.assign(teacher.detach())
        elif how == "a gradient":
            w = aq.Parameter([1.0, 1.0])
            (w * x).backward(teacher)
            return w.grad
        else:
            return teacher
        return kept

    captured = aq.capture(step)
    x = aq.ones((2,))
    for _ in range(3):
        assert captured(x).numpy().tolist() == [1, 2]
    with aq.no_grad():
        teacher.assign([3.0, 4.0])
    with pytest.raises(CaptureError, match="was replaced"):
        captured(x)
    captured.reset()
    for _ in range(3):
        assert captured(x).numpy().tolist() == [3, 4]


def test_the_gradient_of_a_tensor_that_is_only_read_is_no_business_of_the_step() -> None:
    w = aq.Parameter([1.0, 2.0])
    step = aq.capture(lambda x: x * w.detach())
    for number in range(5):
        assert step(aq.ones((2,))).numpy().tolist() == [1, 2]
        w.grad = None if number % 2 else aq.ones((2,))


def test_a_gradient_of_a_tensor_that_is_only_read_may_be_forgotten_in_the_step() -> None:
    w = aq.Parameter([1.0, 2.0])

    @aq.capture
    def step(x: aq.Tensor) -> aq.Tensor:
        y = x * w.detach()
        w.grad = None
        return y

    for _ in range(4):
        w.grad = aq.ones((2,))
        assert step(aq.ones((2,))).numpy().tolist() == [1, 2]


def test_a_generator_that_the_step_makes_draws_the_same_in_each_call() -> None:
    root = aq.Generator(7)

    def step(x: aq.Tensor) -> Any:
        made, child = aq.Generator(3), root.spawn("noise")
        masks = [aq.nn.Dropout(0.5, rng=rng)(x) for rng in (made, child, made)]
        return *masks, x.quantize(aq.mxfp4, rounding="stochastic", rng=child).dequantize()

    captured, x = aq.capture(step), aq.tensor(np.linspace(0.1, 1, 64, dtype=np.float32))
    wanted = [y.numpy() for y in step(x)]
    for _ in range(5):
        for found, expected in zip(captured(x), wanted, strict=True):
            assert np.array_equal(found.numpy(), expected)
    assert not np.array_equal(wanted[0], wanted[2])


def test_a_gradient_whose_values_are_replaced_is_told() -> None:
    w = aq.Parameter([3.0, 4.0])

    @aq.capture
    def step(x: aq.Tensor) -> None:
        (w * x).sum().backward()

    for _ in range(4):
        step(aq.tensor([1.0, 2.0]))
    assert w.grad.numpy().tolist() == [4, 8]
    w.grad.assign([0.0, 0.0])
    with pytest.raises(CaptureError, match="gradient of the parameter"):
        step(aq.tensor([1.0, 2.0]))


def test_a_gradient_that_the_step_makes_anew_is_there_after_it_was_assigned_to() -> None:
    w = aq.Parameter([3.0, 4.0])

    @aq.capture
    def step(x: aq.Tensor) -> None:
        w.grad = None
        (w * x).sum().backward()

    for number in range(5):
        step(aq.tensor([1.0, float(number)]))
        assert w.grad.numpy().tolist() == [1, number]
        w.grad.assign([9.0, 9.0])


def test_a_parameter_that_was_passed_over_is_told_when_it_gets_a_gradient() -> None:
    w, idle = aq.Parameter([3.0]), aq.Parameter([5.0])
    optimizer = aq.optim.AdamW([w, idle], lr=0.1)

    @aq.capture
    def step(x: aq.Tensor) -> None:
        (w * x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        step(aq.ones((1,)))
    idle.grad = aq.ones((1,))
    with pytest.raises(CaptureError, match="gradient of the parameter"):
        step(aq.ones((1,)))
    idle.grad = None
    step(aq.ones((1,)))
    assert idle.item() == 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_may_set_a_gradient_before_it_uses_the_parameter(dtype: type) -> None:
    w = aq.Parameter(np.array([3.0, 4.0], dtype))
    optimizer = aq.optim.SGD([w], lr=0.5)

    @aq.capture
    def step(g: aq.Tensor) -> aq.Tensor:
        w.grad = g
        optimizer.step()
        optimizer.zero_grad()
        return w

    found = [step(aq.tensor(np.array([1.0, number], dtype))).numpy().tolist() for number in range(5)]
    assert found == [[2.5, 4], [2, 3.5], [1.5, 2.5], [1, 1], [0.5, -1]]


@pytest.mark.parametrize("dtypes", [(np.float64,), (np.float16, np.float32), (np.float32, np.float64)])
@pytest.mark.parametrize("limit", [1.0, 100.0])
def test_gradients_of_several_dtypes_are_clipped(dtypes: tuple[type, ...], limit: float) -> None:
    def run(captured: bool) -> list[Any]:
        ws = [aq.Parameter(np.ones(3, dtype)) for dtype in dtypes]

        def step(x: aq.Tensor) -> Any:
            loss = sum((w * x.astype(w.dtype)).sum().astype(aq.float32) for w in ws)
            loss.backward()
            norm = aq.optim.clip_grad_norm(ws, limit)
            gradients = [w.grad.astype(aq.float64) for w in ws]
            for w in ws:
                w.grad = None
            return norm, *gradients

        step = aq.capture(step) if captured else step
        results = [step(aq.tensor([1.0, float(number), 2.0])) for number in range(4)]
        return [[x.numpy().tolist() if isinstance(x, aq.Tensor) else x for x in result] for result in results]

    assert run(captured=True) == run(captured=False)


def test_a_factor_of_a_scaler_that_changed_is_told() -> None:
    w, scaler = aq.Parameter([3.0, 4.0]), aq.optim.GradScaler(4.0)
    optimizer = aq.optim.SGD([w], lr=0.1)

    @aq.capture
    def step(x: aq.Tensor) -> None:
        optimizer.zero_grad()
        scaler.scale((w * x).sum()).backward()

    for x in ([1.0, 2.0], [1.0, 2.0], [np.inf, 1.0]):
        step(aq.tensor(x))
        scaler.step(optimizer)
        scaler.update()
    with pytest.raises(CaptureError, match="factor of a GradScaler"):
        step(aq.tensor([1.0, 2.0]))


def test_keywords_that_are_called_as_a_positional_argument_are_told_apart() -> None:
    def step(x: aq.Tensor, /, **named: aq.Tensor) -> Any:
        return x * 1, named["x"] * 1, named["y"] * 1

    one, two, three = (aq.tensor([float(n)]) for n in (1, 2, 3))
    captured = aq.capture(step)
    for _ in range(3):
        captured(one, x=two, y=three)
    assert [y.item() for y in captured(one, y=three, x=two)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("first", "later"), [(({},), ({"b": []},)), (([],), ()), ((), ([],)), (([[]],), ([],)), (({},), ([[]],))]
)
def test_nests_with_nothing_in_them_count(first: Any, later: Any) -> None:
    captured = aq.capture(lambda x, *more: x * (1 + len(more)))
    x = aq.ones((2,))
    for _ in range(3):
        captured(x, *first)
    with pytest.raises(ArgumentError, match="first call"):
        captured(x, *later)
    captured(x, *first)


@pytest.mark.parametrize("scheme", ["mxfp8", "nvfp4", "int8"])
def test_packed_tensors_without_values_go_through_a_captured_step(scheme: str) -> None:
    q = aq.ones((2, 64)).quantize(scheme)
    step = aq.capture(lambda q: q[0:0] * 2.0 + q[0:0])
    for _ in range(3):
        assert step(q).shape == (0, 64)


def test_batch_norm_that_runs_elsewhere_too_goes_on() -> None:
    def run(captured: bool) -> list[Any]:
        norm = aq.nn.BatchNorm1d(3)
        step = aq.capture(lambda x: norm(x)) if captured else norm
        rng, found = np.random.default_rng(0), []
        for _ in range(4):
            found.append(step(aq.tensor(rng.standard_normal((8, 3), dtype=np.float32))).numpy())
            found.append(norm(aq.tensor(rng.standard_normal((5, 3), dtype=np.float32))).numpy())
        return [*found, norm.running_mean.numpy(), norm.running_var.numpy()]

    for found, wanted in zip(run(captured=True), run(captured=False), strict=True):
        assert np.array_equal(found, wanted)
