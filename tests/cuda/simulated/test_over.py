"""Element-wise gradients written over the cotangent, as in a new array."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.ops.on_device import elementwise  # noqa: F401  (registers the rules)
from autoq.tape.accelerated import WRITES_OVER, rule_on_device
from autoq.tape.op import REGISTRY
from tests.cuda.simulated.operands import stored

RNG = np.random.default_rng(0)
SHAPES = [(64,), (3, 33), (2, 3, 64), (1, 7)]


def operand(shape, scheme):
    return stored(RNG.standard_normal(shape, dtype=np.float32), scheme)


@pytest.mark.parametrize("scheme", [None, "mxfp8", "nvfp4", "int8"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("name", "i"), [("relu", 0), ("gelu", 0), ("mul", 0), ("div", 1)])
def test_values_are_those_of_a_new_array(name, i, shape, scheme):
    op = REGISTRY[name]
    rule, read = rule_on_device(op, i), [r.key for r in op.rules[i].reads]
    assert rule in WRITES_OVER
    values = [operand(shape, scheme), operand(shape[-1:], scheme)]
    g = operand(shape, None)
    arguments = [values[key] if isinstance(key, int) else op.defaults[key] for key in read]
    kept, expected = g.copy(), rule(g, *arguments)
    assert not np.shares_memory(expected, g)
    assert np.array_equal(g, kept)
    found = rule(g, *arguments, over=True)
    assert np.shares_memory(found, g)
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_arrays_that_lie_otherwise_are_not_written_to():
    rule = rule_on_device(REGISTRY["relu"], 0)
    memory = RNG.standard_normal(129, dtype=np.float32)
    for g in (memory[1:].reshape(2, 64), memory[:128].reshape(64, 2).T, memory[:128].reshape(2, 64)[:, ::2]):
        kept, x = memory.copy(), operand(g.shape, None)
        found = rule(g, x, over=True)
        assert np.array_equal(memory, kept)
        assert np.array_equal(found, g * (x > 0))
