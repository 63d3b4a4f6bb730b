"""The cross-entropy on the device, against the CPU's: values, gradients, launches."""

from __future__ import annotations

import os

import numpy as np
import pytest

import autoq as aq
from autoq.kernels.cuda import launch, losses

SMALL = os.environ.get("AUTOQ_TEST_SANITIZER") == "1"
SHAPES = [(1, 1), (3, 10), (64, 130)] if SMALL else [(1, 1), (3, 10), (64, 130), (1000, 1000), (33, 50257)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("smoothing", "ignored"), [(0.0, None), (0.1, 0), (0.2, None)])
def test_losses_and_gradients(shape, reduction, smoothing, ignored):
    rng = np.random.default_rng(0)
    x, labels = 3 * rng.standard_normal(shape).astype(np.float32), rng.integers(0, shape[1], shape[0])
    options = {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": ignored}
    found = []
    for device in ("cpu", "cuda"):
        logits = aq.tensor(x, device=device, requires_grad=True)
        before = launch.launches
        loss = aq.cross_entropy(logits, labels, **options)
        if device == "cuda":
            assert launch.launches - before == (1 if reduction == "none" else 2)
        loss.sum().backward()
        found.append((loss.numpy(), logits.grad.numpy()))
    for here, there in zip(*found, strict=True):
        assert np.allclose(here, there, rtol=2e-5, atol=2e-6 * max(1.0, np.abs(here).max()))


@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp6_e3m2", "nvfp4", "int8"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_packed_logits_and_labels_of_any_integers(scheme, dtype):
    rng = np.random.default_rng(1)
    x, labels = rng.standard_normal((40, 96)).astype(np.float32), rng.integers(0, 96, 40).astype(dtype)
    packed = aq.tensor(x, device="cpu").quantize(scheme)
    here = aq.cross_entropy(packed, labels)
    there = aq.cross_entropy(packed.to("cuda"), aq.tensor(labels, device="cuda"))
    assert there.numpy() == pytest.approx(here.numpy(), rel=1e-5)


def test_a_label_that_is_no_class_gives_nan(cupy):
    x, out = cupy.zeros((3, 5), np.float32), cupy.zeros(3, np.float32)
    assert losses.losses(x, cupy.asarray(np.array([5, -1, 4])), out)
    assert np.isnan(out.get()).tolist() == [True, True, False]


def test_every_run_has_the_same_bits():
    rng = np.random.default_rng(2)
    x, labels = (
        aq.tensor(rng.standard_normal((5000, 100)).astype(np.float32), device="cuda"),
        rng.integers(0, 100, 5000),
    )
    found = {aq.cross_entropy(x, labels).numpy().tobytes() for _ in range(5)}
    assert len(found) == 1
