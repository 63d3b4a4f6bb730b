"""A small network trains in the float under test: dense, as a packed signal, through packed weights."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq

SCHEMES = [None, "mxfp8", "nvfp4", "int4", "fp8_e4m3"]


def problem(float_dtype):
    """64 rows of 32 values, every eighth row zero, and which half of the row is larger."""
    x = np.random.default_rng(0).standard_normal((64, 32), dtype=np.float32)
    x[::8] = 0
    return aq.tensor(x.astype(float_dtype)), (x[:, :16].sum(1) > x[:, 16:].sum(1)).astype(np.int64)


def network(float_dtype, weights=None):
    rng, options = aq.Generator(0), {"weight_scheme": weights, "dtype": float_dtype}
    return aq.nn.Sequential(
        aq.nn.Linear(32, 32, rng=rng, **options),
        aq.nn.ReLU(),
        aq.nn.Linear(32, 2, rng=rng, out_dtype=aq.float32, **options),
    )


def losses(model, x, labels, steps=40):
    optimizer = aq.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = aq.nn.cross_entropy(model(x), labels)
        yield loss.item()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.compiled
@pytest.mark.parametrize("name", SCHEMES)
def test_a_signal_trains(float_dtype, name):
    x, labels = problem(float_dtype)
    signal = x if name is None else x.quantize(aq.scheme(name))
    first, *_, last = losses(network(float_dtype), signal, labels)
    assert last < first / 2


@pytest.mark.parametrize("name", SCHEMES[1:])
def test_packed_weights_train(float_dtype, name):
    x, labels = problem(float_dtype)
    first, *_, last = losses(network(float_dtype, aq.scheme(name)), x, labels)
    assert last < first / 2


@pytest.mark.parametrize("name", SCHEMES)
def test_dtypes_are_those_of_the_signal_and_gradients_those_of_the_parameters(float_dtype, name):
    x, labels = problem(float_dtype)
    signal = x if name is None else x.quantize(aq.scheme(name))
    model = network(float_dtype)
    hidden = model[0](signal)
    assert hidden.dtype == signal.dtype
    aq.nn.cross_entropy(model(signal), labels).backward()
    assert {parameter.grad.dtype for parameter in model.parameters()} == {float_dtype}


def test_the_bytes_do_not_depend_on_the_float_that_values_come_in(float_dtype):
    x, _ = problem(float_dtype)
    for scheme in aq.CATALOG.values():
        wide = aq.tensor(x.numpy().astype(np.float32)).quantize(scheme)
        assert x.quantize(scheme).qtensor.same_bits(wide.qtensor)
