# %% [markdown]
# # Training with a quantized signal
#
# The networks that `make train` trains, step by step: real scans of handwritten digits, a small network,
# and activations that are packed from the first layer to the logits. At the end we know what this costs in
# accuracy and what it saves in memory, measured.
#
# ## Data

# %%
import matplotlib.pyplot as plt
import numpy as np

import autoq as aq
from autoq.train.digits import Recipe, as_signal, build, evaluate, train
from autoq.train.measure import network_errors, tape_cost

digits = aq.data.digits(seed=0)
print(
    f"{len(digits.train_x)} scans to train on, {len(digits.test_x)} to test on, "
    f"{digits.train_x.shape[1]} grey values each"
)

figure, axes = plt.subplots(1, 10, figsize=(9, 1.2))
for ax, image, label in zip(axes, digits.train_x, digits.train_y, strict=False):
    ax.imshow(image.reshape(8, 8), cmap="gray_r")
    ax.set_title(label, fontsize=9)
    ax.axis("off")

# %% [markdown]
# ## The signal
#
# The input is encoded once. Every width is a multiple of 32, so each row is whole blocks.

# %%
x = aq.tensor(digits.train_x[:64]).quantize(aq.mxfp8)
print(x, x.qtensor.nbytes, "bytes instead of", digits.train_x[:64].nbytes)

# %% [markdown]
# The layers' weights are parameters, and parameters don't vote on dtypes. So the signal passes through the
# layers as what it is, until the last layer asks for float32: logits feed a loss, and an MXFP8 logit near
# 30 has steps of 2.

# %%
model = build(Recipe(signal="mxfp8", weights="nvfp4"))
print(model)
signal = x
for layer in model:
    signal = layer(signal)
    print(
        f"{type(layer).__name__:7} {str(signal.shape):10} {getattr(signal.dtype, 'name', signal.dtype)}"
    )

# %% [markdown]
# ## The tape
#
# What one step keeps for its backward pass. Packed operands are kept packed.

# %%
loss = aq.nn.cross_entropy(model(x), digits.train_y[:64])
print(aq.Tape.of(loss))

# %% [markdown]
# ## A step
#
# Forward, backward, update. The weight that is trained is float32; each forward pass encodes it to NVFP4
# and computes with exactly those numbers, and the gradient passes straight through the rounding.

# %%
optimizer = aq.optim.AdamW(model.parameters(), lr=3e-3)
for number in range(5):
    loss = aq.nn.cross_entropy(model(x), digits.train_y[:64])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {number}: loss {loss.item():.3f}")

# %% [markdown]
# ## Three runs
#
# `train` is this loop over shuffled batches, with a learning rate that falls along half a cosine. The same
# seed means the same split, the same starting weights and the same order of batches, so the runs differ
# only in their formats.

# %%
recipes = [
    Recipe(epochs=25),
    Recipe("mxfp8", epochs=25),
    Recipe("mxfp8", "nvfp4", epochs=25),
]
results = {recipe.name: train(recipe, digits) for recipe in recipes}
for name, result in results.items():
    cost = tape_cost(
        result.model, result.recipe, digits.train_x[:64], digits.train_y[:64]
    )
    print(
        f"{name:28} accuracy {100 * result.test_accuracy[-1]:.1f} %   "
        f"{cost.activation_bits:5.2f} bits an activation, {cost.saved_bytes:6,} bytes on the tape"
    )

# %%
aq.viz.loss_curves(
    {name: result.train_loss for name, result in results.items()},
    {name: result.test_loss for name, result in results.items()},
)

# %% [markdown]
# ## Where the error comes from
#
# For each tensor of the network: the ratio of signal to rounding noise, the share of values that saturate
# and the share that are flushed to zero. Each layer is compared with itself in float32 on the same packed
# input, so that an entry shows its own rounding only.

# %%
aq.viz.quantization_error(
    {
        name: network_errors(result.model, result.recipe, digits.test_x)
        for name, result in list(results.items())[1:]
    }
)

# %% [markdown]
# The four-bit weights are some 10 dB noisier than the eight-bit signal, and yet the accuracy hardly moves:
# the network was trained with the rounding in place and has arranged itself around it. Applied *after*
# training, the same rounding costs more:

# %%
plain = results["float32"]
quantized_afterwards = build(Recipe(weights="int2"))
quantized_afterwards.load_state_dict(plain.model.state_dict())
_, before = evaluate(plain.model, plain.recipe, digits.test_x, digits.test_y)
_, after = evaluate(quantized_afterwards, plain.recipe, digits.test_x, digits.test_y)
trained = train(Recipe(weights="int2", epochs=25), digits)
print(
    f"float weights {100 * before:.1f} %, int2 afterwards {100 * after:.1f} %, int2 while training "
    f"{100 * trained.test_accuracy[-1]:.1f} %"
)

# %% [markdown]
# ## What this tutorial claims

# %%
accuracy = {name: result.test_accuracy[-1] for name, result in results.items()}
assert accuracy["float32"] >= 0.96
assert accuracy["mxfp8 signal"] >= accuracy["float32"] - 0.02
assert as_signal(digits.test_x, Recipe("mxfp8")).qtensor.bits_per_value == 8.25
assert trained.test_accuracy[-1] > after
bits = tape_cost(
    results["mxfp8 signal"].model,
    Recipe("mxfp8"),
    digits.train_x[:64],
    digits.train_y[:64],
)
assert bits.activation_bits <= 8.32, "activations on the tape are packed"
assert np.isfinite(results["mxfp8 signal, nvfp4 weights"].test_loss).all()
