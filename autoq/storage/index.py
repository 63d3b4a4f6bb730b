"""Indexing of packed tensors: integers, slices, Ellipsis, None, arrays of integers or booleans."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..devices import array_namespace, is_array, on_gpu
from ..errors import IndexingError
from .axes import check_index, places_of, without_masks
from .gather import Pick, encoded, gather, worst
from .layout import Array, Geometry, Shape
from .qtensor import QTensor

FULL = slice(None)
MOST_AXES = 64  # NumPy's own limit


class Parsed(NamedTuple):
    """An index worked out for a shape.

    Attributes:
        picks: What is kept, per axis of the tensor.
        shape: Shape of the result, the array's axes in place.
        array_at: First of the array's axes in the result, None without an array.
        array_ndim: How many axes the array brings.
        in_front: Whether NumPy's rule puts the array's axes first (an int and the array, apart).
    """

    picks: dict[int, Pick]
    shape: Shape
    array_at: int | None
    array_ndim: int
    in_front: bool


def getitem(q: QTensor, index: Any) -> tuple[Any, str]:
    """``q[index]`` with NumPy's meaning.

    Slices are views where no block is cut, an array along one axis copies codes (S34-S36).

    Raises:
        IndexingError: If the index is out of range, has too many parts, or is of a kind not taken.

    Example:
        >>> from autoq.schemes import scheme
        >>> q = QTensor.quantize(np.ones((4, 64), np.float32), scheme("mxfp8"))
        >>> getitem(q, (slice(None, None, -2), slice(32, None)))[1], getitem(q, (0, slice(0, 8)))[1]
        ('view', 'copy')
    """
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [_as_array(part) for part in parts if _is_array(part)]
    if len(arrays) > 1 or any(array.ndim > 1 and array.dtype.kind == "b" for array in arrays):
        return _several_arrays(q, parts)
    parsed = parse(index, q.shape)
    result, how = gather(q, parsed.picks, parsed.shape)
    if parsed.in_front and parsed.array_at is not None:
        from .move import permute_dims

        front = range(parsed.array_at, parsed.array_at + parsed.array_ndim)
        axes = (*front, *(axis for axis in range(len(parsed.shape)) if axis not in front))
        result, permuted = permute_dims(result, axes)
        how = worst(how, permuted)
    return result, how


def _several_arrays(q: QTensor, parts: tuple[Any, ...]) -> tuple[Any, str]:
    """Several index arrays, or a mask over several axes: a copy of whole lines where they reach no block."""
    from .move import contiguous

    parts = tuple(np.asarray(part) if isinstance(part, list) else part for part in parts)
    geometry = Geometry.of(q.scheme, q.ndim)
    used = sum(_axes_used(part) for part in parts)
    in_front = Ellipsis not in [part for part in parts if not is_array(part)]
    try:
        if in_front and used <= q.ndim - geometry.pinned:
            ordered = contiguous(q)[0]
            if ordered.layout.is_identity:
                return _lines_picked(ordered, parts), "copy"
        return encoded(_picked(q.dequantize(), parts), q.scheme), "decode"
    except IndexError as error:
        raise IndexingError(
            f"index {parts} of a tensor of shape {q.shape}: {error}",
            "arrays of integers in range that broadcast, or masks of the axes' sizes",
            "Correct the index.",
        ) from None


def _lines_picked(q: QTensor, parts: tuple[Any, ...]) -> QTensor:
    """Whole lines by an index that doesn't reach an axis of blocks."""
    words = _picked(q.words, parts)
    shape = (*words.shape[:-1], q.shape[-1])
    scales = _picked(q.scales, parts) if q.scheme.block else q.scales.reshape((1,) * len(shape))
    return QTensor.make(words, scales, q.tensor_scale, q.scheme, shape)


def _picked(array: Array, parts: tuple[Any, ...]) -> Array:
    """``array[parts]``, which a GPU doesn't check."""
    if on_gpu(array):
        check_index(parts, array.shape)
        parts = without_masks(parts, array.shape)
    return array[parts]


def _as_array(part: Any) -> Array:
    try:
        return part if on_gpu(part) else np.asarray(part)
    except ValueError:
        raise IndexingError(
            f"index {part}, rows of unequal lengths", "arrays of integers or booleans", "Pad the rows."
        ) from None


