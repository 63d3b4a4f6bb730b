"""Einsums on the device: those of the CPU, forward and back, as matrix products."""

from __future__ import annotations

import numpy as np
import pytest

import autoq as aq

pytestmark = pytest.mark.gpu
CASES = [
    ("ij,jk->ik", (30, 40), (40, 50)),
    ("bhqd,bhkd->bhqk", (2, 3, 17, 32), (2, 3, 19, 32)),
    ("ij,jk,kl->li", (20, 30), (30, 10), (10, 5)),
    ("i,j->ij", (70,), (33,)),
    ("...i,...i->...", (5, 6, 40), (5, 6, 40)),
    ("iij,j->i", (12, 12, 7), (7,)),
    ("ii", (9, 9)),
    ("ij->j", (31, 65)),
    ("bij,bjk->k", (3, 4, 5), (3, 5, 6)),
    ("ij,jk->ik", (0, 4), (4, 3)),
    ("ij,jk->ik", (2, 0), (0, 3)),
]


@pytest.mark.parametrize("dtype", [aq.float32, aq.float64], ids=lambda d: d.name)
@pytest.mark.parametrize(("subscripts", "shapes"), [(case[0], case[1:]) for case in CASES])
def test_an_einsum_is_that_of_the_cpu(subscripts, shapes, dtype):
    rng, found = np.random.default_rng(0), []
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    for device in ("cuda", "cpu"):
        operands = [aq.tensor(x, device=device, requires_grad=True) for x in arrays]
        y = aq.einsum(subscripts, *operands)
        (y * y).sum().backward()
        found.append([y.numpy(), *[x.grad.numpy() for x in operands]])
    tolerance = 1e-4 if dtype == aq.float32 else 1e-10
    for a, b in zip(*found, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_packed_operands_and_precision():
    x = np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)
    q, w = aq.tensor(x, device="cuda").quantize("mxfp8"), aq.tensor(x, device="cuda")
    expected = q.numpy() @ x.T
    np.testing.assert_allclose(aq.einsum("ij,kj->ik", q, w).numpy(), expected, rtol=1e-4, atol=1e-4)
    assert aq.einsum("ij,kj->ik", q, w).device == "cuda"


def test_integers():
    x = aq.tensor([[1, 2], [3, 4]], device="cuda")
    assert aq.einsum("ij,jk->ik", x, x).tolist() == [[7, 10], [15, 22]]
    assert aq.einsum("ij->i", x).tolist() == [3, 7]
