"""What the optimizers share: parameters, groups, state dicts and their errors."""

import numpy as np
import pytest

import autoq as aq
from autoq import optim
from autoq.errors import ArgumentError, DTypeError, GradientError, StateError

METHODS = [
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: optim.Adam(p, lr=0.1),
    lambda p: optim.AdamW(p),
]


def parameter(*values, grad=None):
    made = aq.Parameter(list(values))
    if grad is not None:
        made.grad = aq.tensor(grad)
    return made


@pytest.mark.parametrize("method", METHODS)
def test_a_parameter_without_a_gradient_is_skipped(method):
    a, b = parameter(1.0, grad=[1.0]), parameter(2.0)
    optimizer = method([a, b])
    optimizer.step()
    assert a.item() != 1.0
    assert b.item() == 2.0
    assert "state.0.steps" in optimizer.state_dict()
    assert optimizer.state_dict()["state.1.steps"] == 0


def test_groups_have_options_of_their_own():
    a, b = parameter(1.0, grad=[1.0]), parameter(1.0, grad=[1.0])
    optimizer = optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.25)
    optimizer.step()
    assert (a.item(), b.item()) == (0.75, 0.5)
    optimizer.lr = 1.0
    assert [group["lr"] for group in optimizer.groups] == [1.0, 1.0]


def test_a_module_can_be_passed_for_its_parameters():
    layer = aq.nn.Linear(2, 2, rng=aq.Generator(0))
    assert len(optim.SGD(layer, lr=0.1).groups[0]["params"]) == 2


def test_a_packed_parameter_is_refused_and_weight_scheme_named():
    packed = aq.Parameter(aq.tensor(np.ones((2, 32), np.float32)).quantize(aq.mxfp8))
    with pytest.raises(DTypeError, match=r"packed as mxfp8 \(2, 32\)(.|\n)*weight_scheme="):
        optim.AdamW([packed])


def test_a_plain_tensor_is_refused():
    with pytest.raises(DTypeError, match=r"AutodiffTensor is no parameter(.|\n)*aq.Parameter"):
        optim.SGD([aq.tensor([1.0], requires_grad=True)], lr=0.1)


def test_a_parameter_listed_twice_is_refused():
    a = parameter(1.0)
    with pytest.raises(ArgumentError, match="listed twice"):
        optim.SGD([a, a], lr=0.1)
    with pytest.raises(ArgumentError, match="listed twice"):
        optim.SGD([{"params": [a]}, {"params": [a]}], lr=0.1)


def test_no_parameters_is_an_error_that_names_the_used_up_generator():
    layer = aq.nn.ReLU()
    with pytest.raises(ArgumentError, match="no parameters(.|\n)*a generator is used up by one walk"):
        optim.SGD(layer.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr=-1.0"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"lr": "fast"}, "lr='fast'"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"betas": 0.9}, "two numbers"),
        ({"eps": 0.0}, "eps > 0"),
        ({"weight_decay": -0.1}, "weight_decay >= 0"),
    ],
)
def test_an_option_out_of_range_is_named(options, message):
    with pytest.raises(ArgumentError, match=message):
        optim.Adam([parameter(1.0)], **options)
    with pytest.raises(ArgumentError, match=message):
        optim.Adam([{"params": [parameter(1.0)], **options}])


def test_an_unknown_group_option_is_named():
    with pytest.raises(ArgumentError, match="a group with.*momentun"):
        optim.SGD([{"params": [parameter(1.0)], "momentun": 0.9}], lr=0.1)
    with pytest.raises(ArgumentError, match="'params' and any of"):
        optim.SGD([{"lr": 0.9}], lr=0.1)


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_optimizer_goes_on_where_it_stopped(method):
    def train(p, optimizer, steps):
        for step in steps:
            p.grad = aq.tensor([0.1 * step, -1.0])
            optimizer.step()

    a, b = parameter(1.0, 2.0), parameter(1.0, 2.0)
    straight, first = method([a]), method([b])
    train(a, straight, range(6))
    train(b, first, range(3))
    second = method([b])
    second.load_state_dict(first.state_dict())
    train(b, second, range(3, 6))
    np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_state_dict_is_a_snapshot_and_loading_copies_it():
    a = parameter(1.0, grad=[1.0])
    optimizer = optim.SGD([a], lr=0.1, momentum=0.5)
    optimizer.step()
    state = optimizer.state_dict()
    optimizer.step()
    assert state["state.0.velocity"].tolist() == [1.0]
    optimizer.load_state_dict(state)
    optimizer.step()
    assert state["state.0.velocity"].tolist() == [1.0]


