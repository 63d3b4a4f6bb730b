# %% [markdown]
# # Where did my dtype go?
#
# A program starts from an MXFP8 signal, and what comes out is float32: somewhere the signal was decoded and
# stayed decoded. This tutorial has such a program, finds the places with `aq.explain`, repairs them one by
# one, and lets strict mode keep them repaired.
#
# ## A program that loses its dtype
#
# One block of a small transformer, written the way one writes NumPy. Its weights are plain tensors.

# %%
import matplotlib.pyplot as plt
import numpy as np

import autoq as aq

WIDTH, TOKENS = 64, 16
rng = np.random.default_rng(0)


def weight(*shape):
    return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


tokens = aq.tensor(rng.standard_normal((TOKENS, WIDTH)).astype(np.float32))
signal = tokens.quantize(aq.mxfp8)
project, up, down = weight(WIDTH, WIDTH), weight(WIDTH, 2 * WIDTH), weight(2 * WIDTH, WIDTH)


def careless(x):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / (centred * centred).mean(-1, keepdims=True).sqrt()
    heads = (scaled @ project).reshape(TOKENS, 4, 16)
    first, rest = heads[:, 0], heads[:, 1:].reshape(TOKENS, -1)
    mixed = aq.concat([rest, first], 1) + x
    gain = aq.tensor(np.full(WIDTH, 0.5, np.float16))
    return ((mixed * gain) @ up).gelu() @ down


result = careless(signal)
print(signal.dtype.name, "went in,", result.dtype.name, "came out")

# %% [markdown]
# ## Ask
#
# `aq.explain` runs the function once and lists what each operation did. The last column names the rule that
# decided the type of the result, and who voted.

# %%
before = aq.explain(careless, signal)
before

# %% [markdown]
# Read it from the top, looking for the first output that isn't `mxfp8`.
#
# The means are `float32 (i)`: statistics along the last axis don't vote, so `x - x.mean(...)` stays MXFP8.
# That one is in order. The culprit is the first product:

# %%
lost = next(step for step in before if step.op == "matmul")
print(lost.inputs, "->", lost.type)
print(lost.why)

# %% [markdown]
# *The widest of a mxfp8, b float32.* A NumPy array that meets a tensor is an input like any other. Inputs
# vote, and of two dtypes the wider one wins. Weights shouldn't vote: that is what parameters are for.
#
# ## Three repairs
#
# 1. **Weights are parameters.** `aq.Parameter` inhibits: its dtype takes no part in the vote. Modules make
#    their weights so.
# 2. **A constant is a Python number** where one is enough. Numbers never vote. Where an array is needed,
#    `.inhibit()` silences it. The float16 `gain` above would have turned the signal into float16.
# 3. **Cut where blocks end.** MXFP8 has a scale for each 32 values along the last axis. Heads of 16 cut
#    blocks in two; heads of 32 don't.

# %%
W = {"project": aq.Parameter(project), "up": aq.Parameter(up), "down": aq.Parameter(down)}


def careful(x):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / (centred * centred).mean(-1, keepdims=True).sqrt()
    heads = (scaled @ W["project"]).reshape(TOKENS, 2, 32)
    first, rest = heads[:, 0], heads[:, 1:].reshape(TOKENS, -1)
    mixed = aq.concat([rest, first], 1) + x
    return ((mixed * 0.5) @ W["up"]).gelu() @ W["down"]


after = aq.explain(careful, signal)
after

# %% [markdown]
# MXFP8 from end to end, and no operation decoded a signal only to move it: the heads are split by a *view*
# and joined by a *copy* of codes. With heads of 16 the table would have shown it, as `decode` in the column
# *how*, with a line at the end that says which operation cut which blocks:

# %%
cut = aq.explain(lambda x: x.reshape(TOKENS, 4, 16)[:, 1:].reshape(TOKENS, -1), signal)
cut

# %% [markdown]
# Both programs in a picture: the width of every result, in bits a value.


# %%
def bits(step):
    dtype = step.type.dtype
    return dtype.element_bits if step.type.is_quantized else 8 * dtype.itemsize


figure, axes = plt.subplots(2, 1, figsize=(9, 5), sharey=True, layout="constrained")
colours = {"mxfp8": "#0072B2", "float32": "#D55E00"}
for ax, explained, name in zip(axes, (before, after), ("Before", "After"), strict=True):
    for step in explained:
        inhibits = not step.type.propagates
        ax.bar(
            step.position,
            bits(step),
            color="0.8" if inhibits else colours[step.type.dtype.name],
            hatch="//" if step.reencoded else "",
            edgecolor="white",
        )
    ax.set_xticks(range(len(explained)), [s.op for s in explained], rotation=50, ha="right", fontsize=8)
    ax.set_yticks([8, 16, 32])
    ax.set_ylabel("bits a value")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(name, loc="left", fontsize=10)
names = [*colours, "inhibiting"]
handles = [plt.Rectangle((0, 0), 1, 1, color=c) for c in (*colours.values(), "0.8")]
_ = axes[1].legend(handles, names, fontsize=8, frameon=False, ncols=3, loc="upper right")

# %% [markdown]
# ## Keep it so
#
# Widening is the default because it never loses digits. Where a program is meant to have one dtype, strict
# mode turns every disagreement between two voters into an error that names the operation and both dtypes.

# %%
with aq.dtype_resolution("strict"):
    kept = careful(signal)
    try:
        careless(signal)
        said = ""
    except aq.errors.ResolutionError as error:
        said = str(error)
print(said)

# %% [markdown]
# Sometimes a wider result is wanted: logits, or a sum over many values. `out_dtype=` says so at one call,
# and strict mode has nothing against it.

# %%
with aq.dtype_resolution("strict"):
    logits = aq.matmul(kept, W["up"], out_dtype=aq.float32)
print(logits.dtype)

# %% [markdown]
# ## What it saves
#
# The repaired program, tracked, on a float32 signal and on an MXFP8 one: what the tape keeps
# for backward beside the weights.

# %%
tracked = aq.tensor(tokens, requires_grad=True)
weights = sum(w.nbytes for w in W.values())
saved = {
    "float32": aq.explain(careful, tracked).saved_bytes - weights,
    "mxfp8": aq.explain(careful, tracked.quantize(aq.mxfp8)).saved_bytes - weights,
}
print(saved)

# %% [markdown]
# ## What this tutorial claims

# %%
assert result.dtype == aq.float32
assert lost.why.startswith("S7: the widest of")
propagating = [step.type.dtype for step in after if step.type.propagates]
assert set(propagating) == {aq.mxfp8}
assert not after.reencoded
assert len(cut.reencoded) >= 1
assert "matmul" in said
assert "float32" in said
assert kept.dtype == aq.mxfp8
assert logits.dtype == aq.float32
assert saved["mxfp8"] < 0.4 * saved["float32"]
print("all of it holds")
