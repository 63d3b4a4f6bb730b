"""The layout functions as methods of QTensor: results without the word on how they were made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ShapeError
from .axes import Axes

if TYPE_CHECKING:
    from .qtensor import QTensor


class LayoutMethods:
    """Layout operations that stay packed wherever blocks can follow (S34-S36); see autoq.storage.move."""

    __slots__ = ()

    @property
    def T(self: Any) -> QTensor:  # noqa: N802
        """The axes reversed: a view."""
        from .move import permute_dims

        return permute_dims(self, tuple(reversed(range(self.ndim))))[0]

    @property
    def mT(self: Any) -> QTensor:  # noqa: N802
        """The last two axes swapped: a view. ShapeError below two axes."""
        if self.ndim < 2:
            raise ShapeError(
                f"mT of a tensor of shape {self.shape}", "at least two axes", "Use .T, or reshape it."
            )
        from .move import permute_dims

        return permute_dims(self, (*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))[0]

    @property
    def is_contiguous(self: Any) -> bool:
        """Whether contiguous() has nothing to do."""
        arrays = self.words.flags.c_contiguous and self.scales.flags.c_contiguous
        return bool(arrays and self.contiguous() is self)

    def __len__(self: Any) -> int:
        if not self.shape:
            raise ShapeError("len() of a tensor without axes", "at least one axis", "Use .size.")
        return int(self.shape[0])

    def __getitem__(self: Any, index: Any) -> Any:
        from .index import getitem

        return getitem(self, index)[0]

    def reshape(self: Any, *shape: int | Sequence[int]) -> Any:
        """Reshape in logical row-major order: ``q.reshape(2, -1)`` or ``q.reshape((2, -1))``."""
        from .move import reshape

        target: Any = shape[0] if len(shape) == 1 else shape
        return reshape(self, target)[0]

    def permute_dims(self: Any, axes: Sequence[int]) -> QTensor:
        """Axes in another order: a view."""
        from .move import permute_dims

        return permute_dims(self, axes)[0]

    def transpose(self: Any, *axes: int) -> QTensor:
        """Axes in another order, reversed by default: a view."""
        from .move import permute_dims

        return permute_dims(self, axes or tuple(reversed(range(self.ndim))))[0]

    def expand_dims(self: Any, axis: Axes) -> QTensor:
        """Axes of size 1 at positions ``axis`` of the result: a view."""
        from .move import expand_dims

        return expand_dims(self, axis)[0]

    def squeeze(self: Any, axis: Axes | None = None) -> Any:
        """Without axes of size 1: those named, or all."""
        from .move import squeeze

        return squeeze(self, axis)[0]

    def broadcast_to(self: Any, shape: Sequence[int]) -> QTensor:
        """Axes of size 1 repeated."""
        from .move import broadcast_to

        return broadcast_to(self, shape)[0]

    def flip(self: Any, axis: Axes | None = None) -> QTensor:
        """Reversed along ``axis``, along all by default."""
        from .move import flip

        result: QTensor = flip(self, axis)[0]
        return result

    def take(self: Any, indices: Any, axis: int | None = None) -> Any:
        """Entries at integer ``indices`` along ``axis``."""
        from .move import take

        return take(self, indices, axis)[0]

    def repeat(self: Any, repeats: Any, axis: int | None = None) -> QTensor:
        """Each entry along ``axis`` repeated."""
        from .move import repeat

        result: QTensor = repeat(self, repeats, axis)[0]
        return result

    def pad(self: Any, pad_width: Any, value: float = 0.0) -> QTensor:
        """Padded with a constant."""
        from .move import pad

        result: QTensor = pad(self, pad_width, value)[0]
        return result

    def contiguous(self: Any) -> QTensor:
        """The tensor with C-contiguous arrays, in logical order as far as blocks allow; itself if it is."""
        from .move import contiguous

        return contiguous(self)[0]
