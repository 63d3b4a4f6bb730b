"""Decoding four codes at once: what stands for instructions equals the formats' tables on every code."""

from __future__ import annotations

import numpy as np
import pytest

from autoq.kernels.cuda.decode import inside_half, is_e4m3, quad_decoder, to_bfloats, to_halves
from autoq.schemes import ELEMENTS, QuantScheme
from autoq.storage.plan import codec_of


@pytest.mark.parametrize("converts", [False, True])
@pytest.mark.parametrize("name", sorted(ELEMENTS))
def test_every_code_in_every_place(name: str, converts: bool) -> None:
    codec = codec_of(QuantScheme(name)).element
    decode, values, bits = quad_decoder(codec, converts), ELEMENTS[name].values, ELEMENTS[name].bits
    count = 1 << bits
    codes = np.random.default_rng(0).permutation(count)
    for i in range(count):
        four = [int(codes[(i + k) % count]) for k in range(4)]
        above = 0xFFFFFFFF << 4 * bits & 0xFFFFFFFF
        chunk = sum(code << k * bits for k, code in enumerate(four)) | above
        found = np.array(decode(np.uint32(chunk)), np.float32)
        wanted = values[four]
        nan = np.isnan(wanted)
        assert (np.isnan(found) == nan).all()
        assert (found.view(np.uint32) == wanted.view(np.uint32))[~nan].all()


def test_which_formats_go_by_way_of_float16() -> None:
    elements = {name: codec_of(QuantScheme(name)).element for name in ELEMENTS}
    assert {name for name, element in elements.items() if inside_half(element)} == {
        *("e5m2", "e3m2", "e2m3", "e2m1")
    }
    assert [name for name, element in elements.items() if is_e4m3(element)] == ["e4m3"]


def test_pairs_are_rounded_as_numpy_rounds() -> None:
    import ml_dtypes

    rng = np.random.default_rng(1)
    x = rng.integers(0, 1 << 32, 2000, np.uint32).view(np.float32)
    x[:8] = 65504, 65519.9, 65520, 2.0**-24, 2.0**-25, 3.4e38, -0.0, np.inf
    x = x[~np.isnan(x)]
    for pack, kind in ((to_halves, np.float16), (to_bfloats, ml_dtypes.bfloat16)):
        for a, b in zip(x[0::2], x[1::2], strict=False):
            with np.errstate(over="ignore"):
                wanted = np.array([a, b]).astype(kind).view(np.uint32)[0]
            assert pack(a, b) == wanted
