# %% [markdown]
# # A tape by hand
#
# Reverse-mode differentiation fits on a page. This tutorial builds it over NumPy arrays, adds a rounding
# step, and meets the one question that decides whether gradients through quantized numbers are right:
# *which numbers does the rule look at?* At the end the hand-made tape and autoq agree.
#
# ## What has to be remembered
#
# Take `y = tanh(a · b)`. When the program has run, we want the derivative of `y` by `a`. The chain rule
# multiplies the derivatives of the steps, last step first, so for each step we need to know what it was
# computed from, and how a gradient of its result becomes a gradient of each operand. That is a node:

# %%
import numpy as np

import autoq as aq


class Node:
    """A value, the nodes it came from, and a rule for each: gradient of the value in, of the parent out."""

    count = 0

    def __init__(self, value, parents=(), rules=()):
        self.value = np.asarray(value, np.float64)
        self.parents, self.rules = parents, rules
        self.gradient = np.zeros_like(self.value)
        self.position = Node.count = Node.count + 1


# %% [markdown]
# An operation computes its value and says how to go back. The rule of a product reads the other factor;
# that of tanh uses `tanh'(x) = 1 - tanh(x)²`.


# %%
def mul(a, b):
    return Node(
        a.value * b.value, (a, b), (lambda g: g * b.value, lambda g: g * a.value)
    )


def tanh(x):
    return Node(np.tanh(x.value), (x,), (lambda g: g * (1 - np.tanh(x.value) ** 2),))


def total(x):
    return Node(x.value.sum(), (x,), (lambda g: np.broadcast_to(g, x.value.shape),))


# %% [markdown]
# ## Going back
#
# A node's gradient is complete only when everything computed from it has contributed. Nodes are numbered as
# they are made, and an operand is always made before its result, so walking from the highest number to the
# lowest is a valid order. Keeping the waiting nodes by their number gives it without recursion, and
# contributions of several users add up.


# %%
def backward(output):
    output.gradient = np.ones_like(output.value)
    waiting = {output.position: output}
    while waiting:
        node = waiting.pop(max(waiting))
        for parent, rule in zip(node.parents, node.rules, strict=True):
            parent.gradient = parent.gradient + rule(node.gradient)
            waiting[parent.position] = parent


rng = np.random.default_rng(0)
a, b = Node(rng.standard_normal(32)), Node(rng.standard_normal(32))
y = total(tanh(mul(mul(a, b), a)))  # a is used twice
backward(y)

# %% [markdown]
# Is it right? Nudge one number and look. A central difference has an error of the order of the step
# squared.


# %%
def value_at(a_values):
    return float(np.tanh(a_values * b.value * a_values).sum())


step = np.zeros(32)
step[3] = 1e-5
difference = (value_at(a.value + step) - value_at(a.value - step)) / 2e-5
print(f"by the tape {a.gradient[3]:.9f}, by differences {difference:.9f}")
assert abs(a.gradient[3] - difference) < 1e-8

# %% [markdown]
# ## Rounding in the middle
#
# Now let the product be stored in four bits: MXFP4, blocks of 32 values, each a multiple of one power of
# two times one of 0, ½, 1, 1½, 2, 3, 4, 6. The derivative of rounding is zero or infinite, so training
# replaces it by 1. The gradient goes *straight through*.


# %%
def rounded(values):
    return (
        aq.QTensor.quantize(values.astype(np.float32), aq.mxfp4)
        .dequantize()
        .astype(np.float64)
    )


def quantize(x):
    return Node(rounded(x.value), (x,), (lambda g: g,))


# %% [markdown]
# ## Where the rule must look
#
# If the signal is quantized, tanh's *result* is stored rounded too. A tape that wants to save memory could
# keep only this rounded result `ŷ` and use `1 - ŷ²`: in float arithmetic that is what everybody does.
# Compare it with the derivative at the operand:

# %%
x = quantize(Node(np.linspace(-3, 3, 32)))
exact = 1 - np.tanh(x.value) ** 2
from_output = 1 - rounded(np.tanh(x.value)) ** 2

wrong = np.abs(from_output - exact).mean() / exact.mean()
dead = np.mean((from_output == 0) & (exact > 0))
print(
    f"from the rounded output: {100 * wrong:.0f} % off on average, {100 * dead:.0f} % wrongly zero"
)

# %% [markdown]
# Where tanh rounds to 1 the gradient is lost, and the neuron stays stuck for good. So a rule looks at the
# *operands* as the forward pass saw them, decoded, and computes what else it needs again. That is what
# autoq does in every rule: the tape keeps the packed operand, 4.25 bits a value here, and decodes it when
# backward gets there.

# %%
leaf = aq.tensor(np.linspace(-3, 3, 32, dtype=np.float32), requires_grad=True)
result = leaf.quantize(aq.mxfp4).tanh()
print(aq.Tape.of(result))
result.dequantize().sum().backward()

# %% [markdown]
# The dtype of `result` is MXFP4: the signal stays packed from operation to operation. The gradient is
# float32, and it is the derivative at the decoded operand.

# %%
by_hand = Node(np.linspace(-3, 3, 32))
backward(total(tanh(quantize(by_hand))))
assert result.dtype == aq.mxfp4
assert np.allclose(leaf.grad.numpy(), by_hand.gradient, rtol=1e-5, atol=1e-7)
assert wrong > 0.05 and dead > 0.05, "the short cut should have been visibly wrong"
