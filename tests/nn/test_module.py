"""A module is a tree: what it finds, saves, loads and shows."""

import copy
import pickle

import numpy as np
import pytest

import autoq as aq
from autoq import nn
from autoq.errors import ArgumentError, StateError


class Block(nn.Module):
    def __init__(self, seed=0):
        rng = aq.Generator(seed)
        self.linear = nn.Linear(4, 3, rng=rng)
        self.layers = nn.ModuleList([nn.LayerNorm(3), nn.ReLU()])
        self.gain = aq.Parameter([2.0])
        self.register_buffer("offset", [0.25])

    def forward(self, x):
        y = self.linear(x)
        for layer in self.layers:
            y = layer(y)
        return y * self.gain + self.offset


NAMES = ["gain", "linear.weight", "linear.bias", "layers.0.weight", "layers.0.bias"]


def test_parameters_are_found_by_attribute_at_any_depth():
    assert [name for name, _ in Block().named_parameters()] == NAMES


def test_buffers_are_saved_but_are_no_parameters():
    block = Block()
    assert [name for name, _ in block.named_buffers()] == ["offset"]
    assert list(block.state_dict()) == [*NAMES, "offset"]


def test_parameters_and_buffers_inhibit():
    block = Block()
    for tensor in [*block.parameters(), *block.buffers()]:
        assert tensor.propagation is aq.Propagation.INHIBIT
    assert block(aq.tensor(np.ones((2, 4)), dtype=aq.float16)).dtype == aq.float16


def test_a_shared_parameter_appears_once():
    block = Block()
    block.again = block.linear
    block.same = block.gain
    assert [name for name, _ in block.named_parameters()] == NAMES


def test_a_cycle_of_modules_ends():
    block = Block()
    block.linear.parent = block
    assert len(list(block.parameters())) == len(NAMES)
    assert len(list(block.modules())) == 5


def test_modules_come_parents_first_and_apply_visits_children_first():
    block, visited = Block(), []
    assert [name for name, _ in block.named_modules()] == ["", "linear", "layers", "layers.0", "layers.1"]
    assert block.apply(lambda module: visited.append(type(module).__name__)) is block
    assert visited == ["Linear", "LayerNorm", "ReLU", "ModuleList", "Block"]


def test_train_and_eval_reach_every_module():
    block = Block()
    assert all(module.training for module in block.modules())
    assert block.eval() is block
    assert not any(module.training for module in block.modules())
    block.train()
    assert all(module.training for module in block.modules())


def test_zero_grad_forgets_every_gradient():
    block = Block()
    block(aq.tensor(np.ones((2, 4), np.float32))).sum().backward()
    assert all(parameter.grad is not None for parameter in block.parameters())
    block.zero_grad()
    assert all(parameter.grad is None for parameter in block.parameters())


def test_a_state_dict_is_a_snapshot():
    block = Block()
    state = block.state_dict()
    with aq.no_grad():
        block.gain.assign([7.0])
    assert state["gain"].tolist() == [2.0]


def test_loading_a_state_dict_copies_it():
    block, state = Block(), Block(seed=1).state_dict()
    block.load_state_dict(state)
    state["gain"][...] = 9
    assert block.gain.numpy().tolist() == [2.0]
    for name, value in Block(seed=1).state_dict().items():
        np.testing.assert_array_equal(block.state_dict()[name], value)


def test_loading_keeps_the_parameters_that_an_optimizer_holds():
    block = Block()
    before = [id(parameter) for parameter in block.parameters()]
    block.load_state_dict(Block(seed=1).state_dict())
    assert [id(parameter) for parameter in block.parameters()] == before
    assert all(parameter.requires_grad for parameter in block.parameters())


def bad_states():
    state = Block(seed=1).state_dict()
    wide = np.zeros((4, 4), np.float32)
    yield {k: v for k, v in state.items() if k != "gain"}, r"missing 'gain' float32 \(1,\)"
    yield {**state, "spare": wide}, "unknown 'spare'"
    yield (
        {**state, "linear.weight": wide},
        r"'linear.weight' is float32 \(4, 4\), the model's is float32 \(3,",
    )
    yield {**state, "offset": np.zeros(1)}, r"'offset' is float64 \(1,\), the model's is float32 \(1,\)"
    packed = aq.tensor(np.zeros((3, 4), np.float32)).quantize(aq.mxfp8).value
    yield {**state, "linear.weight": packed}, r"'linear.weight' is mxfp8 \(3, 4\), the model's is float32 "


@pytest.mark.parametrize(("state", "message"), list(bad_states()))
def test_a_state_that_does_not_fit_is_named_and_changes_nothing(state, message):
    block = Block()
    before = block.state_dict()
    with pytest.raises(StateError, match=message):
        block.load_state_dict(state)
    for name, value in block.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


def test_all_faults_of_a_state_are_listed_at_once():
    state = Block().state_dict()
    del state["gain"]
    state["spare"] = np.zeros(1)
    with pytest.raises(StateError, match="missing 'gain'.*unknown 'spare'(.|\n)*the model is unchanged"):
        Block().load_state_dict(state)


@pytest.mark.parametrize("value", [[nn.ReLU()], (nn.ReLU(),), {"a": nn.ReLU()}, [aq.Parameter([1.0])]])
def test_modules_hidden_in_a_plain_container_are_refused(value):
    module = nn.Module()
    with pytest.raises(ArgumentError, match="hides its modules and parameters(.|\n)*nn.Module(List|Dict)"):
        module.layers = value


def test_plain_containers_of_other_things_are_fine():
    module = nn.Module()
    module.sizes = [1, 2]
    assert module.sizes == [1, 2]


def test_a_buffer_can_be_replaced_but_not_put_over_another_attribute():
    block = Block()
    block.register_buffer("offset", [0.5])
    assert block.offset.numpy().tolist() == [0.5]
    with pytest.raises(ArgumentError, match="'linear' is an attribute already"):
        block.register_buffer("linear", [0.5])


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match=r"Module has no forward\(\)"):
        nn.Module()(1)


def test_repr_shows_the_tree():
    assert repr(Block()) == (
        "Block(\n  (linear): Linear(4, 3)\n"
        "  (layers): ModuleList(\n    (0): LayerNorm(3)\n    (1): ReLU()\n  )\n)"
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda block: pickle.loads(pickle.dumps(block))])
def test_a_copied_module_computes_the_same_and_shares_nothing(copied):
    block = Block()
    other = copied(block).to(aq.tensor(0.0).device)  # pickles load on the CPU
    x = aq.tensor(np.ones((2, 4), np.float32))
    np.testing.assert_array_equal(block(x).numpy(), other(x).numpy())
    with aq.no_grad():
        other.gain.assign([0.0])
    assert block.gain.numpy().tolist() == [2.0]
