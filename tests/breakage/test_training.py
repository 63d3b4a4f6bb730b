"""Modules, optimizers, scalers, batches and files under arguments and states that don't fit."""

import copy
import pickle

import numpy as np
import pytest

import autoq as aq
from autoq import nn, optim
from autoq.errors import ArgumentError, AutoqError, DTypeError, ShapeError, StateError

RNG = np.random.default_rng(0)


def linear(n=4, m=4, **options):
    return nn.Linear(n, m, rng=aq.Generator(0), **options)


def parameter(*shape):
    return aq.Parameter(RNG.standard_normal(shape).astype(np.float32))


def tensor(*shape):
    return aq.tensor(RNG.standard_normal(shape).astype(np.float32))


REFUSED = {
    "a weight of None": (DTypeError, lambda: _without_weight()(tensor(2, 4))),
    "parameters in a scheme": (DTypeError, lambda: linear(dtype="mxfp8")),
    "parameters of integers": (DTypeError, lambda: nn.LayerNorm(3, dtype=int)),
    "a norm of size -1": (ArgumentError, lambda: nn.LayerNorm(-1)),
    "a norm of a shape": (ArgumentError, lambda: nn.RMSNorm((3, 4))),
    "a norm of another length": (ShapeError, lambda: nn.LayerNorm(3)(tensor(2, 4))),
    "a norm that would widen": (ShapeError, lambda: nn.LayerNorm(3)(tensor(2, 1))),
    "a norm that would repeat": (ShapeError, lambda: nn.RMSNorm(1)(tensor(2, 5))),
    "a norm of a number": (ShapeError, lambda: nn.RMSNorm(1)(aq.tensor(1.0))),
    "a slope of strings": (ArgumentError, lambda: nn.LeakyReLU("a")),
    "a rate of strings": (ArgumentError, lambda: nn.Dropout("a", aq.Generator(0))),
    "a module by name": (AutoqError, lambda: nn.Sequential(linear())["0"]),
    "a slice of modules": (AutoqError, lambda: nn.Sequential(linear())[0:1]),
    "a list of a number": (ArgumentError, lambda: nn.ModuleList(3)),
    "a dict of a list": (ArgumentError, lambda: nn.ModuleDict([linear()])),
    "a module named 3": (ArgumentError, lambda: nn.ModuleDict({3: linear()})),
    "a buffer named 3": (ArgumentError, lambda: linear().register_buffer(3, [1.0])),
    "a buffer with a dot": (ArgumentError, lambda: linear().register_buffer("a.b", [1.0])),
    "a policy of None": (ArgumentError, lambda: nn.policy(None)),
    "a state of None": (StateError, lambda: linear().load_state_dict(None)),
    "an optimizer of None": (DTypeError, lambda: optim.Adam(None)),
    "an optimizer's state of None": (StateError, lambda: optim.Adam([parameter(3)]).load_state_dict(None)),
    "clipping numbers": (DTypeError, lambda: optim.clip_grad_norm([3], 1.0)),
    "clipping None": (DTypeError, lambda: optim.clip_grad_norm(None, 1.0)),
    "clipping to a name": (ArgumentError, lambda: optim.clip_grad_norm([parameter(3)], "a")),
    "a scale of strings": (ArgumentError, lambda: optim.GradScaler("a")),
    "an interval of 1.5": (ArgumentError, lambda: optim.GradScaler(interval=1.5)),
    "a loss of None": (DTypeError, lambda: optim.GradScaler().scale(None)),
    "a scaler's step of 3": (DTypeError, lambda: optim.GradScaler().step(3)),
    "a schedule of 3": (DTypeError, lambda: optim.CosineSchedule(3, 10)),
    "a negative end": (ArgumentError, lambda: optim.CosineSchedule(optim.Adam([parameter(3)]), 9, final=-1)),
    "ragged rows": (ShapeError, lambda: aq.data.Batches([[1.0, 2.0], [3.0]], rng=aq.Generator(0))),
    "rows of text": (DTypeError, lambda: aq.data.Batches(["a", "b"], rng=aq.Generator(0))),
    "a fraction of strings": (ArgumentError, lambda: aq.data.split(np.ones(4), None, "a", aq.Generator(0))),
}


def _without_weight():
    layer = linear()
    layer.weight = None
    return layer


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_an_error_of_ours(case):
    error, call = REFUSED[case]
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("gradient", [tensor(4), tensor(1), 3.0, "a", tensor(3).quantize(aq.mxfp8)])
def test_a_gradient_set_by_hand_has_to_fit_its_parameter(gradient):
    p = parameter(3)
    with pytest.raises(AutoqError, match="grad|dtype"):
        p.grad = gradient
    assert p.grad is None


def test_a_module_that_contains_itself_prints_and_saves():
    model = nn.Sequential(linear(), nn.ReLU())
    model.again = model
    assert "..." in repr(model)
    assert list(model.state_dict()) == ["0.weight", "0.bias"]


def test_copies_of_a_model_with_its_optimizer_train_on_their_own():
    model = nn.Sequential(linear(), linear())
    model[1].weight = model[0].weight
    optimizer = optim.Adam(model.parameters())
    for twin, other in (copy.deepcopy((model, optimizer)), pickle.loads(pickle.dumps((model, optimizer)))):
        twin.to(model[0].weight.device)  # pickles come back on the CPU
        assert twin[0].weight is twin[1].weight
        before = model[0].weight.numpy().copy()
        twin(tensor(2, 4)).sum().backward()
        other.step()
        np.testing.assert_array_equal(model[0].weight.numpy(), before)
        assert not np.array_equal(twin[0].weight.numpy(), before)


@pytest.mark.parametrize("state", [None, 3, {"__metadata__": np.ones(3)}, {3: np.ones(3)}, {"x": "a"}])
def test_what_can_not_be_read_back_is_not_saved(tmp_path, state):
    with pytest.raises(AutoqError):
        aq.io.save(tmp_path / "state", state)
    assert not list(tmp_path.iterdir())


def test_metadata_and_targets_of_other_kinds_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="metadata"):
        aq.io.save(tmp_path / "state", {"x": np.ones(3)}, metadata=3)
    aq.io.save(tmp_path / "state", {"x": np.ones(3)})
    with pytest.raises(DTypeError, match="load_into"):
        aq.io.load_into(3, tmp_path / "state")
