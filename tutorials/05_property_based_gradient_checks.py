# %% [markdown]
# # Property-based gradient checks
#
# You wrote an operation and its gradient. Is the gradient right? This tutorial checks one, breaks it in the
# two ways that slip through most tests, and lets the tools find both: [Hypothesis](https://hypothesis.works)
# searches for inputs on which a property fails and *shrinks* what it finds to the simplest one, and
# `aq.testing.check_grads` says whether the property, that the gradient is the derivative, holds.
#
# ## An operation
#
# A squashing function with long tails, and its slope:
#
# $$ y = \frac{x}{\sqrt{1 + x^2}} \qquad \frac{dy}{dx} = (1 + x^2)^{-3/2} $$

# %%
import matplotlib.pyplot as plt
import numpy as np
from hypothesis import given, settings

import autoq as aq
from autoq.testing import GradientMismatch, check_grads
from autoq.testing import strategies as sts


def squash_forward(x):
    return x / np.sqrt(1 + x * x)


def slope(F, g, x):
    return g * (1 + x * x) ** -1.5


squash = aq.custom_op(squash_forward, vjp={"x": slope}, elementwise=True, name="squash")

# %% [markdown]
# The check computes in float64. It compares what the tape gives with differences of the function along random
# directions, in reverse and in forward mode, and then does the same with the gradient of the gradient. It
# says nothing if all is well.

# %%
some = np.random.default_rng(0).standard_normal((4, 8))
check_grads(squash, some, order=2)

# %% [markdown]
# ## First break: wrong where nobody looks
#
# Someone is afraid of overflow in `x * x` and limits `x` to 3 in the rule. "It's flat out there anyway."


# %%
def careful_slope(F, g, x):
    return g * (1 + F.square(F.minimum(x, 3.0))) ** -1.5


careful = aq.custom_op(squash_forward, vjp={"x": careful_slope}, elementwise=True, name="careful_squash")
check_grads(careful, some, order=2)

# %% [markdown]
# The check passes: of 32 normal numbers none is above 3. An example is only ever an example. A *property* is
# a claim about all inputs, and Hypothesis looks for one that refutes it.
# `aq.testing.strategies` says what inputs there are: shapes, arrays, schemes, tensors, whole programs.

# %%
floats = sts.arrays(sts.shapes(max_dims=2, max_side=4), np.float64, magnitude=8.0)
tried = []


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(floats)
def gradient_is_the_derivative(x):
    tried.append([x, False])
    check_grads(careful, x, order=1)
    tried[-1][1] = True


try:
    gradient_is_the_derivative()
    refuted = None
except GradientMismatch as error:
    refuted = error
print(refuted)

# %% [markdown]
# It was found, and what is reported isn't what was found first but what was left after shrinking: one number,
# and a round one. The message says which operation is to blame and gives lines that reproduce it.
#
# In the picture, each dot is an input that Hypothesis tried, by its largest element. Once an input fails,
# Hypothesis makes it simpler as long as it keeps failing.

# %%
shrunk = next(x for x, passed in reversed(tried) if not passed)
print(f"{len(tried)} inputs tried; the simplest that fails: {shrunk}")

axis = np.linspace(-8, 8, 401)
wrong = (1 + np.minimum(axis, 3) ** 2) ** -1.5
right = (1 + axis**2) ** -1.5
figure, (left, search) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.semilogy(axis, right, color="black", label="the slope")
left.semilogy(axis, wrong, color="#D55E00", ls="--", label="the careful rule")
left.plot(some.ravel(), np.full(some.size, 1.3e-3), "|", color="#0072B2", label="the 32 normal numbers")
left.axvline(shrunk.max(), color="#009E73", lw=1, label="what is left after shrinking")
left.legend(fontsize=8, frameon=False, loc="upper left")
left.set_ylim(1e-3, 30)
left.set_xlabel("x")
left.set_title("Wrong above 3 only", loc="left", fontsize=10)
for passed, colour, name in ((True, "0.6", "passes"), (False, "#D55E00", "fails")):
    dots = [(i, np.max(x), x.size) for i, (x, ok) in enumerate(tried) if ok == passed and x.size]
    at, largest, size = np.array(dots).T
    search.scatter(at, largest, s=12 + 6 * size, color=colour, label=name, alpha=0.7)
search.axhline(3, color="0.5", lw=1, ls="--")
search.set_xlabel("attempt")
search.set_ylabel("largest element")
search.legend(fontsize=8, frameon=False, loc="upper left")
_ = search.set_title("The search, dots as large as the array", loc="left", fontsize=10)

# %% [markdown]
# ## Second break: wrong only when it's quantized
#
# There is a well-known trick: the slope is a function of the *output*, $(1 - y^2)^{3/2}$, so keep the output
# and save the recomputation. And the output is packed already, so keep it packed. In autoq a rule can't read
# its output, for a reason that we are about to see, but a `residual` may keep anything.


