"""What the storage tests share: schemes, arrays, strategies of shapes and indices, and what must hold."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from hypothesis import strategies as st

from autoq.devices import same_memory, to_host
from autoq.schemes import CATALOG, QuantScheme
from autoq.storage import QTensor
from autoq.storage.convert import pack, unpack

# The device under test, as AUTOQ_TEST_DEVICE chose it.
DEVICE = "cpu" if os.environ.get("AUTOQ_TEST_DEVICE", "cpu") == "cpu" else "cuda"

# Blocks that don't fill words, tiles that are not square, blocks across the lines.
EDGES = {
    "int2_block8": CATALOG["int2"].replace(block=(8,)),
    "fp6_block8": CATALOG["mxfp6_e2m3"].replace(block=(8,)),
    "int4_block3": CATALOG["int4"].replace(block=(3,)),
    "int4_tile": CATALOG["int4"].replace(block=(2, 4)),
    "mxfp8_across": CATALOG["mxfp8"].replace(block=(4, 1)),
    "mxfp4_tensor": CATALOG["mxfp4"].replace(block=None),
    "mxfp8_block4": CATALOG["mxfp8"].replace(block=(4,)),
    "nvfp4_block4": CATALOG["nvfp4"].replace(block=(4,)),
}
SCHEMES: dict[str, QuantScheme] = {**CATALOG, **EDGES}
SIZES = (0, 1, 2, 3, 4, 5, 8, 12, 16, 17, 32, 33, 64)

names = st.sampled_from(sorted(SCHEMES))
# Small blocks meet their edges in small tensors.
small_names = st.sampled_from(sorted(EDGES))


def ranks(scheme: QuantScheme) -> range:
    """Ranks a scheme takes, up to 4."""
    return range(len(scheme.block) if scheme.block else 0, 5)


@st.composite
def shapes(draw: Any, scheme: QuantScheme, least: int = 0) -> tuple[int, ...]:
    """Shapes with empty axes, tails and axes of 1; the last axes are the long ones."""
    rank = draw(st.sampled_from([r for r in ranks(scheme) if r >= least]))
    leading = st.sampled_from((0, 1, 1, 2, 3, 4, 5))
    long = st.sampled_from(SIZES)
    return tuple(draw(long if axis >= rank - 2 else leading) for axis in range(rank))


def values(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Normal values of very different sizes along every axis, some zeros of either sign."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape))
    zeroed = np.where(rng.random(shape) < 0.1, np.copysign(0.0, x), x)
    return np.asarray(zeroed, np.float32)


def quantized(x: Any, scheme: QuantScheme) -> QTensor:
    """An array encoded, on the device under test."""
    return QTensor.quantize(x, scheme).to(DEVICE)


@st.composite
def tensors(draw: Any, scheme_names: Any = names, least: int = 0) -> QTensor:
    """A quantized tensor, sometimes seen through a view: permuted, sliced, flipped."""
    scheme = SCHEMES[draw(scheme_names)]
    shape = draw(shapes(scheme, least))
    q = quantized(values(shape, draw(st.integers(0, 3))), scheme)
    if q.ndim > 1 and draw(st.booleans()):
        q = q.permute_dims(draw(st.permutations(range(q.ndim))))
    if q.ndim and q.shape[0] > 2 and draw(st.booleans()):
        viewed = q[::-2]
        q = viewed if viewed.scheme == scheme else q
    return q


def same_floats(a: Any, b: Any) -> bool:
    """Whether float32 arrays agree bit for bit, NaN with NaN."""
    a, b = (np.asarray(to_host(x), np.float32) for x in (a, b))
    both_nan = np.isnan(a) & np.isnan(b) if a.shape == b.shape else False
    return a.shape == b.shape and bool(((a.view(np.uint32) == b.view(np.uint32)) | both_nan).all())


def check_invariants(q: QTensor) -> None:
    """The constructor's invariants, and zero padding bits."""
    QTensor(q.words, q.scales, q.tensor_scale, q.scheme, q.shape, q.layout)
    bits, stored = q.scheme.element_bits, q.storage_shape
    again = pack(unpack(q.words, bits, stored), bits)
    assert np.array_equal(to_host(again), to_host(q.words)), "padding bits are not zero"


def check_moved(q: QTensor, result: Any, how: str, move: Any) -> None:
    """A layout function did to ``q`` what ``move`` does to its decoded values.

    Bit for bit, unless blocks were cut; then what was moved is encoded again with blocks along the last axis.
    """
    expected = move(to_host(q.dequantize()))
    assert how in ("view", "copy", "decode")
    assert result.shape == expected.shape
    if not isinstance(result, QTensor):
        assert how == "decode"
        assert expected.ndim == 0
        assert same_floats(result, expected)
        return
    check_invariants(result)
    if how == "decode":
        scheme = q.scheme.innermost(expected.ndim)
        assert result.same_bits(QTensor.encode(np.ascontiguousarray(expected), scheme))
        return
    assert result.scheme == q.scheme
    assert same_floats(result.dequantize(), expected)
    if how == "view" and q.size and result.size:
        assert result.shares_memory(q)
    if how == "copy" and result.size:
        assert not (result.shares_memory(q) and same_memory(result.scales, q.scales))
