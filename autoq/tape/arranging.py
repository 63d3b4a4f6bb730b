"""Ordering, rearranging and changing entries as methods of tensors, beside those in ``methods``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from autoq.errors import ShapeError
from autoq.tape.apply import apply
from autoq.tape.at import At
from autoq.tape.function import COMPOSED

if TYPE_CHECKING:
    from autoq.tape.tensor import Tensor

Axis = int | tuple[int, ...] | None


class Arranging:
    """Methods that call one op each; arguments and errors are those of ``aq.<name>``."""

    __slots__ = ()

    @property
    def at(self: Any) -> At:
        """``x.at[index].set(v)`` and ``.add(v)``: a new tensor with changed entries (S12).

        Example:
            >>> import autoq as aq
            >>> aq.tensor([1.0, 2.0, 3.0]).at[1].set(0.0)
            tensor([1. 0. 3.], float32)
        """
        return At(self)

    def flatten(self: Any, start: int = 0, end: int = -1) -> Tensor:
        """One axis of those from ``start`` to ``end``, both included; all of them by default.

        Raises:
            ShapeError: Axes that the tensor does not have, or in the other order.
        """
        shape, ndim = self.shape, max(self.ndim, 1)
        if not (-ndim <= start < ndim and -ndim <= end < ndim and start % ndim <= end % ndim):
            raise ShapeError(
                f"flatten: axes {start} to {end} of shape {shape}.", "axes it has, in order.", "Correct them."
            )
        first, last = start % ndim, end % ndim
        return apply(
            "reshape", self, shape=(*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
        )

    def ravel(self: Any) -> Tensor:
        """All values along one axis."""
        return apply("reshape", self, shape=(-1,) if self.size else (0,))

    def moveaxis(self, source: Axis, destination: Axis) -> Tensor:
        """Axes moved to other positions; the others keep their order."""
        return COMPOSED["moveaxis"](self, source, destination)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """Two axes swapped."""
        return COMPOSED["swapaxes"](self, axis1, axis2)

    def repeat(self, repeats: Any, axis: int | None = None) -> Tensor:
        """Each value, or each entry along the axis, repeated in place."""
        return apply("repeat", self, repeats=repeats, axis=axis)

    def tile(self, *repetitions: Any) -> Tensor:
        """The whole tensor repeated along its axes, given as integers or as one tuple."""
        flat = repetitions[0] if len(repetitions) == 1 else repetitions
        return apply("tile", self, repetitions=flat)

    def roll(self, shift: Any, axis: Axis = None) -> Tensor:
        """Values moved along the axes; what leaves at one end comes in at the other."""
        return apply("roll", self, shift=shift, axis=axis)

    def diagonal(self, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
        """Diagonals of the matrices in the last two axes, or in those named."""
        return apply("diagonal", self, offset=offset, axis1=axis1, axis2=axis2)

    def tril(self, k: int = 0, **options: Any) -> Tensor:
        """Zeros above a diagonal."""
        return apply("tril", self, k=k, **options)

    def triu(self, k: int = 0, **options: Any) -> Tensor:
        """Zeros below a diagonal."""
        return apply("triu", self, k=k, **options)

    def sort(self, axis: int = -1, descending: bool = False, stable: bool = True, **options: Any) -> Tensor:
        """Values in order along the axis."""
        return apply("sort", self, axis=axis, descending=descending, stable=stable, **options)

    def argsort(self, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """Positions that sort the values along the axis."""
        return apply("argsort", self, axis=axis, descending=descending, stable=stable)

    def topk(
        self, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The k largest or smallest values along the axis, and their positions."""
        return COMPOSED["topk"](self, k, axis, largest, sorted)

    def masked_fill(self, mask: Any, value: Any) -> Tensor:
        """One value wherever the mask is true; keeps the dtype."""
        return COMPOSED["masked_fill"](self, mask, value)

    def scatter(self, indices: Any, values: Any, axis: int = -1) -> Tensor:
        """Entries at positions along the axis replaced; keeps the dtype."""
        return COMPOSED["scatter"](self, indices, values, axis)

    def scatter_add(self, indices: Any, values: Any, axis: int = -1) -> Tensor:
        """Values added to the entries at positions along the axis; keeps the dtype."""
        return COMPOSED["scatter_add"](self, indices, values, axis)

    def gather(self, indices: Any, axis: int = -1, **options: Any) -> Tensor:
        """One entry along the axis for each index, as ``aq.take_along_axis``."""
        return apply("take_along_axis", self, indices=indices, axis=axis, **options)

    def unstack(self, axis: int = 0) -> tuple[Tensor, ...]:
        """The entries along an axis, one tensor each."""
        return COMPOSED["unstack"](self, axis)