# %%
def packed_output(values, static):
    (x,) = values
    if isinstance(x, aq.QTensor):
        return {"y": aq.QTensor.encode(squash_forward(x.dequantize()), x.scheme)}
    return {"y": squash_forward(x)}


def slope_from_output(F, g, y):
    y = y.dequantize() if isinstance(y, aq.QTensor) else y
    return g * (1 - y * y) ** 1.5


thrifty = aq.custom_op(
    squash_forward,
    vjp={"x": slope_from_output},
    residual=packed_output,
    elementwise=True,
    name="thrifty_squash",
)


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(floats)
def thrifty_gradient_is_the_derivative(x):
    check_grads(thrifty, x, order=1)


thrifty_gradient_is_the_derivative()
print("60 inputs, no complaint")

# %% [markdown]
# On floats the trick is right, whatever the input. On a quantized signal the output has been *rounded*, and
# $1 - y^2$ of a rounded $y$ near 1 is mostly rounding. But how would one check that? The program now
# contains a staircase, and differences of a staircase are zero or infinite.
#
# `through_rounding=True` runs the program once and writes down, for each rounding, what went in, $v_0$, and
# what came out, $q_0$. Then it takes differences of the program in which each rounding is replaced by
# $q_0 + (v - v_0)$. That function is smooth, and its true derivative is the straight-through gradient
# ([tutorial 4](04_straight_through_gradients.py) draws it). So the check is as sharp as for floats.


# %%
def quantized(op, scheme):
    return lambda x: op(x.quantize(scheme)) * 1.5


signal = np.random.default_rng(0).standard_normal((2, 32))
try:
    check_grads(quantized(thrifty, aq.mxfp8), signal, order=1, through_rounding=True)
    rounding_error = None
except GradientMismatch as error:
    rounding_error = error
print(str(rounding_error)[:430], "...")

# %% [markdown]
# How wrong is it? The slope from the packed output beside the slope at the decoded operand:

# %%
line = np.linspace(-4, 4, 640, dtype=np.float32)
q = aq.tensor(line, requires_grad=True)


def slope_of(op, scheme):
    return aq.grad(lambda x: op(x.quantize(scheme)).dequantize().sum())(q).numpy()


figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for ax, scheme in zip(axes, (aq.mxfp8, aq.mxfp4), strict=True):
    ax.plot(line, slope_of(thrifty, scheme), color="#D55E00", lw=1, label="from the packed output")
    ax.plot(line, slope_of(squash, scheme), color="black", lw=1.2, label="at the decoded operand")
    ax.set_title(scheme.name, loc="left", fontsize=10)
    ax.set_xlabel("x")
axes[0].set_ylabel("slope")
axes[0].legend(fontsize=8, frameon=False)

# %% [markdown]
# In four bits the slope is zero wherever the output rounds to 1, and the operation stops learning there.
#
# ## The property that holds
#
# The honest rule, over formats and shapes, twice differentiated: nothing is found.

# %%
signals = sts.arrays(sts.shapes(max_dims=2, last=32), np.float64, magnitude=4.0)
checked = []


@settings(max_examples=25, derandomize=True, database=None, deadline=None)
@given(signals, sts.schemes())
def straight_through_gradient_is_right(x, scheme):
    check_grads(quantized(squash, scheme), x, order=2, through_rounding=True, allow_vacuous=True)
    checked.append(scheme.name)


straight_through_gradient_is_right()
print({name: checked.count(name) for name in sorted(set(checked))})

# %% [markdown]
# `allow_vacuous=True` is there because Hypothesis likes zeros: a signal of zeros rounds to itself, and
# without it the check refuses such a program, since it would prove nothing.
#
# The last strategy makes the programs themselves: operations, views and casts on mixed types, drawn at
# random. This is one, and what follows is how autoq checks itself.

# %%
programs = []


@settings(max_examples=10, derandomize=True, database=None, deadline=None)
@given(sts.programs())
def programs_differentiate_through_rounding(program):
    check_grads(program, *program.inputs, order=1, through_rounding=True, allow_vacuous=True)
    programs.append(program)


programs_differentiate_through_rounding()
print(max(programs, key=lambda program: len(program.steps)))

# %% [markdown]
# What the check proves is that the gradient is the declared estimator's, through any depth of quantized
# signal. That the estimator helps a training is another question; tutorial 3 measures that.
#
# ## What this tutorial claims

# %%
assert refuted is not None
assert "careful_squash" in str(refuted)
assert shrunk.size == 1
assert 3 < shrunk.item() <= 4
assert rounding_error is not None
assert "thrifty_squash" in str(rounding_error)
assert len(checked) >= 25
assert len(set(checked)) >= 4
assert len(programs) >= 10
assert np.count_nonzero(slope_of(thrifty, aq.mxfp4) == 0) > 100
assert np.count_nonzero(slope_of(squash, aq.mxfp4) == 0) == 0
print("all of it holds")
