"""One piece of a GPU's memory for a packed tensor's arrays, which are made when they are asked for.

A small operation costs the host more than the device: one allocation is quicker than two or three, and the
next operation's kernel takes addresses, no arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..schemes import QuantScheme
from .inputs import FLOAT32
from .layout import Array, Layout, Shape, stored_shapes
from .plan import plan_of

# Kernels read and write sixteen bytes at a time.
ALIGNMENT = 16
WORD = np.dtype(np.uint32)

_signatures: dict[tuple[Any, ...], Signature] = {}
SIGNATURES = 4096


class Signature:
    """All of an operand that decides how kernels are launched: equal ones are mostly one object.

    It is compared by identity, which makes keys of launches cheap.

    Attributes:
        parts: What it is made of.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts


def signature_of(
    scheme: QuantScheme, shape: Shape, order: Shape | None, words: Shape, scales: Shape, beyond: int
) -> Signature:
    """The signature of a packed tensor.

    Args:
        scheme: The tensor's.
        shape: Likewise.
        order: The storage axis of each axis; None where they agree.
        words: Strides of the words, in bytes.
        scales: Strides of the scales.
        beyond: Bytes that the words begin beyond a multiple of the alignment.
    """
    parts = scheme, shape, order, words, scales, beyond
    found = _signatures.get(parts)
    if found is None:
        if len(_signatures) >= SIGNATURES:
            _signatures.clear()  # those in use live on, and are only planned for once more
        found = _signatures[parts] = Signature(parts)
    return found


class Allocation:
    """How the arrays of packed tensors of one scheme and shape lie in one piece of memory.

    Args:
        scheme: Of blocks over the trailing axes.
        shape: The tensors' shape, which is their storage shape.
        xp: CuPy, or NumPy where that stands for it.

    Attributes:
        size: Bytes.
        forms: Shapes and dtypes of words, scales and, under two levels, the tensor scale.
        offsets: Where each begins.
        signature: Of all tensors made so.

    Example:
        >>> from autoq.schemes import scheme
        >>> Allocation(scheme("nvfp4"), (3, 32), np).offsets
        (0, 48, 64)
    """

    __slots__ = ("_alloc", "_xp", "forms", "layout", "offsets", "scheme", "shape", "signature", "size")

    def __init__(self, scheme: QuantScheme, shape: Shape, xp: Any) -> None:
        plan = plan_of(scheme)
        words, grid = stored_shapes(scheme, shape)
        forms = [
            (words, WORD),
            (grid, np.dtype(plan.scale_dtype)),
            *([((), FLOAT32)] if scheme.tensor_scale else []),
        ]
        offsets, end = [], 0
        for form, dtype in forms:
            start = -(-end // ALIGNMENT) * ALIGNMENT
            offsets.append(start)
            end = start + math.prod(form) * dtype.itemsize
        self.scheme, self.shape, self.layout = scheme, shape, Layout.identity(len(shape))
        self.offsets, self.size = tuple(offsets), end
        self.forms, self._xp = forms, xp
        self._alloc = None if xp is np else xp.cuda.alloc
        strides = [_strides(*form) for form in forms]
        self.signature = signature_of(scheme, shape, None, strides[0], strides[1], 0)

    def memory(self) -> Any:
        """New memory for one tensor, on the current device."""
        return np.empty(self.size, np.uint8) if self._alloc is None else self._alloc(self.size)

    def addresses(self, memory: Any) -> tuple[int, ...]:
        """Where the arrays begin in memory of a GPU."""
        start = memory.ptr
        if len(self.offsets) == 2:
            return start, start + self.offsets[1]
        return tuple([start + offset for offset in self.offsets])

    def arrays(self, memory: Any) -> list[Array]:
        """Words, scales and, under two levels, the tensor scale, as views of the memory."""
        return [
            self._array(memory, offset, *form) for offset, form in zip(self.offsets, self.forms, strict=True)
        ]

    def _array(self, memory: Any, offset: int, shape: Shape, dtype: Any) -> Array:
        if self._alloc is None:
            return np.ndarray(shape, dtype, memory, offset)
        made: Array = self._xp.ndarray(shape, dtype, memory + offset)
        return made


def _strides(shape: Shape, dtype: np.dtype[Any]) -> Shape:
    """Of a C-contiguous array."""
    return tuple([math.prod(shape[axis + 1 :]) * dtype.itemsize for axis in range(len(shape))])
