"""Properties of everything that runs over windows, for any sizes, strides, paddings and dilations."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

import autoq as aq
from autoq.ops.windows import fold, unfold, windows


@st.composite
def geometries(draw):
    """Extents and windows of one or two axes of which at least one window fits."""
    rank = draw(st.integers(1, 2))

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, stride, dilation = each(1, 3), each(1, 4), each(1, 3)
    padding = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(rank))
    least = [d * (k - 1) + 1 - sum(p) for k, d, p in zip(kernel, dilation, padding, strict=True)]
    sizes = tuple(draw(st.integers(max(n, 1), max(n, 1) + 4)) for n in least)
    return sizes, {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}


def data(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


@given(geometries())
def test_fold_is_the_adjoint_of_unfold(geometry):
    sizes, at = geometry
    x = data(0, 2, *sizes)
    columns = unfold(x, **at)
    y = data(1, *columns.shape)
    np.testing.assert_allclose(np.sum(columns * y), np.sum(x * fold(y, sizes=sizes, **at)), atol=1e-10)


@given(geometries())
def test_convolution_is_the_product_of_filters_and_unfolded_windows(geometry):
    sizes, at = geometry
    x, w = data(0, 2, 3, *sizes), data(1, 4, 3, *at["kernel"])
    conv = {1: aq.conv1d, 2: aq.conv2d}[len(sizes)]
    y = conv(x, w, stride=at["stride"], padding=at["padding"], dilation=at["dilation"]).numpy()
    columns = unfold(x, **at)  # (kernel values, n, c, *out)
    expected = np.einsum("kncz,mck->nmz", columns.reshape(*columns.shape[:3], -1), w.reshape(4, 3, -1))
    np.testing.assert_allclose(y.reshape(2, 4, -1), expected, atol=1e-12)
    assert y.shape[2:] == windows("conv", sizes, **at).out


@given(geometries())
def test_convolution_is_linear_in_each_of_three_arrays(geometry):
    sizes, at = geometry
    placed = {name: at[name] for name in ("stride", "padding", "dilation")}
    rank, groups = len(sizes), 2
    x = aq.tensor(data(0, 2, 4, *sizes), requires_grad=True)
    w = aq.tensor(data(1, 6, 2, *at["kernel"]), requires_grad=True)
    y = getattr(aq, f"conv{rank}d")(x, w, groups=groups, **placed)
    g = data(2, *y.shape)
    y.backward(g)
    total = np.sum(y.numpy() * g)
    np.testing.assert_allclose(np.sum(x.grad.numpy() * x.numpy()), total, atol=1e-9)
    np.testing.assert_allclose(np.sum(w.grad.numpy() * w.numpy()), total, atol=1e-9)
    out = windows("conv", sizes, **at).out
    steps = zip(sizes, out, at["kernel"], at["stride"], at["dilation"], at["padding"], strict=True)
    over = tuple(n + sum(p) - ((o - 1) * s + d * (k - 1) + 1) for n, o, k, s, d, p in steps)
    up = getattr(aq, f"conv_transpose{rank}d")(g, w, output_padding=over, groups=groups, **placed)
    np.testing.assert_allclose(up.numpy(), x.grad.numpy(), atol=1e-12)


@given(geometries(), st.booleans())
def test_pools_reduce_unfolded_windows(geometry, quantized):
    sizes, at = geometry
    at["padding"] = tuple(
        (low % (k // 2 + 1),) * 2 for (low, _), k in zip(at["padding"], at["kernel"], strict=True)
    )
    assume(not any(n + 2 * p < k for n, k, (p, _) in zip(sizes, at["kernel"], at["padding"], strict=True)))
    x = aq.tensor(data(0, 2, *sizes).astype(np.float32), dtype=aq.mxfp8 if quantized else None)
    given_windows = (at["kernel"], at["stride"], at["padding"])
    columns = {**at, "dilation": 1}
    rank = len(sizes)
    largest = getattr(aq, f"max_pool{rank}d")(x, *given_windows, out_dtype=aq.float32)
    np.testing.assert_array_equal(largest.numpy(), unfold(x.numpy(), fill=-np.inf, **columns).max(0))
    mean = getattr(aq, f"avg_pool{rank}d")(x, *given_windows, out_dtype=aq.float32)
    np.testing.assert_allclose(mean.numpy(), unfold(x.numpy(), **columns).mean(0), atol=1e-6)


@given(st.integers(1, 12), st.integers(1, 14))
def test_the_bins_of_adaptive_pools_cover_the_axis_in_order(extent, count):
    shares = aq.tensor(np.eye(extent), requires_grad=True)
    bins = aq.adaptive_avg_pool1d(shares, count).numpy()
    np.testing.assert_allclose(bins.sum(0), 1)  # a mean
    first = (bins > 0).argmax(0)
    assert (np.diff(first) >= 0).all()
    assert (bins > 0).any(1).all()  # every value is in a bin
