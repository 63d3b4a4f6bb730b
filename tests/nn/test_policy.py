"""nn.policy sets the dtypes of a whole model; logits stay float32."""

import numpy as np
import pytest

import autoq as aq
from autoq import nn
from autoq.errors import ArgumentError, DTypeError


class Residual(nn.Module):
    def __init__(self, rng):
        self.norm, self.up, self.act, self.down = (
            nn.RMSNorm(64), nn.Linear(64, 128, rng=rng), nn.GELU(), nn.Linear(128, 64, rng=rng)
        )  # fmt: skip

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


def model():
    rng = aq.Generator(0)
    first, last = nn.Linear(64, 64, rng=rng), nn.Linear(64, 10, rng=rng)
    return nn.Sequential(first, Residual(rng), nn.LayerNorm(64), last)


def run(network, x):
    """The dtype of every module's output, by name."""
    seen = {}
    for name, module in network.named_modules():
        module.forward = _recording(name, module.forward, seen)
    network(x)
    return seen


def _recording(name, forward, seen):
    def call(x):
        y = forward(x)
        seen[name] = y.dtype.name
        return y

    return call


def test_norms_and_activations_make_the_signal_linears_the_stream_and_the_last_one_float32():
    network = nn.policy(model(), signal=aq.mxfp8, stream=aq.bfloat16, weights=aq.nvfp4)
    x = aq.tensor(np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32))
    assert run(network, x) == {
        "": "float32", "0": "bfloat16", "1": "bfloat16", "1.norm": "mxfp8", "1.up": "bfloat16",
        "1.act": "mxfp8", "1.down": "bfloat16", "2": "mxfp8", "3": "float32",
    }  # fmt: skip
    assert all(m.weight_scheme == aq.nvfp4 for m in network.modules() if isinstance(m, nn.Linear))


def test_without_a_stream_linears_follow_a_packed_input_up_to_the_logits():
    network = nn.policy(model(), signal=aq.mxfp8)
    x = aq.tensor(np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)).quantize(aq.mxfp8)
    dtypes = run(network, x)
    assert {name for name, dtype in dtypes.items() if dtype != "mxfp8"} == {"", "3"}


def test_a_policy_of_nothing_takes_an_earlier_one_back():
    network = nn.policy(nn.policy(model(), signal=aq.mxfp8, stream=aq.bfloat16, weights=aq.nvfp4))
    x = aq.tensor(np.ones((4, 64), np.float32))
    assert set(run(network, x).values()) == {"float32"}
    assert all(m.weight_scheme is None for m in network.modules() if isinstance(m, nn.Linear))


def test_the_layer_of_the_logits_can_be_named():
    network = model()
    nn.policy(network, stream="bfloat16", logits=network[0])
    assert network[0].out_dtype == aq.float32
    assert network[3].out_dtype == aq.bfloat16
    with pytest.raises(ArgumentError, match="not a part of the model"):
        nn.policy(network, logits=nn.Linear(2, 2, rng=aq.Generator(0)))


def test_weights_that_are_no_scheme_are_refused_and_nothing_changes():
    network = model()
    with pytest.raises(DTypeError, match="weights=bfloat16"):
        nn.policy(network, signal=aq.mxfp8, weights=aq.bfloat16)
    assert network[2].signal is None


@pytest.mark.compiled
def test_training_under_a_policy_lowers_the_loss():
    network = nn.policy(model(), signal=aq.mxfp8, stream=aq.bfloat16, weights=aq.nvfp4)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((64, 64)).astype(np.float32), rng.integers(0, 10, 64)
    optimizer = aq.optim.AdamW(network.parameters(), lr=3e-3)
    losses = []
    for _ in range(20):
        loss = nn.cross_entropy(network(aq.tensor(x)), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
