# %% [markdown]
# # Numbers in blocks
#
# Eight, six or four bits can't hold a useful range and a useful precision at once. Block formats split the
# work: each value has a small *element*, and a block of neighbours shares one *scale*. This tutorial looks
# at what such a block can represent, at how its scale is chosen, and at what that does to real numbers.
#
# ## Which values exist

# %%
import matplotlib.pyplot as plt
import numpy as np

import autoq as aq

aq.scheme("mxfp4").element_format.values

# %% [markdown]
# MXFP4 has sixteen codes: sign, two exponent bits, one mantissa bit. With the block's largest magnitude set
# to 1, this is what each format offers. On the evenly spaced axis, integers are regular and small floats
# crowd towards zero. On the axis of octaves it is the other way round: floats keep a similar *relative*
# precision over several octaves, then run out.

# %%
aq.viz.representable_values(
    "int4", "mxfp4", "mxfp6_e2m3", "mxfp6_e3m2", "int8", "mxfp8", "mxfp8_e5m2"
)

# %% [markdown]
# ## What a block costs
#
# One scale of 8 bits for 32 values adds a quarter of a bit to each. Smaller blocks follow the data more
# closely and cost more. The number of bits is exact, because the storage is: words hold the codes without
# gaps.

# %%
values = np.random.default_rng(0).standard_normal((256, 64), dtype=np.float32)
for scheme in (aq.mxint8, aq.mxfp8, aq.mxfp6_e2m3, aq.nvfp4, aq.mxfp4, aq.int4):
    q = aq.QTensor.quantize(values, scheme)
    error = aq.viz.tensor_error(scheme.name, values, q)
    print(
        f"{scheme.name:11} {q.bits_per_value:5.2f} bits a value   {error.sqnr:5.1f} dB signal to noise"
    )

# %% [markdown]
# Each bit of precision is worth 6 dB. Of precision, not of width: e4m3 and e2m3 both have three mantissa
# bits, so MXFP8 and MXFP6 do equally well here. The two exponent bits that MXFP8 has more buy range, and
# normally distributed data doesn't need it. MXINT8 spends its eight bits on precision alone. NVFP4 spends a
# quarter of a bit more than MXFP4 on smaller blocks and a finer scale, and gains almost 2 dB.
#
# ## One large neighbour
#
# The scale follows the largest magnitude of a block, so an outlier takes the precision of its neighbours.
# The others are unaffected: that is what blocks are for.

# %%
calm = values[:1].copy()
spoiled = calm.copy()
spoiled[0, 5] = 100.0
for name, line in (("calm", calm), ("with an outlier", spoiled)):
    kept = aq.QTensor.quantize(line, aq.mxfp4).dequantize()
    first, second = (
        np.mean((kept - line)[0, part] == -line[0, part])
        for part in (slice(0, 32), slice(32, 64))
    )
    print(
        f"{name:16} flushed to zero: {100 * first:3.0f} % of block one, {100 * second:3.0f} % of block two"
    )

# %% [markdown]
# ## How a scale is chosen
#
# An MX scale is a power of two. Between two powers someone has to decide, and implementations disagree.
# `floor` is the MX specification's rule: it takes the scale that fits the largest *power of two*, so a
# value above the largest element saturates. `round_up`, the default here, takes the least scale under which
# nothing saturates.

# %%
aq.viz.scale_rules("mxfp4")

# %% [markdown]
# Each panel follows the largest value of a block, from 6 to 24: where the curve is at 1, it survives. The
# saw teeth are rounding, and no rule avoids them. What `floor` adds is saturation: a value of just under 8
# comes back as 6, three quarters of itself. `ceil` never saturates but wastes up to an octave: between 6
# and 8 it takes the scale 2, and 4 from there on, where `round_up` still takes 2. `even` rounds the value
# to the element's precision before it decides.
#
# ## Which is better?
#
# Saturating hurts the few largest values a lot; the larger scale hurts all the others a little. On normally
# distributed data:

# %%
figure, ax = plt.subplots(figsize=(6, 2.4), layout="constrained")
rules = ("floor", "even", "round_up", "ceil")
noise = {}
for rule in rules:
    scheme = aq.mxfp4.replace(scale_rule=rule)
    noise[rule] = aq.viz.tensor_error(
        rule, values, aq.QTensor.quantize(values, scheme)
    )
ax.barh(rules, [noise[rule].sqnr for rule in rules], color="#0072B2", height=0.6)
ax.bar_label(ax.containers[0], fmt="%.2f dB", padding=3)
ax.set_xlim(0, 24)
ax.invert_yaxis()
ax.set_xlabel("SQNR of MXFP4 on normal data, dB")
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# They are closer than the dispute suggests. In training the choice is about something else: a saturated
# value has a gradient that points nowhere useful, and `round_up` has none.
#
# ## What you can rely on
#
# Under MX rules a decoded tensor encodes to itself: passing a signal through a layout change costs nothing
# the first encoding hasn't cost already. And nothing is lost silently: a block with a NaN in it decodes to
# NaN.

# %%
for scheme in (aq.mxfp8, aq.mxfp6_e3m2, aq.mxfp4, aq.mxint8):
    once = aq.QTensor.quantize(values, scheme).dequantize()
    twice = aq.QTensor.quantize(once, scheme).dequantize()
    assert np.array_equal(once, twice), scheme.name
assert noise["round_up"].saturated == 0 < noise["floor"].saturated
assert aq.QTensor.quantize(values, aq.mxfp8).bits_per_value == 8.25
