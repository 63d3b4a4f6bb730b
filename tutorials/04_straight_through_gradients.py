# %% [markdown]
# # Straight-through gradients
#
# Rounding is a staircase: its derivative is zero almost everywhere and infinite at the steps. Training
# through it works all the same, with the *straight-through estimator*: in the backward pass the rounding
# counts as the identity. This tutorial draws what that does. Two weights are enough, because the loss over
# two weights is a picture.
#
# ## A loss surface made of terraces
#
# A line through data has two weights. They are rounded to multiples of 1/2, as `int4` with one given scale
# does, and the loss is that of the rounded weights.

# %%
import matplotlib.pyplot as plt
import numpy as np

import autoq as aq

STEP = 0.5
grid = aq.int4.replace(block=None)  # one block: the whole tensor shares the scale

rng = np.random.default_rng(0)
inputs = aq.tensor(rng.standard_normal((64, 2)).astype(np.float32))
target = inputs.numpy() @ np.array([0.8, -0.6], np.float32)


def rounded(w, ste="identity"):
    return w.quantize(grid, scales=np.array([STEP], np.float32), ste=ste).dequantize()


def losses(w):
    """The mean square error of each row of weights; w: (n, 2)."""
    errors = w @ inputs.T - target
    return (errors * errors).mean(-1)


# %% [markdown]
# Every point of the picture is a pair of weights, and all of them are computed at once.

# %%
ticks = np.linspace(-2.2, 2.2, 177, dtype=np.float32)
plane = np.stack(np.meshgrid(ticks, ticks), -1).reshape(-1, 2)
smooth = losses(aq.tensor(plane)).numpy().reshape(len(ticks), -1)
terraced = losses(rounded(aq.tensor(plane))).numpy().reshape(len(ticks), -1)

figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.8), sharey=True, layout="constrained")
levels = np.geomspace(0.05, 14, 14)
for ax, surface, name in zip(
    axes, (smooth, terraced), ("float weights", "weights rounded to 1/2"), strict=True
):
    filled = ax.contourf(ticks, ticks, np.maximum(surface, 0.05), levels, cmap="viridis")
    ax.set_title(f"Loss of {name}", loc="left", fontsize=10)
    ax.set_xlabel("first weight")
    ax.set_aspect("equal")
axes[0].set_ylabel("second weight")
_ = figure.colorbar(filled, ax=axes, label="loss", format="%.2g")

# %% [markdown]
# On a terrace the loss is constant. Its derivative there is exactly zero, and a difference quotient says so.

# %%
start = np.array([[-1.62, 1.4]], np.float32)
h = 1e-3
quotients = [
    (losses(rounded(aq.tensor(start + h * e))).item() - losses(rounded(aq.tensor(start - h * e))).item())
    / (2 * h)
    for e in np.eye(2, dtype=np.float32)
]
print("difference quotients:", quotients)

# %% [markdown]
# ## What the estimator says instead
#
# `aq.grad` passes the rounding straight through. What comes out is no mystery: the rounding counts as the
# identity, so it is the gradient of the *smooth* loss, taken at the *rounded* point.

# %%
estimate = aq.grad(lambda w: losses(rounded(w)).sum())
slope = aq.grad(lambda w: losses(w).sum())

straight_through = estimate(aq.tensor(start)).numpy()
at_the_rounded_point = slope(rounded(aq.tensor(start))).numpy()
print("straight through:    ", straight_through)
print("smooth, where rounded:", at_the_rounded_point)

# %% [markdown]
# So all points of a terrace have the same gradient, that of the smooth loss at the terrace's centre. It
# points off the terrace, toward lower ones.

# %%
coarse = np.linspace(-2.1, 2.1, 15, dtype=np.float32)
points = np.stack(np.meshgrid(coarse, coarse), -1).reshape(-1, 2)
arrows = -estimate(aq.tensor(points)).numpy()

figure, ax = plt.subplots(figsize=(5, 4.6), layout="constrained")
ax.contourf(ticks, ticks, np.maximum(terraced, 0.05), levels, cmap="viridis")
ax.quiver(points[:, 0], points[:, 1], arrows[:, 0], arrows[:, 1], color="white", scale=70, width=0.004)
ax.set_title("Downhill, by the estimator", loc="left", fontsize=10)
ax.set_xlabel("first weight")
ax.set_ylabel("second weight")
ax.set_aspect("equal")

# %% [markdown]
# ## Of which function is this the gradient?
#
# Not of the terraces. But there is one: freeze what the rounding added. At a point `v0` with the rounded
# value `q0`, replace the rounding by `q0 + (v - v0)`: the value at `v0` is right, and around it the rounding
# is a shift. The derivative of *that* function is the straight-through gradient, exactly; it is how
# `aq.testing.check_grads(..., through_rounding=True)` checks programs with any number of roundings.
#
# Along one weight, the other held at −0.6:


# %%
def along(values):
    return np.stack([values, np.full_like(values, -0.6)], -1)


