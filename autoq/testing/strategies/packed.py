"""Schemes, tensors and packed tensors, in every layout that storage knows."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from autoq.schemes import QuantScheme, scheme
from autoq.storage import QTensor
from autoq.tape.tensor import tensor
from autoq.testing.strategies.numbers import Strategy, arrays, lifted
from autoq.types import as_dtype

NAMES = ("int8", "int4", "mxfp8", "mxfp6_e2m3", "mxfp4", "nvfp4")
LAYOUTS = ("contiguous", "permuted", "sliced", "tail")


def schemes(names: Any = NAMES, block: Any = None) -> Strategy:
    """Schemes by name, or a sequence of names, the first being the simplest.

    Args:
        names: One name or scheme, several, or a strategy.
        block: Another block, such as ``(8,)``; a tuple, or a strategy of tuples. Each is a kernel to compile.

    Example:
        >>> from hypothesis import find
        >>> find(schemes(), lambda s: s.element_bits == 4).name
        'int4'
    """

    @st.composite
    def drawn(draw: Any) -> QuantScheme:
        chosen = names if isinstance(names, str | QuantScheme | st.SearchStrategy) else st.sampled_from(names)
        found = draw(lifted(chosen))
        found = scheme(found) if isinstance(found, str) else found
        extents = draw(lifted(block))
        return found if extents is None else found.replace(block=extents)

    return drawn()


def tensors(
    shape: Any = None,
    dtype: Any = np.float32,
    requires_grad: Any = False,
    inhibit: Any = False,
    **options: Any,
) -> Strategy:
    """Tensors, dense or packed.

    Args:
        shape: The shape; ``shapes()`` by default.
        dtype: A NumPy dtype, a scheme, or a strategy such as ``one_of(just(aq.float32), schemes())``.
        requires_grad: Make it a leaf that gets a gradient.
        inhibit: Its dtype doesn't vote.
        options: As of ``arrays``.

    Example:
        >>> from hypothesis import find
        >>> find(tensors((1, 2), schemes("mxfp8")), lambda x: True)
        <AutodiffQTensor (1, 2) mxfp8>
    """

    @st.composite
    def drawn(draw: Any) -> Any:
        chosen = as_dtype(draw(lifted(dtype)))
        values = draw(arrays(shape, **options))
        out = tensor(values, dtype=chosen)
        out = out.inhibit() if draw(lifted(inhibit)) else out
        if draw(lifted(requires_grad)):
            out.requires_grad = True
        return out

    return drawn()


def qtensors(scheme: Any = None, shape: Any = None, layout: Any = LAYOUTS, **options: Any) -> Strategy:
    """Packed tensors of at least two axes, as they come out of views too.

    Args:
        scheme: The scheme; ``schemes()`` by default.
        shape: Their shape before the view; otherwise up to three axes, the last of them up to three blocks
            long and mostly not a whole number of them.
        layout: ``"contiguous"``, ``"permuted"`` (axes in another order), ``"sliced"`` (every other row, and
            from the second block on), ``"tail"`` (a last block that isn't whole); one or several.
        options: As of ``arrays``.

    Example:
        >>> from hypothesis import find
        >>> find(qtensors("mxfp8", (2, 3), "permuted"), lambda q: True)
        QTensor(mxfp8, shape=(3, 2), 10 bytes)
    """

    @st.composite
    def drawn(draw: Any) -> QTensor:
        found = draw(schemes() if scheme is None else schemes(scheme))
        kind = draw(st.sampled_from((layout,) if isinstance(layout, str) else tuple(layout)))
        size = _shape(draw, found, kind) if shape is None else draw(lifted(shape))
        q = QTensor.quantize(draw(arrays(size, **options)), found)
        return _viewed(draw, q, kind)

    return drawn()


def _shape(draw: Any, found: QuantScheme, kind: str) -> tuple[int, ...]:
    block = 8 if found.block is None else found.block[-1]
    lead = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    blocks = draw(st.integers(1, 2))
    rest = draw(st.integers(1, block - 1)) if kind == "tail" and block > 1 else 0
    return (*lead, blocks * block + rest)


def _viewed(draw: Any, q: QTensor, kind: str) -> QTensor:
    if kind == "permuted":
        return q.permute_dims(draw(st.permutations(range(q.ndim)).filter(lambda p: p != sorted(p))))
    if kind == "sliced":
        whole = q.scheme.block is None or len(q.scheme.block) != 1
        block = 0 if whole or q.scheme.block is None else q.scheme.block[0]
        start = block if 0 < block < q.shape[-1] else 0
        return q[(slice(None, None, 2), ..., slice(start, None))]
    return q
