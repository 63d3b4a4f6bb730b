"""Containers hold modules, in order or by name, as parts of the model."""

import pytest

import autoq as aq
from autoq import nn
from autoq.errors import ArgumentError, IndexingError


def test_sequential_calls_its_modules_in_order():
    model = nn.Sequential(nn.ReLU(), nn.LeakyReLU(0.5))
    assert model(aq.tensor([-2.0, 4.0])).numpy().tolist() == [0.0, 4.0]
    assert nn.Sequential()(3) == 3


def test_a_list_can_grow_be_indexed_and_iterated():
    layers = nn.ModuleList()
    layers.append(nn.ReLU())
    layers.append(nn.Tanh())
    assert [type(layer) for layer in layers] == [nn.ReLU, nn.Tanh]
    assert layers[0] is next(iter(layers))
    assert layers[-1] is layers[1]
    with pytest.raises(IndexingError, match="index 2 of 2 modules"):
        layers[2]


def test_a_dict_of_modules_names_its_parameters():
    heads = nn.ModuleDict({"digit": nn.Linear(4, 2, rng=aq.Generator(0), bias=False)})
    heads["norm"] = nn.RMSNorm(4)
    assert list(heads) == ["digit", "norm"]
    assert len(heads) == 2
    assert [name for name, _ in heads.named_parameters()] == ["digit.weight", "norm.weight"]


@pytest.mark.parametrize("name", ["forward", "a.b", "training"])
def test_a_dict_refuses_names_that_it_uses_itself(name):
    with pytest.raises(ArgumentError, match="can't be named"):
        nn.ModuleDict({name: nn.ReLU()})


def test_a_class_instead_of_a_module_is_refused():
    with pytest.raises(ArgumentError, match=r"item '1' is the class ReLU(.|\n)*nn.ReLU\(\) with its paren"):
        nn.Sequential(nn.ReLU(), nn.ReLU)


def test_a_list_instead_of_modules_is_refused():
    with pytest.raises(ArgumentError, match=r"item '0' is a list(.|\n)*Unpack it with a star"):
        nn.Sequential([nn.ReLU(), nn.ReLU()])
