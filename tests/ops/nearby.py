"""Whether a packed tensor encodes values near given ones: what sums in another order give on a GPU.

A product of packed operands is summed there by tensor cores, that of the decoded ones in float32: their
results agree to the order of summation (S38), so a code or a scale may be the next one at a tie.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import autoq as aq
from autoq.storage import QTensor, convert
from autoq.storage.rewrite import _amax_of
from autoq.storage.scales import effective_scales

Array = np.ndarray[Any, Any]
ORDER = 2e-6  # of the sum of magnitudes: what another order of float32 additions changes at most


def check_product_encoded(out: aq.Tensor, call: Any, operands: list[Any]) -> None:
    """``out`` encodes ``call`` of the decoded operands, but for the order of its sums."""
    wide = [np.asarray(x.numpy(), np.float64) if isinstance(x, aq.Tensor) else x for x in operands]
    with aq.default_device("cpu"):
        exact = call(*[aq.tensor(x) if isinstance(x, np.ndarray) else x for x in wide]).numpy()
        sizes = call(*[aq.tensor(np.abs(x)) if isinstance(x, np.ndarray) else x for x in wide]).numpy()
    assert isinstance(out, aq.AutodiffQTensor)
    check_encodes_near(out.qtensor, exact, ORDER * sizes)


def check_encodes_near(q: QTensor, exact: Array, bound: Array) -> None:
    """``q`` is what encoding gives of some values that are within ``bound`` of the exact ones."""
    assert q.shape == exact.shape
    if not q.size:
        return
    q = q.to("cpu")
    least, most = np.maximum(np.abs(exact) - bound, 0), np.abs(exact) + bound
    amax = _amax_of(q)
    if amax is not None:
        assert least.max() * (1 - 1e-6) <= amax <= most.max() * (1 + 1e-6)
    low, high = [
        convert.encode(np.float32(np.copysign(sizes, exact)), q.scheme, tensor_amax=amax).scales
        for sizes in (least, most)
    ]
    assert (low <= q.scales).all()
    assert (q.scales <= high).all()
    scales = scale_of_values(q)[..., None].astype(np.float64)
    places = np.asarray(q.scheme.element_format.values, np.float64) * scales
    nearest = np.nanmin(np.abs(places - exact[..., None]), axis=-1)
    assert (np.abs(q.dequantize() - exact) <= nearest + 2 * bound).all()


def scale_of_values(q: QTensor) -> Array:
    """What each value's code is multiplied by."""
    found = np.asarray(effective_scales(q.scales, q.tensor_scale, q.scheme))
    if q.scheme.block is None:
        return np.broadcast_to(found.reshape((1,) * q.ndim), q.shape)
    for axis, extent in enumerate(q.scheme.extents(q.ndim)):
        found = np.repeat(found, extent, axis)
    return found[tuple(slice(n) for n in q.shape)]
