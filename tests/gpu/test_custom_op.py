"""A custom operation with kernels of its own, as the docs describe it, on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda import launch
from tests.custom.page import names

pytestmark = pytest.mark.gpu


def test_values_and_gradients_are_near_the_cpus_in_one_launch_each(cupy: Any) -> None:
    rng, op = np.random.default_rng(0), names()["bias_gelu"]
    data, shift = (
        rng.standard_normal((300, 130)).astype(np.float32),
        rng.standard_normal(130).astype(np.float32),
    )
    found = []
    for device in ("cpu", "cuda"):
        x = aq.tensor(data, device=device, requires_grad=True)
        bias = aq.tensor(shift, device=device, requires_grad=True)
        before = launch.launches
        out = op(x, bias)
        assert launch.launches - before == (device == "cuda")
        out.sum().backward()
        found.append((out.numpy(), x.grad.numpy(), bias.grad.numpy()))  # type: ignore[union-attr]
    for there, here, tolerance in zip(found[1], found[0], (1e-6, 1e-6, 1e-4), strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-5, atol=tolerance)


def test_packed_operands_are_encoded_once(cupy: Any) -> None:
    rng, op = np.random.default_rng(0), names()["bias_gelu"]
    x = aq.tensor(rng.standard_normal((64, 128)).astype(np.float32), device="cuda")
    bias = aq.tensor(rng.standard_normal(128).astype(np.float32), device="cuda").inhibit()
    out = op(x.quantize(aq.mxfp8), bias)
    assert out.dtype == aq.mxfp8
    dense = op(x.quantize(aq.mxfp8).dequantize(), bias)
    assert out.qtensor.to("cpu").same_bits(dense.quantize(aq.mxfp8).qtensor.to("cpu"))