line = np.linspace(-1.2, 2.4, 721, dtype=np.float32)
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.plot(line, losses(aq.tensor(along(line))).numpy(), color="0.65", label="float weight")
ax.plot(line, losses(rounded(aq.tensor(along(line)))).numpy(), color="black", label="rounded weight")
for v0, colour in zip((-0.4, 0.15, 1.85), ("#0072B2", "#D55E00", "#009E73"), strict=True):
    anchor = along(np.array([v0], np.float32))
    shift = rounded(aq.tensor(anchor)).numpy() - anchor
    near = np.linspace(v0 - 0.3, v0 + 0.3, 61, dtype=np.float32)
    ax.plot(near, losses(aq.tensor(along(near) + shift)).numpy(), color=colour, lw=2)
    height = losses(aq.tensor(anchor + shift)).item()
    ax.plot([v0], [height], "o", color=colour, label=f"rounding frozen at {v0}")
ax.set_ylim(0, 3.5)
ax.set_xlabel("first weight")
ax.set_ylabel("loss")
ax.legend(fontsize=8, frameon=False)
_ = ax.set_title(
    "Each frozen curve touches its terrace and has the estimator's slope", loc="left", fontsize=10
)

# %%
shift = rounded(aq.tensor(start)).numpy() - start
wide = aq.tensor(start.astype(np.float64)), shift.astype(np.float64)
frozen = [
    (losses(wide[0] + h * e + wide[1]).item() - losses(wide[0] - h * e + wide[1]).item()) / (2 * h)
    for e in np.eye(2)
]
print("difference quotients of the frozen function:", frozen)

# %% [markdown]
# ## Walking down
#
# Gradient descent keeps the weights in float, the *master weights*, and rounds them in every forward pass.
# With the true derivative nothing would ever move. With the estimator, the master weights move and now and
# then the rounded ones step over an edge.


# %%
def descend(w, gradient, steps=60, rate=0.08):
    path = [w]
    for _ in range(steps):
        w = w - rate * gradient(aq.tensor(w)).numpy()
        path.append(w)
    return np.concatenate(path)


path = descend(start, estimate)
steps_loss = losses(rounded(aq.tensor(path))).numpy()
best = terraced.min()
print(
    f"loss {steps_loss[0]:.2f} at the start, {steps_loss[-10:].min():.4f} at the end; "
    f"the lowest terrace has {best:.4f}"
)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
axes[0].contourf(ticks, ticks, np.maximum(terraced, 0.05), levels, cmap="viridis")
axes[0].plot(path[:, 0], path[:, 1], ".-", color="white", lw=1, ms=4)
axes[0].plot(*start[0], "o", color="#E69F00")
axes[0].set_aspect("equal")
axes[0].set_title("The master weights", loc="left", fontsize=10)
axes[1].plot(path[:, 1], color="0.6", label="second master weight")
axes[1].step(
    np.arange(len(path)),
    rounded(aq.tensor(path)).numpy()[:, 1],
    where="post",
    color="black",
    label="as it is rounded",
)
axes[1].axhline(-0.6, color="#D55E00", lw=1, label="where the float loss is least")
axes[1].set_xlabel("step")
axes[1].legend(fontsize=8, frameon=False)
_ = axes[1].set_title("It never comes to rest", loc="left", fontsize=10)

# %% [markdown]
# The right picture shows the price. The least loss lies between two terraces, at −0.6. On −0.5 the estimator
# says *down*, on −1 it says *up*, so the master weight ends up trembling about the edge between the two, at
# −0.75, and the rounded weight jumps back and forth. A smaller learning rate makes the tremor finer and
# doesn't end it; a learning rate that falls to zero does.
#
# ## Beyond the largest code
#
# `int4` ends at 7 steps, here at 3.5. Weights beyond it *saturate*. The identity passes their gradient on, so
# that the loss can pull them back. `ste="clip"` sets it to zero; a weight out there stays where it is.

# %%
outside = np.array([[5.0, -0.6]], np.float32)
clipped = aq.grad(lambda w: losses(rounded(w, "clip")).sum())
by_identity = descend(outside, estimate)
by_clip = descend(outside, clipped)

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(by_identity[:, 0], color="#0072B2", label='ste="identity"')
ax.plot(by_clip[:, 0], color="#D55E00", label='ste="clip"')
ax.axhline(3.5, color="0.6", lw=1, ls="--")
ax.text(60, 3.6, "largest code", ha="right", fontsize=8, color="0.4")
ax.set_xlabel("step")
ax.set_ylabel("first master weight")
ax.legend(fontsize=8, frameon=False)
_ = ax.set_title("A weight that starts outside", loc="left", fontsize=10)

# %% [markdown]
# Neither is right by itself: the identity claims a slope where the loss is flat, and clipping leaves a stray
# weight alone. The estimator is an argument of the cast, so each place in a program can have its own.
#
# ## What this tutorial claims

# %%
assert quotients == [0.0, 0.0]
assert np.array_equal(straight_through, at_the_rounded_point)
np.testing.assert_allclose(frozen, straight_through[0], rtol=1e-5)
assert steps_loss[0] > 5
assert steps_loss[-10:].min() == best
edge = path[-20:, 1]
assert edge.max() - edge.min() < 0.2
assert abs(edge.mean() + 0.75) < 0.1
assert len(np.unique(rounded(aq.tensor(path[-20:])).numpy()[:, 1])) == 2
assert by_identity[-1, 0] < 1.5
assert np.array_equal(by_clip[-1], [5.0, by_clip[-1, 1]])
print("all of it holds")