def _axes_used(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if is_array(part) and part.dtype.kind == "b" else 1


def _is_array(part: Any) -> bool:
    return isinstance(part, list) or (is_array(part) and part.ndim > 0)


def parse(index: Any, shape: Shape) -> Parsed:
    """Work out an index for a tensor of ``shape``.

    Example:
        >>> parse((None, 1, ..., [0, 2]), (3, 4, 5)).shape
        (1, 4, 2)
    """
    parts = _expanded(index if isinstance(index, tuple) else (index,), shape)
    picks: dict[int, Pick] = {}
    result: list[int] = []
    array_at, array_ndim = None, 0
    axis = 0
    for part in parts:
        if part is None:
            result.append(1)
            continue
        n = shape[axis]
        if isinstance(part, slice):
            if part != FULL:
                picks[axis] = part
            result.append(_length(part, n))
        elif _is_integer(part):
            place = int(places_of(part, n, axis))
            picks[axis] = slice(place, place + 1)
        else:
            places = _array_places(part, n, axis)
            picks[axis], array_at, array_ndim = places.reshape(-1), len(result), places.ndim
            result += places.shape
        axis += 1
    if len(result) > MOST_AXES:
        raise IndexingError(
            f"an index whose result has {len(result)} axes", f"at most {MOST_AXES}", "Insert fewer axes."
        )
    return Parsed(picks, tuple(result), array_at, array_ndim, _apart(parts))


def _length(part: slice, n: int) -> int:
    """How many of ``n`` places a slice keeps."""
    try:
        return len(range(*part.indices(n)))
    except (TypeError, ValueError) as error:
        raise IndexingError(
            f"index {part}: {error}", "slices of integers and None, with a step other than 0", "Correct it."
        ) from None


def _expanded(index: tuple[Any, ...], shape: Shape) -> list[Any]:
    """The index with one part an axis: Ellipsis and what is missing at the end become full slices."""
    parts = [np.asarray(part) if isinstance(part, list) else part for part in index]
    ellipses = [i for i, part in enumerate(parts) if part is Ellipsis]
    arrays = [part for part in parts if is_array(part) and part.ndim]
    used = sum(part is not None and part is not Ellipsis for part in parts)
    if len(ellipses) > 1 or len(arrays) > 1 or used > len(shape):
        raise IndexingError(
            f"index {index} of a tensor of shape {shape}",
            f"at most {len(shape)} parts, one Ellipsis and one array",
            "Index in steps, or decode the tensor first.",
        )
    filling = [FULL] * (len(shape) - used)
    at = ellipses[0] if ellipses else len(parts)
    return parts[:at] + filling + parts[at + 1 :]


def _is_integer(part: Any) -> bool:
    if isinstance(part, bool | np.bool_):
        return False
    return isinstance(part, int | np.integer) or (
        isinstance(part, np.ndarray) and part.ndim == 0 and part.dtype.kind in "iu"
    )


def _array_places(part: Any, n: int, axis: int) -> Array:
    """Places that an array index names; a boolean one is a mask of the axis."""
    if not is_array(part) or (part.ndim == 0 and not on_gpu(part)):
        raise IndexingError(
            f"index {part!r}",
            "integers, slices, Ellipsis, None, one integer or boolean array",
            "Convert it to one of these.",
        )
    if part.dtype.kind != "b":
        return places_of(part, n, axis)
    if part.shape != (n,):
        raise IndexingError(
            f"a mask of shape {part.shape} for axis {axis} of size {n}",
            "a mask over one axis",
            "Reshape the tensor so that the mask covers one axis.",
        )
    # On a GPU this waits: how many there are decides the shape.
    return array_namespace(part).flatnonzero(part)


def _apart(parts: list[Any]) -> bool:
    """Whether an integer and the array have another kind of part between them."""
    advanced = [i for i, part in enumerate(parts) if part is not None and not isinstance(part, slice)]
    has_array = any(is_array(parts[i]) and parts[i].ndim for i in advanced)
    return has_array and advanced[-1] - advanced[0] + 1 > len(advanced)
