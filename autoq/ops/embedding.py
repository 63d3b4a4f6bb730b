"""Rows of a table by number: looked up as they are stored, without decoding (S10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autoq.devices import beside, on_gpu
from autoq.errors import ArgumentError, IndexingError, ShapeError
from autoq.ops.arguments import array, whole
from autoq.ops.axes import Shape
from autoq.ops.samples import moved
from autoq.storage import QTensor, move
from autoq.tape.apply import apply, plain
from autoq.tape.beside import check_beside, held
from autoq.tape.op import Op, register

if TYPE_CHECKING:
    from autoq.tape.tensor import Tensor


def embedding(weight: Any, indices: Any, padding_idx: int | None = None, *, out_dtype: Any = None) -> Tensor:
    """The rows of `weight` at `indices`; the result propagates, in the dtype of `weight`.

    Packed rows are copied, not decoded. Rows that are looked up several times add up their gradients.

    Args:
        weight: (count, ...), one row an entry.
        indices: Integers of any shape, from 0 to count - 1.
        padding_idx: A row that gets no gradient, or None.
        out_dtype: Another dtype for the result.

    Returns:
        The shape of the indices, followed by the further axes of the weight.

    Raises:
        ShapeError: A weight without axes.
        DTypeError: Indices that are no array of numbers.
        IndexingError: Indices that aren't integers, or name no row.
        ArgumentError: A padding_idx that is no row.

    Example:
        >>> import autoq as aq
        >>> embedding(aq.tensor([[1.0, 2.0], [3.0, 4.0]]), [1, 0, 1])
        tensor([[3. 4.]
                [1. 2.]
                [3. 4.]], float32)
    """
    # As an array, whatever was given: a lookup by data makes an activation (S10).
    check_beside("embedding", weight, indices, names=("weight", "indices"))
    indices = array("embedding", "indices", plain(indices))
    return apply("embedding", weight, indices=indices, padding_idx=padding_idx, out_dtype=out_dtype)


def looked_up(weight: Any, *, indices: Any, padding_idx: int | None = None) -> Any:
    """The forward of `embedding` on arrays."""
    return np.take(weight, beside(_rows(weight.shape, indices, padding_idx), weight), axis=0)


def _packed_embedding(q: QTensor, *, indices: Any, padding_idx: int | None = None) -> tuple[Any, str]:
    return move.take(q, _rows(q.shape, indices, padding_idx), 0)


def _rows(shape: Shape, indices: Any, padding_idx: int | None) -> Any:
    """The indices as an array, each of them the number of a row."""
    indices = array("embedding", "indices", indices)
    if not shape:
        raise ShapeError("embedding: weight is ().", "(count, ...).", "Pass one row an entry.")
    if indices.dtype.kind not in "iu" or (
        # Those on a GPU aren't read.
        indices.size and not on_gpu(indices) and not 0 <= indices.min() <= indices.max() < shape[0]
    ):
        spread = f"from {indices.min()} to {indices.max()}" if indices.size else "none"
        raise IndexingError(
            f"embedding: indices of dtype {indices.dtype}, {spread}, for {shape[0]} rows.",
            f"integers from 0 to {shape[0] - 1}.",
            "Check the vocabulary, or use a larger table.",
        )
    if padding_idx is not None and not 0 <= whole("embedding", "padding_idx", padding_idx) < shape[0]:
        raise ArgumentError(
            f"embedding: padding_idx={padding_idx} of {shape[0]} rows.",
            f"None, or 0 to {shape[0] - 1}.",
            "Name the row that stands for padding.",
        )
    return indices


def _embedding_weight(F: Any, g: Any, weight_shape: Shape, indices: Any, padding_idx: int | None) -> Any:
    indices = _rows(weight_shape, indices, padding_idx)
    if padding_idx is not None:
        kept = beside(np.not_equal(indices, padding_idx), held(g))
        g = F.where(kept.reshape(*kept.shape, *(1,) * (len(weight_shape) - 1)), g, 0.0)
    return F.scatter_add(g, indices=indices, axis=0, shape=weight_shape)


_INDICES = np.array([[2, 0], [2, 1]])

register(
    Op(
        "embedding",
        looked_up,
        {"weight": _embedding_weight},
        kind="layout",
        packed=_packed_embedding,
        sample=moved((3, 4), {"indices": _INDICES}, {"indices": np.array([1, 1, 2])}),
    )
)