def test_a_state_dict_brings_the_options_back():
    saved = optim.AdamW([parameter(1.0)], lr=0.5, betas=(0.8, 0.9)).state_dict()
    optimizer = optim.AdamW([parameter(1.0)])
    optimizer.load_state_dict(saved)
    assert optimizer.lr == 0.5
    assert optimizer.groups[0]["betas"] == (0.8, 0.9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("group.0.lr"), "missing 'group.0.lr'"),
        (lambda s: s.update(spare=np.zeros(1)), "unknown 'spare'"),
        (lambda s: s.update({"state.0.mean": np.zeros(3)}), r"'state.0.mean' has shape \(3,\), not \(1,\)"),
        (lambda s: s.pop("state.0.square"), "missing 'state.0.square'"),
    ],
)
def test_a_state_that_does_not_fit_is_named_and_changes_nothing(change, message):
    a = parameter(1.0, grad=[1.0])
    optimizer = optim.Adam([a], lr=0.1)
    optimizer.step()
    before = optimizer.state_dict()
    state = {**before, "group.0.lr": np.asarray(0.7)}
    change(state)
    with pytest.raises(StateError, match=message):
        optimizer.load_state_dict(state)
    for key, value in optimizer.state_dict().items():
        np.testing.assert_array_equal(value, before[key])


def test_backward_after_a_step_between_is_an_error_not_a_wrong_gradient():
    p = parameter(1.0, 2.0)
    loss = (p * p).sum()
    p.grad = aq.tensor([1.0, 1.0])
    optim.SGD([p], lr=0.1).step()
    with pytest.raises(GradientError, match="changed in place"):
        loss.backward()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_parameters_without_axes_or_values_are_updated(method, shape):
    p = aq.Parameter(np.ones(shape, np.float32))
    optimizer = method([p])
    (p * p).sum().backward()
    optimizer.step()
    assert p.shape == shape
    assert (p.numpy() < 1).all()


def test_loading_checks_the_range_of_the_options():
    state = optim.SGD([parameter(1.0)], lr=0.1).state_dict()
    optimizer = optim.SGD([parameter(1.0)], lr=0.2)
    with pytest.raises(ArgumentError, match="lr=-1.0"):
        optimizer.load_state_dict({**state, "group.0.lr": np.asarray(-1.0)})
    assert optimizer.lr == 0.2


def test_scratch_arrays_are_as_large_as_the_largest_parameter():
    with aq.default_device("cpu"):  # on a GPU the kernels need none
        sizes = [aq.Parameter(np.zeros(n, np.float32)) for n in (10, 1000, 100)]
    optimizer = optim.SGD(sizes, lr=0.1)
    bases = {id(slot.scratch[0].base) for slots in optimizer._slots for slot in slots}
    assert len(bases) == 1
    assert optimizer._slots[0][0].scratch[0].base.size == 1000


def test_zero_grad_and_repr():
    a = parameter(1.0, grad=[1.0])
    optimizer = optim.SGD([a], lr=0.1)
    optimizer.zero_grad()
    assert a.grad is None
    assert repr(optimizer) == "SGD(1 parameters, lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0)"


def test_without_a_momentum_nothing_is_kept_beside_the_parameters():
    a, b = parameter(1.0, grad=[1.0]), parameter(1.0, grad=[1.0])
    optimizer = optim.SGD([{"params": [a]}, {"params": [b], "momentum": 0.5}], lr=0.5)
    optimizer.step()
    assert "state.0.velocity" not in optimizer.state_dict()
    assert optimizer.state_dict()["state.1.velocity"].tolist() == [1.0]
    optimizer.groups[0]["momentum"] = 0.5  # from here on
    for _ in range(2):
        optimizer.step()
    assert optimizer.state_dict()["state.0.velocity"].tolist() == [1.5]
    assert a.numpy().tolist() == [1.0 - 0.5 * (1.0 + 1.0 + 1.5)]
    again = optim.SGD([{"params": [a]}, {"params": [b], "momentum": 0.5}], lr=0.5)
    again.load_state_dict(optimizer.state_dict())
    assert again.groups[0]["momentum"] == 0.5
