"""Operands, arguments, gradients and parameters on different devices: errors that name both."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.tape.apply import apply
from autoq.tape.op import REGISTRY
from tests.ops.registry import samples

SEVERAL = "cuda:1" in aq.__array_namespace_info__().devices()
MIXES = [("cuda", "cpu"), ("cpu", "cuda")] + [("cuda", "cuda:1"), ("cuda:1", "cuda")] * SEVERAL
mixed = pytest.mark.parametrize(("here", "there"), MIXES)


def on(device: str, *shape: int) -> Any:
    return aq.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32), device=device)


def integers(device: str, *values: int) -> Any:
    return aq.tensor(np.array(values), device=device)


def check_refused(call: Callable[[], Any], here: str, there: str) -> None:
    with pytest.raises(aq.errors.DeviceError) as caught:
        call()
    assert here in caught.value.given
    assert there in caught.value.given
    assert ".to(" in caught.value.remedy


def has_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) or (isinstance(x, tuple | list) and any(map(has_array, x)))


def moved(x: Any, device: str) -> Any:
    if isinstance(x, np.ndarray):
        return aq.tensor(x, device=device)
    return type(x)(moved(y, device) for y in x) if isinstance(x, tuple | list) else x


def with_arrays() -> list[Any]:
    """Each op and static argument of it that is an array in a sample, with the sample."""
    found = {}
    for name in sorted(REGISTRY):
        for operands, static in samples(name):
            for key, value in static.items():
                if has_array(value):
                    found.setdefault((name, key), (operands, static))
    return [pytest.param(*key, *sample, id="-".join(key)) for key, sample in found.items()]


@mixed
@pytest.mark.parametrize(("name", "key", "operands", "static"), with_arrays())
def test_arguments_that_are_tensors_lie_beside_the_operands(
    name: str, key: str, operands: Any, static: dict[str, Any], here: str, there: str
) -> None:
    placed = [aq.tensor(x, device=here) if isinstance(x, np.ndarray) else x for x in operands]
    apply(name, *placed, **{**static, key: moved(static[key], here)})
    apply(name, *placed, **static)  # arrays of the host go with any device
    check_refused(lambda: apply(name, *placed, **{**static, key: moved(static[key], there)}), here, there)


@mixed
def test_functions_that_look_at_their_arguments_first_refuse_too(here: str, there: str) -> None:
    x, places = on(here, 4, 32), integers(there, 0, 1)
    mask = aq.tensor(np.arange(4) > 1, device=there)

    def put(index: Any, target: Any) -> None:
        target[index] = 1.0

    for call in (
        lambda: put(places, on(here, 4, 32)),
        lambda: put(mask, on(here, 4, 32)),
        lambda: x[places],
        lambda: put(places, x.quantize(aq.mxfp8)),
        lambda: x.at[places].set(1.0),
        lambda: x.quantize(aq.mxfp8)[places],
        lambda: x.masked_fill(on(there, 4, 32) > 0, 0.0),
        lambda: aq.embedding(x, places),
        lambda: aq.index_add(x, places, on(here, 2, 32), axis=0),
        lambda: aq.nn.cross_entropy(x, integers(there, 0, 1, 2, 3)),
        lambda: aq.nn.NLLLoss()(x, integers(there, 0, 1, 2, 3)),
        lambda: aq.searchsorted(x[0], on(there, 3)),
    ):
        check_refused(call, here, there)


@mixed
def test_gradients_lie_beside_their_tensors(here: str, there: str) -> None:
    x = on(here, 3)
    x.requires_grad = True
    check_refused(lambda: (x * 2).backward(on(there, 3)), here, there)
    check_refused(lambda: (x * 2).backward(on(there, 3), create_graph=True), here, there)
    check_refused(lambda: aq.vjp(lambda a: a * 2, x)[1](on(there, 3)), here, there)
    check_refused(lambda: setattr(x, "grad", on(there, 3)), here, there)
    x.grad = np.ones(3, np.float32)
    (x * 2).backward(np.ones(3, np.float32))
    assert x.grad.device == here
    assert x.grad.tolist() == [3.0] * 3


OPTIMIZERS = [
    lambda p: aq.optim.SGD(p, lr=0.1),
    lambda p: aq.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: aq.optim.AdamW(p, lr=0.1),
]


@mixed
@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_step_refuses_a_gradient_from_elsewhere(make: Any, here: str, there: str) -> None:
    parameter = aq.Parameter(np.ones(3, np.float32), device=here)
    optimizer = make([parameter])
    parameter._grad = on(there, 3)  # as code that goes around the setter leaves it
    check_refused(optimizer.step, here, there)
    assert parameter.tolist() == [1.0] * 3


@mixed
@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_optimizer_goes_on_where_its_parameters_are(make: Any, dtype: Any, here: str, there: str) -> None:
    def trained(*places: str) -> Any:
        model = aq.nn.Linear(4, 2, rng=aq.Generator(0), dtype=dtype).to(places[0])
        optimizer = make(model.parameters())
        for number, place in enumerate(places):
            if number == 2:  # now with gradients, which the next pass adds to
                model.to(place)
            optimizer.zero_grad() if number == 1 else None
            model.to(place)
            model(aq.tensor(np.ones((3, 4), dtype), device=place)).sum().backward()
            optimizer.step()
        return model.weight.numpy()

    np.testing.assert_allclose(trained(here, there, there, here), trained(*["cpu"] * 4), rtol=1e-6)


@pytest.mark.parametrize("device", ["cuda"] + ["cuda:1"] * SEVERAL)
def test_a_batch_norm_trains_where_it_is(device: str) -> None:
    found = []
    for place in ("cpu", device):
        norm = aq.nn.BatchNorm1d(4).to(place)
        y = norm(on(place, 8, 4))
        assert {b.device for b in norm.buffers()} == {y.device} == {place}
        found.append([y.numpy(), norm.running_mean.numpy(), norm.running_var.numpy()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@mixed
def test_a_module_of_which_half_was_moved_refuses_and_stays(here: str, there: str) -> None:
    linear = aq.nn.Linear(4, 2, rng=aq.Generator(0)).to(here)
    linear.bias = aq.Parameter(linear.bias.numpy(), device=there)
    check_refused(lambda: linear(on(here, 3, 4)), here, there)
    norm = aq.nn.BatchNorm1d(4).to(here)
    norm.weight = aq.Parameter(np.ones(4, np.float32), device=there)
    check_refused(lambda: norm(on(here, 3, 4)), here, there)
    check_refused(lambda: aq.nn.BatchNorm1d(4).to(there)(on(here, 3, 4)), here, there)
    assert norm.running_mean.tolist() == [0.0] * 4


@mixed
def test_state_dicts_go_to_where_the_parameters_are(here: str, there: str) -> None:
    model, other = (aq.nn.Linear(4, 2, rng=aq.Generator(s)).to(d) for s, d in enumerate((here, there)))
    other.load_state_dict(model.state_dict())
    other.load_state_dict(dict(model.named_parameters()))
    assert {p.device for p in other.parameters()} == {there}
    assert other.weight.numpy().tobytes() == model.weight.numpy().tobytes()


@mixed
def test_norms_of_gradients_on_several_devices_are_one(here: str, there: str) -> None:
    parameters = [aq.Parameter(np.ones(3, np.float32), device=device) for device in (here, there)]
    for p in parameters:
        p.grad = aq.full((3,), 3.0, device=p.device)
    assert aq.optim.clip_grad_norm(parameters, 1.0) == pytest.approx(54**0.5)
    for p in parameters:
        assert p.grad.tolist() == pytest.approx([3 / 54**0.5] * 3)


@pytest.mark.parametrize("function", [np.sum, np.concatenate, np.sort, np.linalg.norm])
def test_functions_of_numpy_refuse_what_is_on_a_gpu(function: Any) -> None:
    x = on("cuda", 3)
    with pytest.raises(TypeError, match=r"\.numpy\(\)"):
        function([x, x] if function is np.concatenate else x)
    assert np.shape(x) == (3,)
    assert np.ndim(x) == 1


@pytest.mark.parametrize("device", ["cuda"] + ["cuda:1"] * SEVERAL)
def test_places_lie_beside_the_values_that_were_searched(device: str) -> None:
    x = aq.tensor([0.0, 1.0, 1.0, 2.0], device=device)
    with aq.default_device("cpu"):
        made = [
            *aq.nonzero(x),
            aq.searchsorted(x, x),
            *aq.unique_all(x),
            aq.argsort(x),
            aq.one_hot(x.astype(aq.int64), 3),
        ]
    assert {y.device for y in made} == {device}


@pytest.mark.skipif(not SEVERAL, reason="one GPU")
def test_what_a_second_gpu_holds_stays_there() -> None:
    device, x = "cuda:1", on("cuda:1", 4, 32)
    x.requires_grad = True
    q = x.detach().quantize(aq.mxfp8).qtensor
    assert q.copy().device == device
    linear = aq.nn.Linear(32, 32, rng=aq.Generator(0), weight_scheme=aq.mxfp8).to(device)
    assert linear.pack()(x).device == device
    for _ in range(2):
        (x + x * 2).sum().backward()
    assert x.grad.device == device
    assert x.grad.numpy()[0, 0] == 6.0
    with aq.detect_anomaly():
        (x * 2).sum().backward()
    pair = aq.checkpoint(lambda a: (a * 2, a * 3))(x)
    (pair[0] + pair[1]).sum().backward()
    assert x.grad.numpy()[0, 0] == 13.0
    with aq.no_grad():
        x *= 2
        x[0] = 1.0
        x.assign(x * 2)
    assert x.device == device
    assert x.numpy()[0, 0] == 2.0


@mixed
def test_each_operand_is_named_with_its_device_and_the_remedies_are_those(here: str, there: str) -> None:
    x, y, labels = on(here, 4, 4), on(there, 4, 4), integers(there, 0, 1, 2, 3)
    layer = aq.nn.Linear(4, 4, rng=aq.Generator(0)).to(there)
    norm = aq.nn.BatchNorm1d(4).to(there)
    calls: list[tuple[Any, str]] = [
        (lambda: x + y, "add: operands on {0} and {1}: a on {0}, b on {1}."),
        (lambda: x @ y, "a on {0}, b on {1}."),
        (lambda: x < y, "a on {0}, b on {1}."),
        (lambda: layer(x), "x on {0}, weight on {1}"),
        (lambda: norm(x), "x on {0}, running_mean on {1}"),
        (lambda: aq.concat([x, x, y]), "arrays[0] on {0}, arrays[1] on {0}, arrays[2] on {1}."),
        (lambda: aq.nn.cross_entropy(x, labels), "logits on {0}, labels on {1}."),
        (lambda: aq.nn.mse_loss(x, y), "on {0}, target on {1}."),
        (lambda: aq.take(x, labels, axis=0), "x on {0}, indices on {1}."),
        (lambda: x.at[0].set(y[0]), "on {0}, values on {1}."),
        (lambda: x.assign(y), "the tensor on {0}, data on {1}."),
        (lambda: x.__setitem__(0, y[0]), "x on {0}, v on {1}."),
    ]
    for call, told in calls:
        with aq.default_device("cpu"), pytest.raises(aq.errors.DeviceError) as caught:
            call()
        assert told.format(here, there) in caught.value.given
        assert set(re.findall(r'\.to\("([^"]*)"\)', caught.value.remedy)) == {here, there}


@pytest.mark.parametrize("device", ["cuda"] + ["cuda:1"] * SEVERAL)
def test_an_array_beside_a_tensor_on_a_gpu_is_told_how_to_get_there(device: str) -> None:
    x, array = on(device, 4, 4), np.ones((4, 4), np.float32)
    calls: list[tuple[Any, str]] = [
        (lambda: x + array, "b"),
        (lambda: array + x, "a"),
        (lambda: x @ array.tolist(), "b"),
        (lambda: aq.nn.mse_loss(x, array), "target"),
        (lambda: aq.concat([array, x]), "arrays[0]"),
        (lambda: x > array, "b"),
        (lambda: aq.where(x > 0, x, array), "b"),
    ]
    for call, name in calls:
        with aq.default_device("cpu"), pytest.raises(aq.errors.DeviceError) as caught:
            call()
        assert f"{name} on cpu" in caught.value.given
        assert f'aq.tensor({name}, device="{device}")' in caught.value.remedy
